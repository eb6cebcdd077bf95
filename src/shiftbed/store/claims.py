"""Claims: who is at work on what, so that two processes do not do the same work.

    STORE/claims/NAME.0000.json       owner, host, process, time

A claim is taken by creating a file, which one of two succeeds in, and holds as long as its owner
renews it: one of a process of this machine that is dead, or that was not renewed for ``LEASE``
seconds, is taken over by creating the next number. Claims save work and protect nothing: results
are the same bytes whoever makes them.
"""

import json
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from shiftbed.errors import InputError
from shiftbed.store.files import Files
from shiftbed.store.names import encode

LEASE = 90.0
"""Seconds after which a claim that nobody renews is over."""
LOOKED = 1.0
"""Seconds for which a list of the claims holds that was asked for by request."""
TOGETHER = 32
"""Claims that are given up by one request."""


class Claims:
    """The claims of one process in a store."""

    def __init__(self, files: Files, *, lease: float = LEASE) -> None:
        self.files, self.lease = files, lease
        self.owner = secrets.token_hex(8)
        self.mine: dict[str, str] = {}
        """The files of claims that are held, by what they are for."""
        self.others = False
        """Whether claims of other processes were seen."""
        self._lock = threading.Lock()
        self._looked, self._there = -math.inf, list[str]()
        self._over: list[str] = []
        """Files of claims that were given up and are to be removed, where that is a request."""

    def take(self, name: str) -> bool:
        """Whether the claim is this process's now; False while another one holds it."""
        if name in self.mine:
            return True
        if self._take(name):
            return True
        if not self.files.by_request:
            return False
        self._looked = -math.inf  # perhaps given up since they were listed
        return self._take(name)

    def _take(self, name: str) -> bool:
        stem, there = f"claims/{encode(name)}", self._there_of(name)
        if there and not self._is_over(there[-1]):
            return False
        file = f"{stem}.{_number(there[-1]) + 1 if there else 0:04d}.json"
        if not self.files.create(file, self._said(), lasting=False):
            return False
        with self._lock:
            self.mine[name] = file
        for old in there:
            self.files.remove(old)
        return True

    def release(self, name: str, *, at_once: bool = True) -> None:
        """Give a claim up: the work is done, or will not be; not ``at_once`` if nobody waits."""
        with self._lock:
            file = self.mine.pop(name, None)
            if file is not None:
                self._over.append(file)
        if at_once or not self.files.by_request or len(self._over) >= TOGETHER:
            self._remove()

    def _remove(self) -> None:
        """Remove the files of claims that were given up."""
        with self._lock:
            over = list(self._over)
        with suppress(OSError, InputError):  # they are over with this process
            self.files.remove_many(over)
        with self._lock:
            self._over = [file for file in self._over if file not in over]
            self._there = [file for file in self._there if file not in over]

    def _there_of(self, name: str) -> list[str]:
        """The files of a claim, whoever's; all are listed anew after ``LOOKED`` seconds."""
        if not self.files.by_request or time.monotonic() - self._looked > LOOKED:
            self._there, self._looked = self.files.below("claims"), time.monotonic()
        self.others |= bool({*self._there} - {*self.mine.values(), *self._over})
        stem = f"claims/{encode(name)}"
        return [one for one in self._there if _stem(one) == stem]

    def renew(self) -> None:
        """Say that all of them are still held."""
        with self._lock:
            for file in self.mine.values():
                self.files.write(file, self._said())

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew claims in the background; at the end what is still held, or of the dead, goes."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(self.lease / 3):
                try:
                    self.renew()
                    self._remove()
                except (OSError, InputError):  # tried again; a claim that is lost costs work only
                    continue

        thread = threading.Thread(target=beat, daemon=True, name="claims")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            for name in list(self.mine):
                self.release(name)
            self._remove()
            self._sweep()

    def _sweep(self) -> None:
        """Remove what nobody holds any more: claims of killed processes."""
        with suppress(OSError, InputError):
            for file in self.files.below("claims"):
                if self._is_over(file):
                    self.files.remove(file)

    @contextmanager
    def held(self, name: str) -> Iterator[bool]:
        """Whether the claim could be taken; given up afterwards."""
        with self.kept():
            yield self.take(name)

    def _said(self) -> bytes:
        said = {"owner": self.owner, "host": socket.gethostname(), "process": os.getpid()}
        return json.dumps(said | {"time": time.time()}).encode()

    def _is_over(self, file: str) -> bool:
        data = self.files.read_if_there(file)
        try:
            said: Any = {} if data is None else json.loads(data)
            when, host, process = float(said["time"]), said["host"], int(said["process"])
        except (ValueError, KeyError, TypeError):
            return True
        if host == socket.gethostname() and not _is_alive(process):
            return True
        if said.get("owner") == self.owner and file not in self.mine.values():
            return True
        return abs(time.time() - when) > self.lease


def _stem(file: str) -> str:
    return file.removesuffix(".json").rpartition(".")[0]


def _number(file: str) -> int:
    number = file.removesuffix(".json").rpartition(".")[2]
    return int(number) if number.isdigit() else -1


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except OSError:
        return True
    return True
