"""A server of our own that speaks the hub's protocol: models and data sets from folders."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = hashlib.sha1(b"first").hexdigest()
REVISIONS = ("main", "v1", COMMIT)


@contextmanager
def hub(repositories: Mapping[str, Path], asked: list[str]) -> Iterator[str]:
    """Folders as ``OWNER/NAME`` (a model) and ``datasets/OWNER/NAME``; the server's address.

    ``/[datasets/]OWNER/NAME/resolve/REVISION/FILE`` has the headers that clients need,
    ``/api/KINDs/OWNER/NAME/revision/REVISION`` the commit and ``…/tree/REVISION`` the files. Every
    other path is a file of the folder called ``""``.
    """

    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            path = self.path.partition("?")[0].strip("/")
            asked.append(path)
            api = path.startswith("api/")
            parts = path.removeprefix("api/").removeprefix("models/").split("/")
            size = 3 if parts[0] == "datasets" else 2
            folder = repositories.get("/".join(parts[:size]))
            if folder is None:
                plain = repositories.get("", Path("/nowhere")) / path
                self.answer(plain.read_bytes() if path and plain.is_file() else None, "")
                return
            verb, revision, *rest = [*parts[size:], "", "main"][: max(2, len(parts) - size)]
            if revision not in REVISIONS:
                self.answer(None, "RevisionNotFound")
            elif api:
                self.answer(self.about(folder, verb), "")
            else:
                file = folder / "/".join(rest)
                self.answer(file.read_bytes() if file.is_file() else None, "EntryNotFound")

        do_GET = do_HEAD

        def about(self, folder: Path, verb: str) -> bytes:
            files = sorted(one for one in folder.rglob("*") if one.is_file())
            names = [one.relative_to(folder).as_posix() for one in files]
            if verb != "tree":
                siblings = [{"rfilename": name} for name in names]
                return json.dumps({"id": "it", "sha": COMMIT, "siblings": siblings}).encode()
            return json.dumps(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": sha1(data)}
                    for name, data in zip(names, (one.read_bytes() for one in files), strict=True)
                ]
            ).encode()

        def answer(self, data: bytes | None, error: str) -> None:
            self.send_response(404 if data is None else 200)
            if data is None and error:
                self.send_header("X-Error-Code", error)
            body = data or b""
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{sha1(body)}"')
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def sha1(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
