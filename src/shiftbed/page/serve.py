"""The page over HTTP, rebuilt while a run writes to its store. Read-only.

By default only this machine can connect. Elsewhere means an explicit flag, and then every request
needs the token that is part of the printed address. A client has ten seconds to ask, at most 32 are
answered at a time, and what is no request is refused: none of them can hold up the others or leave
anything on the terminal.
"""

import contextlib
import gzip
import hashlib
import hmac
import html
import ipaddress
import json
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shiftbed.analysis.baseline import OnBoundary
from shiftbed.errors import InputError, brief, plain
from shiftbed.page.document import waiting_page
from shiftbed.page.report import report
from shiftbed.places import path_of, url_of
from shiftbed.store.files import open_files

COOKIE = "shiftbed-token"
SECONDS = 10.0
"""How long a client may take to say what it wants, and then to read the answer."""
MOST = 32
"""Connections at a time; one more is told to come back."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """A server that listens already and answers once it runs; close it at the end."""

    server: ThreadingHTTPServer
    address: str
    """What to open, with its token where one is needed."""
    sources: tuple[str, ...]

    def run(self) -> None:
        """Answer until Ctrl-C, then close."""
        with contextlib.suppress(KeyboardInterrupt), self.server:
            self.server.serve_forever()

    def start(self) -> None:
        """Answer from a thread, for a notebook."""
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """After ``start``: answer no more."""
        self.server.shutdown()
        self.server.server_close()


def serve(
    sources: str | Path | Sequence[str | Path] = "imagenet-testbed-2020",
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_remote: bool = False,
    shifts: Sequence[str] | None = None,
    fdr: float = 0.05,
    on_boundary: OnBoundary = "raise",
) -> Site:
    """The report over HTTP, read-only, rebuilt while a run writes to a store; ``run`` starts it."""
    given = [sources] if isinstance(sources, str | Path) else sources
    names = tuple(str(one) for one in given)
    options: dict[str, Any] = {"shifts": shifts, "fdr": fdr, "on_boundary": on_boundary}

    def make() -> str:
        return report(names, **options, refresh=True).page

    served = Served(make, lambda: stamp_of(names))
    server, address = make_server(served, host=host, port=port, allow_remote=allow_remote)
    return Site(server=server, address=address, sources=names)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def stamp_of(sources: Sequence[str]) -> str:
    """Changes whenever a file that a source's page depends on does; cheap to ask for."""
    digest = hashlib.sha256()
    for source in sources:
        store = path_of(source).is_dir() or url_of(source) is not None
        where, _, name = source.rpartition("/")
        files = open_files(source if store else where or ".")
        for one in ("testbed.json", "cells") if store else (name,):
            digest.update(f"{source} {one} {files.versions(one)};".encode())
    return digest.hexdigest()[:16]


class Served:
    """The page and its stamp; the page is made again when the stamp has changed."""

    def __init__(self, make: Callable[[], str], stamp: Callable[[], str]) -> None:
        self._make, self._stamp = make, stamp
        self._lock = threading.Lock()
        self._page: tuple[str, str] | None = None

    def stamp(self) -> str:
        return self._stamp()

    def page(self) -> str:
        with self._lock:
            stamp = self._stamp()
            if self._page is None or self._page[0] != stamp:
                try:
                    text = self._make()
                except InputError as error:  # a store whose first cell is not complete yet
                    text = waiting_page(str(error))
                text = text.replace("<html ", f'<html data-stamp="{html.escape(stamp)}" ', 1)
                self._page = (stamp, text)
            return self._page[1]


def make_server(
    served: Served, *, host: str = "127.0.0.1", port: int = 0, allow_remote: bool = False
) -> tuple[ThreadingHTTPServer, str]:
    """A server that has not started yet, and the address to open.

    Port 0 takes a free one. A host that others can reach is refused unless ``allow_remote``.
    """
    local = is_loopback(host)
    if not local and not allow_remote:
        raise InputError(
            f"host {host}: others could connect; add allow_remote (--allow-remote) if that is "
            "meant (the address then has a token)"
        )
    token = None if local else secrets.token_urlsafe(24)
    handler = type("Handler", (_Handler,), {"served": served, "token": token, "local": local})
    try:
        server = _Server((host, port), handler)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such address"
        raise InputError(f"cannot listen on {host}:{port}: {why}") from None
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{server.server_address[1]}/"
    return server, address if token is None else f"{address}?token={token}"


class _Server(ThreadingHTTPServer):
    """A thread per connection, up to ``MOST``; a client's fault is no business of the terminal."""

    daemon_threads = True
    request_queue_size = MOST

    def __init__(self, *given: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.settimeout(1.0)
            request.sendall(b"HTTP/1.0 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the page and of its stamp; everything else is refused."""

    timeout = SECONDS
    served: Served
    token: str | None
    local: bool
    server_version = "shiftbed"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        # the timeout is for each read: a client that sends a byte at a time is cut off by this
        self._end = threading.Timer(SECONDS, self._cut_off)
        self._end.daemon = True
        self._end.start()

    def finish(self) -> None:
        self._end.cancel()
        super().finish()

    def _cut_off(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        self._end.cancel()  # it has asked; the page may take its time
        try:
            asked, for_us = urlsplit(self.path), self._for_us()
        except ValueError:
            return self._send(400, "text/plain", "This is no request.\n", body=body)
        if self.local and not for_us:
            return self._send(421, "text/plain", "This server answers to loopback names only.\n")
        if self.token is not None and not self._has_token(asked.query):
            return self._send(403, "text/plain", "The address needs its token.\n")
        if asked.path == "/":
            try:
                page = self.served.page()
            except Exception as error:  # the next request tries again
                why = f"The page cannot be made now: {plain(brief(error))}\n"
                return self._send(500, "text/plain", why, body=body)
            return self._send(200, "text/html", page, body=body, cookie=True)
        if asked.path == "/version":
            stamp = json.dumps({"stamp": self.served.stamp()})
            return self._send(200, "application/json", stamp, body=body)
        return self._send(404, "text/plain", "There is only the page itself.\n", body=body)

    def _for_us(self) -> bool:
        """Whether the name asked for is this machine's own: other names could be made to point
        here by a web page elsewhere."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        return is_loopback(host)

    def _has_token(self, query: str) -> bool:
        assert self.token is not None
        given = parse_qs(query).get("token", [""])[0]
        for cookie in self.headers.get("Cookie", "").split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == COOKIE:
                given = given or value
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _send(
        self, status: int, kind: str, text: str, *, body: bool = True, cookie: bool = False
    ) -> None:
        data = text.encode()
        packed = "gzip" in self.headers.get("Accept-Encoding", "") and len(data) > 1000
        if packed:
            data = gzip.compress(data, 6, mtime=0)
        self.send_response(status)
        self.send_header("Vary", "Accept-Encoding")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        if cookie and self.token is not None:
            self.send_header("Set-Cookie", f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: the address may hold a token."""
