"""An S3 server of our own for tests, and a proxy before it that fails as real ones do."""

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

BUCKET = "bucket"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def s3_server() -> Iterator[int]:
    """moto's server in a process of its own, with an empty bucket; its port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        request(port, "PUT", f"/{BUCKET}")
        yield port
    finally:
        process.kill()
        process.wait()


def request(port: int, method: str, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    status = connection.getresponse().status
    connection.close()
    return status


def environment(port: int) -> dict[str, str]:
    """What leads the usual chain of credentials to the server on a port."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key-of-a-test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


class Faults:
    """How often answers are 503, slow or cut off, and how many requests there were."""

    def __init__(self, busy: float = 0.0, slow: float = 0.0, cut: float = 0.0) -> None:
        self.busy, self.slow, self.cut = busy, slow, cut
        self.random = Random(0)
        self.requests: list[str] = []
        self.made = {"busy": 0, "slow": 0, "cut": 0}

    def draw(self) -> str:
        at = self.random.random()
        for kind, share in (("busy", self.busy), ("slow", self.slow), ("cut", self.cut)):
            if at < share:
                self.made[kind] += 1
                return kind
            at -= share
        return ""


@contextmanager
def before(port: int, faults: Faults) -> Iterator[int]:
    """A proxy before the server on a port, with these faults; its own port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def forward(self) -> None:
            body = self.read_body()
            faults.requests.append(f"{self.command} {self.path}")
            kind = faults.draw()
            if kind == "busy":
                self.answer(503, b"<Error><Code>SlowDown</Code></Error>", {})
                return
            if kind == "slow":
                time.sleep(0.3)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            unwanted = ("transfer-encoding", "expect", "connection")
            headers = {k: v for k, v in self.headers.items() if k.lower() not in unwanted}
            headers["Content-Length"] = str(len(body))
            connection.request(self.command, self.path, body, headers)
            found = connection.getresponse()
            data = found.read()
            connection.close()
            self.answer(found.status, data, dict(found.getheaders()), cut=kind == "cut")

        def read_body(self) -> bytes:
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.send_response_only(100)
                self.end_headers()
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                body = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return body
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def answer(
            self, status: int, data: bytes, headers: dict[str, str], *, cut: bool = False
        ) -> None:
            self.send_response_only(status)
            for key, value in headers.items():
                if key.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(key, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else len(data)
            self.send_header("Content-Length", str(length or 0))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
