"""What a model's answers depend on besides its own file."""

import socket
import threading

from shiftbed.evaluation.models.dependencies import watched


def test_what_other_threads_open_meanwhile_is_not_the_models(tmp_path):
    """A store by URL keeps connections in a thread of its own, claims are renewed by another."""
    (tmp_path / "own.txt").write_text("x")
    (tmp_path / "others.txt").write_text("x")
    listening = socket.create_server(("127.0.0.1", 0))
    asked, done, stop = threading.Event(), threading.Event(), threading.Event()

    def at_work():
        asked.wait(30)
        (tmp_path / "others.txt").read_text()
        socket.create_connection(listening.getsockname()).close()
        done.set()
        stop.wait(30)

    other = threading.Thread(target=at_work)
    other.start()
    try:
        with watched("python:nothing.py:net") as found:
            asked.set()
            assert done.wait(30)
            (tmp_path / "own.txt").read_text()
        assert found == ["own.txt"]
        with watched("python:nothing.py:net") as found:
            begun = threading.Thread(target=(tmp_path / "others.txt").read_text)
            begun.start()  # by the code that is watched
            begun.join()
            socket.create_connection(listening.getsockname()).close()
        assert found == ["something from a network", "others.txt"]
    finally:
        stop.set()
        other.join()
        listening.close()
