"""The program: its commands, how errors leave it, and nothing slow at import."""

import os
import sys
from typing import NoReturn

import typer
from typer import Option

from shiftbed.cli import (
    catalogue,
    corrupt,
    imports,
    lines,
    pages,
    predictions,
    probes,
    running,
    studies,
    training,
    weights,
)
from shiftbed.errors import InputError, lacking

app = typer.Typer(
    name="shiftbed",
    help="Is an image classifier robust to distribution shift, or merely accurate?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(catalogue.testbeds, name="testbeds")
app.add_typer(imports.store, name="store")
app.add_typer(catalogue.shifts, name="shifts")
app.add_typer(catalogue.data, name="data")
app.command("place")(lines.place)
app.command("fit")(lines.fit)
app.command("rank")(lines.rank)
app.command("compare")(lines.compare)
app.command("groups")(lines.groups)
app.command("correlate")(lines.correlate)
app.command("similarity")(predictions.similarity)
app.command("estimate")(predictions.estimate)
app.command("mix")(predictions.mix)
app.command("predictiveness")(studies.predictiveness)
app.command("predictors")(studies.predictors)
app.command("factors")(studies.factors)
app.command("patterns")(studies.patterns)
app.command("effects")(studies.effects)
app.command("plan")(lines.plan)
app.command("plot")(pages.plot)
app.command("report")(pages.report)
app.command("serve")(pages.serve)
app.command("card")(pages.card)
app.command("import")(imports.import_)
app.command("reproduce")(catalogue.reproduce)
app.command("eval")(running.eval_)
app.command("run")(running.run)
app.command("score")(running.score)
app.command("train")(training.train)
app.command("difficulty")(training.difficulty)
app.command("transfer")(training.transfer)
app.command("interpolate")(weights.interpolate)
app.command("soup")(weights.soup)
app.command("linear")(weights.linear)
app.command("probe")(probes.probe)
app.command("consistency")(predictions.consistency)
app.command("captions")(imports.captions)
app.command("corrupt")(corrupt.corrupt)
app.command("mce")(corrupt.mce)


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
    try:
        app()
    except InputError as error:
        _refuse(error)
    except ImportError as error:
        named = [word for word in sys.argv[1:2] if not word.startswith("-")]
        missing = lacking(error, " ".join(["shiftbed", *named]))
        if missing is None:
            raise
        _refuse(missing)
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _refuse(error: InputError) -> NoReturn:
    print(f"shiftbed: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)
