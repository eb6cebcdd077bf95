"""Runs commands on spoilt files in forked children, and says what came of each.

Every input follows from the seed and its number alone. A child runs many inputs, one after the
other, in its own copy of the files; the parent kills it when one takes too long, and starts another
when one dies. Nothing but ``import`` happens before the fork: threads do not survive it.
"""

import base64
import contextlib
import functools
import hashlib
import io
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import PLACED, mutate
from tests.fuzz.targets import TARGETS, Target

MEMORY = 10 * 2**30
"""Address space of a child; a file that promises more must be refused before it is allocated."""
PLACED_SHARE = 0.06
PRELOAD = (
    "polars",
    "torch",
    "onnxruntime",
    "PIL.Image",
    "sklearn.linear_model",
    "skops.io",
    "pyarrow",
)
SINGLE = ("out.parquet", "out.csv", "out.html", "out.md", "out.npz", "out.pt", "out.svg")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input: a target's file with other content (or none), and a command."""

    file: str
    command: str
    data: bytes | None = None
    placed: str = ""

    def to_json(self) -> dict[str, str]:
        """Text where it can be."""
        about = {"file": self.file, "command": self.command}
        if self.data is None:
            return about | {"placed": self.placed}
        try:
            text = self.data.decode()
        except UnicodeDecodeError:
            return about | {"base64": base64.b64encode(self.data).decode()}
        return about | {"text": text}

    @classmethod
    def from_json(cls, about: dict[str, str]) -> "Case":
        data = about["text"].encode() if "text" in about else None
        if "base64" in about:
            data = base64.b64decode(about["base64"])
        kept = {"file": about["file"], "command": about["command"]}
        return cls(**kept, data=data, placed=about.get("placed", ""))


@dataclass
class Counts:
    """What came of all inputs."""

    inputs: int = 0
    tracebacks: int = 0
    hangs: int = 0
    aborts: int = 0
    half_written: int = 0
    refused: int = 0
    accepted: int = 0
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Signature → the first case, what was said, how often."""

    def add(self, case: Case, found: dict[str, Any]) -> None:
        self.inputs += 1
        kind = found["kind"]
        setattr(self, kind, getattr(self, kind) + 1)
        if kind in ("refused", "accepted"):
            return
        one = self.failures.setdefault(
            found["signature"], {"kind": kind, "said": found["said"], "times": 0, "case": case}
        )
        one["times"] += 1
        if case.data is not None and len(case.data) < len(one["case"].data or case.data):
            one["case"] = case

    @property
    def clean(self) -> bool:
        return not (self.tracebacks or self.hangs or self.aborts or self.half_written)


def match(world: Path, pattern: str) -> Path:
    """The file of a world that a target's pattern names: the first one."""
    found = sorted(path for path in world.glob(pattern) if path.is_file())
    if not found:
        raise FileNotFoundError(pattern)
    return found[0]


def draw(world: Path, seed: int, index: int, targets: tuple[Target, ...] = TARGETS) -> Case:
    """Input number ``index`` of a seed."""
    rng = random.Random(f"{seed}:{index}")
    target = rng.choices(targets, [one.weight for one in targets])[0]
    command = rng.choice(target.commands)
    if rng.random() < PLACED_SHARE:
        return Case(file=target.file, command=command, placed=rng.choice(sorted(PLACED)))
    path = match(world, target.file)
    suffix = path.suffix
    data = path.read_bytes()
    for _ in range(20):
        with contextlib.suppress(Exception):  # a mutation that its own library refuses
            return Case(file=target.file, command=command, data=mutate(data, suffix, rng))
    return Case(file=target.file, command=command, data=b"")


# --- in the child ----------------------------------------------------------------------------


def run_case(world: Path, scratch: Path, case: Case) -> dict[str, Any]:
    """Lay the files out, run the command in this process, say what came of it."""
    path = _lay_out(world, scratch, case)
    folder = path.parent.relative_to(scratch).as_posix()
    code, said = command_in_process(scratch, case.command.replace("{folder}", folder))
    lines = [line for line in said.splitlines() if line.strip()]
    logs = sorted((scratch / ".tmp").glob("shiftbed-*.log"))
    if logs or "unexpected error" in said or "Traceback" in said or "panicked at" in said:
        text = logs[0].read_text() if logs else said
        kind, signature = "tracebacks", _signature(text)
    elif code not in (0, 1, 2):
        kind, signature = "tracebacks", f"exit code {code}"
    elif (left := _half_written(scratch, case, code)) is not None:
        kind, signature = "half_written", f"{case.command.split()[0]} {left}"
    else:
        return {"kind": "refused" if code == 2 else "accepted", "said": "\n".join(lines[-3:])}
    return {"kind": kind, "signature": signature, "said": "\n".join(lines[-3:])[-600:]}


def _lay_out(world: Path, scratch: Path, case: Case) -> Path:
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / ".tmp").mkdir(parents=True)
    needs = {
        need
        for target in TARGETS
        if target.file == case.file and case.command in target.commands
        for need in target.needs
    }
    path = match(world, case.file).relative_to(world)
    for need in sorted(needs | {path.as_posix()}):
        source, place = world / need, scratch / need
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
    spoilt = scratch / path
    spoilt.unlink(missing_ok=True)
    if case.data is None:
        PLACED[case.placed](spoilt)
    else:
        spoilt.write_bytes(case.data)
    return spoilt


def command_in_process(scratch: Path, command: str) -> tuple[int, str]:
    """The command as the shell would run it, its exit code and what it wrote to stderr."""
    from shiftbed.cli import main

    before = os.getcwd()
    os.chdir(scratch)
    os.environ["TMPDIR"] = str(scratch / ".tmp")
    import tempfile

    tempfile.tempdir = None
    sys.argv = ["shiftbed", *command.split()]
    code = 0
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.ftruncate(number, 0)
        os.lseek(number, 0, os.SEEK_SET)
    try:
        main()
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(before)
    os.lseek(2, 0, os.SEEK_SET)
    said = os.read(2, 1 << 20).decode("utf-8", "replace")
    return code, said


def _half_written(scratch: Path, case: Case, code: int) -> str | None:
    """A temporary file that stayed, or an output of a refused command, or one that is not whole."""
    for path in scratch.rglob("*"):
        if path.name.endswith(".part"):
            return "left a temporary file"
    for name in SINGLE:
        if (scratch / name).exists() and code == 2:
            return f"refused, and wrote {name}"
    for path in (scratch / "out").rglob("*"):
        if path.is_file() and not path.is_symlink() and not _whole(path):
            return f"wrote half a {path.suffix} file"
    return None


def _whole(path: Path) -> bool:
    try:
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        elif path.suffix == ".parquet":
            data = path.read_bytes()
            return data[:4] == data[-4:] == b"PAR1"
        elif path.suffix == ".npz":
            return zipfile.is_zipfile(io.BytesIO(path.read_bytes()))
    except (ValueError, OSError):
        return False
    return True


def _signature(text: str) -> str:
    """Where in this package it came from, and what it was; the same for the same defect."""
    places = re.findall(r'File ".*?/(shiftbed/[^"]+|tests/fuzz/[^"]+)", line (\d+)', text)
    last = text.strip().splitlines()[-1] if text.strip() else ""
    if "panicked at" in text:
        last = next(line for line in text.splitlines() if "panicked at" in line)
    place = ":".join(places[-1]) if places else ""
    return f"{place} {re.sub(r'[0-9]+|/[^ ]*', '#', last)[:120]}"


def _child(world: Path, scratch: Path, commands: int, answers: int) -> None:
    """Answer cases until the parent closes the pipe."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    scratch.mkdir(parents=True, exist_ok=True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(
            scratch.parent / f"{scratch.name}.{name}", os.O_RDWR | os.O_CREAT | os.O_TRUNC
        )
        os.dup2(file, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.environ.pop("SHIFTBED_TRACEBACK", None)
    _faster()
    with os.fdopen(commands, "rb") as read, os.fdopen(answers, "wb") as write:
        for line in read:
            asked = json.loads(line)
            case = draw(world, **asked) if "seed" in asked else Case.from_json(asked)
            _note(scratch).write_text(json.dumps(case.to_json()))
            found = run_case(world, scratch, case)
            write.write(json.dumps(found).encode() + b"\n")
            write.flush()


def _faster() -> None:
    """The program is put together once, not for every command; no power will fail here."""
    import typer.main

    typer.main.get_command = functools.cache(typer.main.get_command)
    os.fsync = lambda _: None  # type: ignore[assignment]


def _note(scratch: Path) -> Path:
    """Where a child says what it is about to do, for when it does not come back."""
    return scratch.parent / f"{scratch.name}.case"


# --- in the parent ---------------------------------------------------------------------------


class Worker:
    """A child and the pipes to it."""

    def __init__(self, world: Path, scratch: Path) -> None:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        self.scratch = scratch
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.close(down_write)
                os.close(up_read)
                _child(world, scratch, down_read, up_write)
            finally:
                os._exit(0)
        os.close(down_read)
        os.close(up_write)
        self.write, self.read = os.fdopen(down_write, "wb"), os.fdopen(up_read, "rb", 0)
        self.since = self.moved = 0.0
        self.used = self.begun = 0
        self.pending = b""
        self.done = 0

    def start(self, asked: dict[str, Any]) -> None:
        self.since = self.moved = time.monotonic()
        self.used = self.begun = _ticks(self.pid)
        with contextlib.suppress(BrokenPipeError):  # dead: the other pipe says so
            self.write.write(json.dumps(asked).encode() + b"\n")
            self.write.flush()

    @property
    def case(self) -> Case:
        """What it is doing, or did last."""
        return Case.from_json(json.loads(_note(self.scratch).read_text()))

    def answer(self) -> dict[str, Any] | None:
        """What it said; None: not yet all; an abort where it died."""
        data = self.read.read(1 << 16)
        if not data:
            _, status = os.waitpid(self.pid, 0)
            said = self._said()
            why = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {status}"
            last = re.sub(r"[0-9]+", "#", said.splitlines()[-1]) if said else ""
            name = self.case.command.split()[0]
            return {"kind": "aborts", "signature": f"{name} {why} {last}"[:200], "said": said}
        self.pending += data
        if not self.pending.endswith(b"\n"):
            return None
        found: dict[str, Any] = json.loads(self.pending)
        self.pending = b""
        self.done += 1
        return found

    def _said(self) -> str:
        path = self.scratch.parent / f"{self.scratch.name}.stderr"
        return path.read_bytes()[-600:].decode("utf-8", "replace") if path.exists() else ""

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        for pipe in (self.write, self.read):
            with contextlib.suppress(OSError):
                pipe.close()


def run_all(
    asked: Iterable[dict[str, Any]], world: Path, scratch: Path, *, workers: int, patience: float
) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Every case asked for, as JSON or by seed and index, with what came of it, as they end."""
    todo = iter(asked)
    idle: list[Worker] = []
    busy: dict[int, Worker] = {}
    numbers = iter(range(10**9))
    try:
        while True:
            while len(busy) < workers and (one := next(todo, None)) is not None:
                worker = idle.pop() if idle else Worker(world, scratch / f"w{next(numbers)}")
                worker.start(one)
                busy[worker.read.fileno()] = worker
            if not busy:
                return
            ready, _, _ = select.select(list(busy), [], [], 1.0)
            for number in [n for n in busy if n in ready or _late(busy[n], patience)]:
                worker = busy[number]
                found = worker.answer() if number in ready else None
                if number in ready and found is None:
                    continue
                case = worker.case
                if found is None:
                    command, what = case.command.split()[0], case.placed or case.file
                    found = {"kind": "hangs", "signature": f"{command} {what}", "said": ""}
                del busy[number]
                if found["kind"] in ("hangs", "aborts") or worker.done >= 300:
                    worker.stop()
                    shutil.rmtree(worker.scratch, ignore_errors=True)
                else:
                    idle.append(worker)
                yield case, found
    finally:
        for worker in [*idle, *busy.values()]:
            worker.stop()


def _late(worker: Worker, patience: float) -> bool:
    """Whether it has worked, or waited without working, for too long; a busy machine is no hang."""
    now, used = time.monotonic(), _ticks(worker.pid)
    if used != worker.used:
        worker.used, worker.moved = used, now
    per_second = os.sysconf("SC_CLK_TCK")
    return now - worker.moved > patience or used - worker.begun > patience * per_second


def _ticks(pid: int) -> int:
    """The time of the processor that a process has used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return int(time.monotonic())
    return int(fields[11]) + int(fields[12])


def make_world_in_a_child(folder: Path) -> Path:
    """Good files of every format; threads that this starts end with the child."""
    if folder.is_dir():
        return folder
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import warnings

            from tests.fuzz.world import make_world

            warnings.simplefilter("ignore")
            make_world(folder)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit("the good files could not be made")
    return folder


def preload(names: Iterable[str] = (*PRELOAD, "shiftbed.cli.main")) -> None:
    """What commands import, so that children need not; nothing is run."""
    import gc
    import importlib

    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()  # so that children copy less


# --- smaller inputs --------------------------------------------------------------------------


def minimise(case: Case, signature: str, world: Path, scratch: Path, tries: int = 80) -> Case:
    """A shorter input with the same failure: pieces are left out as long as it stays."""
    if case.data is None or len(case.data) < 40:
        return case
    piece = len(case.data) // 2
    while piece >= 8 and tries > 0:
        at = 0
        while at < len(case.data or b"") and tries > 0:
            shorter = Case(
                file=case.file,
                command=case.command,
                data=(case.data or b"")[:at] + (case.data or b"")[at + piece :],
            )
            tries -= 1
            ((_, found),) = run_all([shorter.to_json()], world, scratch, workers=1, patience=60)
            if found.get("signature") == signature:
                case = shorter
            else:
                at += piece
        piece //= 2
    return case


def name_of(signature: str) -> str:
    return hashlib.sha256(signature.encode()).hexdigest()[:10]
