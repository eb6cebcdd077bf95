"""The program: its commands, how errors leave it, and nothing slow at import."""

import gc
import os
import signal
import sys
import tempfile
import traceback
from typing import Any, NoReturn

import typer
from typer import Option

from shiftbed.atomic import DISK_ERRORS
from shiftbed.cli import (
    catalogue,
    imports,
    lines,
    pages,
    probes,
    running,
    studies,
    training,
)
from shiftbed.cli.commands import Command, Commands
from shiftbed.errors import InputError, Unreachable, WriteError, brief, lacking, plain
from shiftbed.foreign_code import CodeRefused
from shiftbed.places import known_url

app = typer.Typer(
    name="shiftbed",
    cls=Commands,
    help="Is an image classifier robust to distribution shift, or merely accurate?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(catalogue.testbeds, name="testbeds")
app.add_typer(imports.store, name="store")
app.add_typer(catalogue.shifts, name="shifts")
app.add_typer(catalogue.data, name="data")
COMMANDS: tuple[tuple[Any, str], ...] = (
    *((lines, name) for name in ("place", "fit", "rank", "compare", "groups", "correlate")),
    *((studies, name) for name in ("similarity", "estimate", "mix", "predictiveness")),
    *((studies, name) for name in ("predictors", "factors", "patterns", "effects")),
    *((lines, "plan"), (pages, "plot"), (pages, "report"), (pages, "serve"), (pages, "card")),
    *((imports, "import_"), (catalogue, "reproduce")),
    *((running, name) for name in ("eval_", "run", "score")),
    *((training, "train"), (training, "difficulty"), (studies, "trajectories")),
    *((studies, "transfer"), (training, "interpolate"), (training, "soup"), (training, "linear")),
    *((probes, "probe"), (studies, "consistency"), (imports, "captions")),
    *((running, "corrupt"), (studies, "mce")),
)
"""In the order of ``--help``; the underscore of ``eval_`` and ``import_`` is Python's."""
for module, key in COMMANDS:
    command, name = getattr(module, key), key.rstrip("_")
    if isinstance(command, Command):
        Commands.lazy[name] = command
        app.command(name, help=command.doc)(lambda: None)
    else:
        app.command(name)(command)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from shiftbed import __version__

        print(f"shiftbed {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 done with failures, 2 bad input."""
    gc.set_threshold(10_000, 10, 10)  # torch makes a million objects, all of which stay
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        _run()
    except _Stopped as stopped:
        _end(stopped)


def _run() -> None:
    try:
        for word in sys.argv[1:]:
            known_url(word.partition("=")[2] if word.startswith("--") else word)
        try:
            app()
        except CodeRefused as error:
            _ask(error)
            app(_allowing_code(sys.argv[1:]))
    except InputError as error:
        _refuse(error)
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if _stops:  # native code made another error of it
            raise _stops[0] from None
        missing = isinstance(error, ImportError) and lacking(error, _called())
        if missing:
            _refuse(missing)
        if "SHIFTBED_TRACEBACK" in os.environ:
            raise
        _give_up(error)


def _called() -> str:
    """The command as it was called, without what it was given."""
    return " ".join(["shiftbed", *(word for word in sys.argv[1:2] if not word.startswith("-"))])


def _ask(refused: CodeRefused) -> None:
    """On a terminal, whether the command may execute what files name; else it is refused."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        named = plain(str(refused)).rpartition(": pass ")[0]
        print(f"shiftbed: {named}", file=sys.stderr)
        print("Allow this command to execute it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise refused


def _allowing_code(arguments: list[str]) -> list[str]:
    """The same command with the option that allows it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:at], "--allow-code", *arguments[at:]]


class _Stopped(SystemExit):
    """Ctrl-C or a request to end."""


_stops: list[_Stopped] = []


def _stop(number: int, _: object) -> NoReturn:
    _stops.append(_Stopped(128 + number))
    raise _stops[-1]


def _end(stopped: _Stopped) -> NoReturn:
    print("shiftbed: stopped; what is written is whole", file=sys.stderr)
    sys.exit(stopped.code)


def _give_up(error: Exception) -> NoReturn:
    """The last resort: one line, and where the rest is."""
    if isinstance(error, WriteError | Unreachable):
        print(f"shiftbed: {' '.join(plain(str(error)).split())}", file=sys.stderr)
        sys.exit(1)
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        where = f"{error.filename}: " if error.filename else ""
        print(f"shiftbed: {plain(where)}{error.strerror}", file=sys.stderr)
        sys.exit(1)
    said = f"{type(error).__name__}: {brief(error)}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="shiftbed-", suffix=".log", delete=False
        ) as log:
            traceback.print_exception(error, file=log)
        said += f"; details, to report it, are in {log.name}"
    except OSError:
        pass
    print(f"shiftbed: unexpected error: {plain(said)}", file=sys.stderr)
    sys.exit(1)


def _refuse(error: InputError) -> NoReturn:
    print(f"shiftbed: {' '.join(plain(str(error)).split())}", file=sys.stderr)
    sys.exit(2)
