"""Over HTTP: loopback unless said otherwise, read-only, and newer when the store is."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from shiftbed.errors import InputError
from shiftbed.page.document import data_of
from shiftbed.page.serve import Served, is_loopback, make_server, stamp_of


class Site:
    """A server in a thread, and requests to it."""

    def __init__(self, host: str = "127.0.0.1", **options: object) -> None:
        self.made: list[str] = []
        self.stamp = "one"

        def make() -> str:
            self.made.append(self.stamp)
            if self.stamp == "empty":
                raise InputError("store has <no> complete cell yet")
            return f'<html lang="en"><p>{self.stamp}</p></html>'

        served = Served(make, lambda: self.stamp)
        self.server, self.address = make_server(served, host=host, **options)  # type: ignore[arg-type]
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def ask(self, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, str, dict]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode(), dict(answer.getheaders())
        connection.close()
        return found


@pytest.fixture
def site() -> Iterator[Site]:
    one = Site()
    yield one
    one.server.shutdown()
    one.server.server_close()


def test_the_page_is_made_once_and_again_when_the_store_changes(site: Site) -> None:
    assert site.ask()[0] == 200
    assert "<p>one</p>" in site.ask()[1]
    assert site.made == ["one"]
    site.stamp = "two"
    assert 'data-stamp="two"' in site.ask()[1]
    assert site.made == ["one", "two"]
    assert json.loads(site.ask("/version")[1]) == {"stamp": "two"}


def test_a_store_without_a_complete_cell_waits(site: Site) -> None:
    site.stamp = "empty"
    status, text, _ = site.ask()
    assert status == 200
    assert "store has &lt;no&gt; complete cell yet" in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_is_read_only(site: Site, method: str) -> None:
    assert site.ask(method=method)[0] == 501


@pytest.mark.parametrize("path", ["/etc/passwd", "/../../etc/passwd", "//x", "/version/"])
def test_there_is_nothing_but_the_page(site: Site, path: str) -> None:
    assert site.ask(path)[0] == 404


def test_other_names_than_this_machines_are_refused(site: Site) -> None:
    assert site.ask(Host="evil.example:80")[0] == 421
    assert site.ask(Host=f"localhost:{site.port}")[0] == 200
    headers = site.ask()[2]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"


def test_elsewhere_needs_the_flag_and_then_a_token() -> None:
    with pytest.raises(InputError, match="--allow-remote"):
        Site(host="0.0.0.0")
    site = Site(host="0.0.0.0", allow_remote=True)
    try:
        token = parse_qs(urlsplit(site.address).query)["token"][0]
        assert site.ask()[0] == 403
        assert site.ask("/?token=wrong")[0] == 403
        status, _, headers = site.ask(f"/?token={token}")
        assert status == 200
        cookie = headers["Set-Cookie"].split(";")[0]
        assert site.ask("/version", Cookie=cookie)[0] == 200
    finally:
        site.server.shutdown()
        site.server.server_close()


def test_loopback_addresses() -> None:
    assert is_loopback("::1")
    assert not is_loopback("192.168.0.1")
    assert not is_loopback("example.org")


def test_the_stamp_follows_the_cells(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    before = stamp_of([str(tmp_path)])
    (tmp_path / "cells" / "a.json").write_text("{}")
    after = stamp_of([str(tmp_path)])
    assert before != after
    assert after == stamp_of([str(tmp_path)])


def test_the_command_serves_and_says_where(tmp_path: Path) -> None:
    code = "from shiftbed.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "openclip", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split(" at ")[1].split()[0]
        connection = HTTPConnection("127.0.0.1", int(urlsplit(address).port or 0), timeout=60)
        connection.request("GET", "/")
        text = connection.getresponse().read().decode()
        connection.close()
        process.terminate()
    assert "connect-src 'self'" in text
    assert data_of(text)["sources"][0]["name"] == "openclip"


def test_a_served_page_reloads_when_there_is_more(site: Site, browser: object) -> None:
    """In a real browser: the stamp changes, the page loads itself anew, the address stays."""
    from shiftbed.page.document import waiting_page

    texts = {"first": waiting_page("first"), "second": waiting_page("second")}
    served = Served(lambda: texts[site.stamp], lambda: site.stamp)
    site.stamp = "first"
    server, address = make_server(served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()  # type: ignore[attr-defined]
    try:
        page.goto(f"{address}#view=grid")
        assert "first" in page.inner_text("main")
        site.stamp = "second"
        page.wait_for_selector("text=second", timeout=20_000)
        assert page.evaluate("location.hash") == "#view=grid"
    finally:
        page.close()
        server.shutdown()
        server.server_close()


def test_a_page_is_compressed_for_who_asks(site: Site) -> None:
    import gzip

    site.stamp = "long " * 500
    plain = site.ask()
    connection = HTTPConnection("127.0.0.1", site.port, timeout=10)
    connection.request("GET", "/", headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(body).decode() == plain[1]
    assert len(body) < len(plain[1]) / 5
    assert "Content-Encoding" not in plain[2]


def raw(site: Site, data: bytes) -> bytes:
    """What the server answers to these bytes."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := connection.recv(4096):
            found += chunk
    return found


@pytest.mark.parametrize(
    "data",
    [
        b"GET http://[ HTTP/1.0\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: [::1\r\n\r\n",
        b"GET / HTTP/9.x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 nonsense\r\n\r\n",
        b"GET / and more words HTTP/1.0\r\n\r\n",
    ],
)
def test_what_is_no_request_is_a_400(site: Site, data: bytes, capfd: object) -> None:
    assert b" 400 " in raw(site, data)
    assert site.ask()[0] == 200
    assert capfd.readouterr().err == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 70000 + b" HTTP/1.0\r\n\r\n", b" 414 "),
        (b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 200 + b"\r\n", b" 431 "),
    ],
)
def test_a_request_has_a_size(site: Site, data: bytes, status: bytes) -> None:
    assert status in raw(site, data)


def test_who_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch, capfd: object) -> None:
    from shiftbed.page import serve

    monkeypatch.setattr(serve, "SECONDS", 0.3)
    monkeypatch.setattr(serve._Handler, "timeout", 0.3)
    site = Site()
    try:
        with socket.create_connection(("127.0.0.1", site.port), timeout=20) as silent:
            assert silent.recv(1) == b""
        with socket.create_connection(("127.0.0.1", site.port), timeout=20) as slow:
            for _ in range(100):  # a byte at a time, each within its own timeout
                try:
                    slow.sendall(b"G")
                    slow.settimeout(0.05)
                    if slow.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            else:
                pytest.fail("it was never cut off")
        assert site.ask()[0] == 200
    finally:
        site.server.shutdown()
        site.server.server_close()
    assert capfd.readouterr().err == ""  # type: ignore[attr-defined]


def test_connections_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    from shiftbed.page import serve

    monkeypatch.setattr(serve, "MOST", 3)
    site = Site()
    held = [socket.create_connection(("127.0.0.1", site.port), timeout=20) for _ in range(3)]
    try:
        for one in held:
            one.sendall(b"GET / HT")
        with socket.create_connection(("127.0.0.1", site.port), timeout=20) as more:
            assert more.recv(100).startswith(b"HTTP/1.0 503")
        for one in held:
            one.sendall(b"TP/1.0\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in one.recv(100)
            one.close()
        for _ in range(200):  # as soon as their threads have ended
            with contextlib.suppress(OSError):
                if site.ask()[0] == 200:
                    break
            time.sleep(0.05)
        else:
            pytest.fail("it never answers again")
    finally:
        for one in held:
            one.close()
        site.server.shutdown()
        site.server.server_close()


def test_a_page_that_cannot_be_made_is_a_500_in_one_line(capfd: object) -> None:
    def make() -> str:
        raise OSError("disk\x1b[31m failed\n")

    server, _ = make_server(Served(make, lambda: "x"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.status == 500
        assert b"\x1b" not in answer.read()
        connection.close()
    finally:
        server.shutdown()
        server.server_close()
    assert capfd.readouterr().err == ""  # type: ignore[attr-defined]
