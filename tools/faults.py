"""Fail or kill every command that writes, at each of its calls that change a file.

    python -m tools.faults [--most 12] [--every] [--only NAME] [--fault NAME] [--json]

A small library (``faults.c``, compiled here, loaded before the C library) counts the calls that
open for writing, write, sync, rename, remove or make a folder below the command's folder, native
writers' too, and fails one of them with ENOSPC, EIO, EACCES, EROFS, EDQUOT or ESTALE, or kills the
process there. After a fault the command must end with at most one line and exit code 1 or 2 (0
where nothing is lost by it), leave no temporary file and nothing half-written; then the same
command again must end as one that was never disturbed: the same files with the same content, times
left out.

Of a command with more than ``--most`` calls so many are struck, evenly spread, each with one error
in turn and with a kill; ``--every`` strikes each call with each error and with a kill. What the
same command does in the end depends on what is on the disk alone: it is run again once for each
state of the disk (``states``), whichever strikes left it. Ctrl-C, or a request to end, and it says
what came of the strikes so far, and how many are ``left``.
"""

import argparse
import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "2")

from shiftbed.store.sealing import opened
from tests.fuzz.harness import command_in_process, make_world_in_a_child, preload

ERRORS = ("ENOSPC", "EIO", "EACCES", "EROFS", "EDQUOT", "ESTALE")
FAULTS = (*ERRORS, "kill")
SHIM = "SHIFTBED_FAULTS"
TIMES = ("wall_seconds", "seconds", "fit_seconds", "times", "started", "ended", "written")
TIMES += ("begun_at", "hardware", "sha256")
"""Keys of records that say when, how fast and after which stops, and the checksum over them."""
_NETS = "nets:resnet8?weights=first.pt nets:resnet8?weights=second.pt"


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A command that writes, and the files it reads."""

    name: str
    command: str
    needs: tuple[str, ...]


_MODEL = ("model.onnx", "model.preprocessing.json", "images.npz", "scores.csv")
WRITERS = (
    Writer(name="eval", command="eval onnx:model.onnx images.npz --store out", needs=_MODEL),
    Writer(name="run", command="run testbed.toml", needs=(*_MODEL, "testbed.toml")),
    Writer(name="train", command="train recipe.toml", needs=(*_MODEL, "recipe.toml")),
    Writer(
        name="train-net", command="train recipe.toml --grid nets", needs=(*_MODEL, "recipe.toml")
    ),
    Writer(name="store-import", command="store import out id.npz --setting val", needs=("id.npz",)),
    Writer(name="gc", command="store gc store --minimum-age 0", needs=("store",)),
    Writer(name="seal", command="store verify older --seal", needs=("older",)),
    Writer(name="scrub", command="store scrub store --rebuild", needs=("store",)),
    Writer(name="compact", command="store compact store", needs=("store",)),
    Writer(
        name="consistency",
        command="consistency store --metadata pmsets.json --metadata labels.json --setting frames "
        "--write",
        needs=("store", "pmsets.json", "labels.json"),
    ),
    Writer(name="twin", command="store twin store --setting val --subset 0,1", needs=("store",)),
    Writer(name="export", command="store export store --setting val -o out.npz", needs=("store",)),
    Writer(  # as every command writes its table
        name="fit", command="fit -t bed.parquet -s s -o out.parquet", needs=("bed.parquet",)
    ),
    Writer(name="import", command="import wide.csv -o out.parquet", needs=("wide.csv",)),
    Writer(
        name="place", command="place -t bed.parquet --model m2 -o out.csv", needs=("bed.parquet",)
    ),
    Writer(name="card", command="card m2 -t bed.parquet -o out.md", needs=("bed.parquet",)),
    Writer(name="report", command="report bed.parquet -o out.html", needs=("bed.parquet",)),
    Writer(name="plot", command="plot -t bed.parquet -s s -o out.html", needs=("bed.parquet",)),
    Writer(name="picture", command="plot -t bed.parquet -s s -o out.png", needs=("bed.parquet",)),
    Writer(
        name="captions",
        command="captions captions.csv --classes names.csv -o out --min-matches 2 --per-class 2",
        needs=("captions.csv", "names.csv"),
    ),
    Writer(
        name="corrupt",
        command="corrupt folder out --corruption contrast:1 --as-is",
        needs=("folder",),
    ),
    Writer(
        name="probe",
        command="probe onnx:model.onnx images.npz --probe phase --pairs 4 --store out",
        needs=_MODEL,
    ),
    Writer(
        name="soup",
        command=f"soup {_NETS} --how uniform -o out.pt",
        needs=("first.pt", "second.pt"),
    ),
    Writer(
        name="linear",
        command="linear nets:resnet8 images.npz --start file:first.pt --train images.npz "
        "--validation held.npz --store out --features features -o out.pt",
        needs=("first.pt", "images.npz", "held.npz"),
    ),
    Writer(
        name="difficulty",
        command="difficulty images.npz --model nets:conv8 --repeats 1 --epochs 1 -o out.csv",
        needs=("images.npz",),
    ),
    Writer(
        name="interpolate",
        command=f"interpolate {_NETS} images.npz --alphas 0,1 --store out --weights outw",
        needs=("first.pt", "second.pt", "images.npz"),
    ),
)


# --- one run in a child ----------------------------------------------------------------------


def lay_out(world: Path, place: Path, writer: Writer) -> None:
    """A folder with what the command reads, and nothing else."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for need in writer.needs:
        if (world / need).is_dir():
            shutil.copytree(world / need, place / need)
        else:
            shutil.copy(world / need, place / need)
    if writer.name == "gc":  # something to clean up
        (place / "store" / "predictions" / "stray.parquet").write_bytes(b"x")
    if writer.name == "scrub":
        part = next((place / "store" / "predictions").rglob("part-*.parquet"))
        part.write_bytes(part.read_bytes()[:-1])


def run(place: Path, writer: Writer, at: int = 0, fault: int = 0) -> dict[str, Any]:
    """The command in a child, disturbed at call ``at``: exit code, what it said, calls made."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            found = _disturbed(place, writer, at, fault)
            os.write(write, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    if not said:
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else 99
        return {"code": code, "said": "", "calls": 0}
    found: dict[str, Any] = json.loads(said)
    return found


def _disturbed(place: Path, writer: Writer, at: int, fault: int) -> dict[str, Any]:
    shim = ctypes.CDLL(os.environ[SHIM])
    shim.faults_calls.restype = ctypes.c_long
    os.setsid()
    words = place.parent / "words"
    words.mkdir(exist_ok=True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(words / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ["TMPDIR"] = str(words)
    tempfile.tempdir = None
    shim.faults_arm(str(place).encode(), ctypes.c_long(at), fault, 0)
    code, said = command_in_process(place, writer.command)
    shim.faults_disarm()
    found = {"code": code, "said": said, "calls": shim.faults_calls()}
    return found | ({} if at else {"imported": list(sys.modules)})


# --- what is there afterwards ----------------------------------------------------------------


def content(place: Path) -> dict[str, str]:
    """Every file with a digest of what it says, times left out; locks and logs are no results.

    The number of a batch of records says after how many others it was written, which a command
    that was disturbed may have to do once more; the hash of what it holds is in its name.
    """
    found = {}
    for path in sorted(place.rglob("*")):
        name = re.sub(r"/batch-\d+-", "/batch-", path.relative_to(place).as_posix())
        if path.is_dir() or path.name == ".lock":
            continue
        data = path.read_bytes()
        if path.suffix == ".json" and not path.name.startswith("batch-"):
            data = json.dumps(_timeless(json.loads(data), TIMES), sort_keys=True).encode()
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def _timeless(value: Any, times: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(one, times) for key, one in value.items() if key not in times}
    return [_timeless(one, times) for one in value] if isinstance(value, list) else value


def state(place: Path) -> str:
    """A digest of all that the next command finds: names, bytes, whether checksums are right.

    Times are left out, and what is drawn at random: which process wrote, or held a claim.
    """
    whole = hashlib.sha256()
    for path in sorted(place.rglob("*")):
        name = re.sub(r"-\d+-[0-9a-f]{8}\.part", ".part", path.relative_to(place).as_posix())
        name = re.sub(r"claims/(\.*)run%20[0-9a-f]{16}", r"claims/\1run", name)
        whole.update(f"{name}{'/' if path.is_dir() else ''}\n".encode())
        if path.is_file():
            whole.update(hashlib.sha256(_lasting(path)).digest())
    return whole.hexdigest()


def _lasting(path: Path) -> bytes:
    """What a file says but times; of a claim, what it has; of a checksum, whether it is right."""
    data = path.read_bytes()
    try:
        found = json.loads(data) if path.suffix == ".json" else None
        if not isinstance(found, dict):
            return data
        if path.parent.name == "claims":
            return json.dumps(sorted(found)).encode()
        found = _timeless(opened(data), {*TIMES} - {"sha256"})
        return json.dumps(found, sort_keys=True).encode()
    except ValueError:  # half a file, or the wrong checksum
        return data


def leftovers(place: Path) -> list[str]:
    return [path.name for path in place.rglob("*") if path.name.endswith(".part")]


# --- striking --------------------------------------------------------------------------------


def strikes(calls: int, most: int, every: bool) -> list[tuple[int, str]]:
    """Which calls are struck with what."""
    if every:
        return [(at, error) for at in range(1, calls + 1) for error in FAULTS]
    chosen = sorted({round(1 + i * (calls - 1) / max(most - 1, 1)) for i in range(most)})
    chosen = [at for at in chosen if at <= calls]
    each = [(at, ERRORS[i % len(ERRORS)]) for i, at in enumerate(chosen)]
    return [*each, *((at, "kill") for at in chosen)]


class Ending(NamedTuple):
    """What a command came to: its exit code, what it said, what is there then."""

    code: int
    said: str
    files: dict[str, str]
    left: list[str]


def ending(place: Path, found: dict[str, Any]) -> Ending:
    return Ending(found["code"], found["said"], content(place), leftovers(place))


def try_all(
    world: Path, folder: Path, writers: tuple[Writer, ...], options: argparse.Namespace
) -> dict[str, Any]:
    """Strike every command; counts of what came of it, and the cases that went wrong."""
    names = ("calls", "faults", "kills", "missed", "left", "states")
    counts = Counter(dict.fromkeys((*names, "tracebacks", "differ", "leftovers", "half"), 0))
    cases: list[str] = []
    for writer in writers:
        place = folder / "place"
        lay_out(world, place, writer)
        found = run(place, writer)
        whole, calls = ending(place, found), int(found["calls"])
        if whole.code not in (0, 1) or "unexpected" in whole.said:
            raise SystemExit(f"{writer.name} fails undisturbed: {whole.said}")
        preload(found["imported"])
        counts["calls"] += calls
        endings: dict[str, Ending] = {}
        for at, error in strikes(calls, options.most, options.every):
            if options.fault and error not in options.fault:
                continue
            if _stopped:
                counts["left"] += 1
                continue
            killed = error == "kill"
            lay_out(world, place, writer)
            found = run(place, writer, at, -1 if killed else getattr(errno, error))
            if found["code"] != -signal.SIGKILL if killed else found["calls"] < at:
                counts["missed"] += 1  # fewer calls were made this time
                continue
            counts["kills" if killed else "faults"] += 1
            first, left = ending(place, found), state(place)
            if left not in endings:
                endings[left] = ending(place, run(place, writer))
                counts["states"] += 1
            if (wrong := _wrong(whole, first, endings[left], killed)) is not None:
                counts[wrong[0]] += 1
                said = " ".join([wrong[1], *(first.said or endings[left].said).split()])[-300:]
                cases.append(f"{writer.name}, call {at} of {calls}, {error}: {wrong[0]}: {said}")
    return {"commands": len(writers), **counts, "cases": cases}


def _wrong(whole: Ending, first: Ending, again: Ending, killed: bool) -> tuple[str, str] | None:
    """What is wrong with a disturbed command and the same again, beside an undisturbed one."""
    lines = [line for line in first.said.splitlines() if line.strip()]
    bad = any(word in first.said for word in ("Traceback", "unexpected error", "panicked"))
    if not killed:
        if bad or first.code not in (0, 1, 2) or (first.code and len(lines) > 1):
            return "tracebacks", ""
        if first.left:
            return "half", first.left[0]
        if first.code == 0 and _unlike(first, whole):
            return "differ", f"at once {_unlike(first, whole)}"
    if again.left:
        return "leftovers", again.left[0]
    if again.code != whole.code or _unlike(again, whole):
        return "differ", f"code {again.code} {_unlike(again, whole)}"
    return None


def _unlike(one: Ending, other: Ending) -> str:
    names = {*one.files, *other.files}
    return " ".join(sorted(n for n in names if one.files.get(n) != other.files.get(n))[:3])


_stopped: list[int] = []
"""The signals that asked this to end."""


# --- the tool --------------------------------------------------------------------------------


def compile_shim(folder: Path) -> Path | None:
    """The library that fails calls, None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    made = folder / "faults.so"
    source = Path(__file__).with_suffix(".c")
    flags = ["-shared", "-fPIC", "-O1", "-w", "-o", str(made), str(source), "-ldl"]
    subprocess.run([compiler, *flags], check=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=12, help="calls struck of each command")
    parser.add_argument("--every", action="store_true", help="each call with each error")
    parser.add_argument("--only", action="append", help="only this command; repeatable")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this; repeatable")
    parser.add_argument("--world", type=Path, help="the good files, kept here for the next time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    if SHIM not in os.environ:  # once more, with the library loaded first
        shim = compile_shim(Path(tempfile.mkdtemp(prefix="shiftbed-faults-")))
        if shim is None:
            sys.exit("tools.faults needs a C compiler (cc)")
        again = [sys.executable, "-m", "tools.faults", *sys.argv[1:]]
        os.execve(again[0], again, os.environ | {SHIM: str(shim), "LD_PRELOAD": str(shim)})
    writers = tuple(one for one in WRITERS if options.only is None or one.name in options.only)
    folder = Path(tempfile.mkdtemp(prefix="shiftbed-faults-", dir=memory))
    try:
        preload()
        world = make_world_in_a_child(options.world or folder / "world")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: _stopped.append(number))
        found = try_all(world, folder, writers, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(Path(os.environ[SHIM]).parent, ignore_errors=True)
    cases = found.pop("cases")
    print(json.dumps(found) if options.json else "\n".join(f"{k:12s}{v}" for k, v in found.items()))
    print("".join(f"{case}\n" for case in cases), end="", file=sys.stderr)
    sys.exit(1 if cases or found["left"] else 0)


if __name__ == "__main__":
    main()
