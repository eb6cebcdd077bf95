"""Names come from anywhere: what they may do to a terminal, a spreadsheet and a page is nothing."""

import csv
import io
import json

import polars as pl
import pytest

import shiftbed as sb
from shiftbed.cli.output import write_table
from shiftbed.display import Table, csv_text, printable_json
from shiftbed.figures import Bars, save_static
from shiftbed.reading.tables import decode, read_delimited

from .cli.in_process import shiftbed

HOSTILE = (
    "=HYPERLINK(1)",
    "+1",
    "-1+1",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "a\x1b[2Jb",
    "a\x1b]0;title\x07b",
    "a\u202eb\u2066c",
    "a\x9b31mb",
    "a\x7f\x00b",
    "<script>alert(1)</script>",
    "[bold]a[/bold]",
    "a\nb",
)
FORBIDDEN = "\x1b\x07\x9b\x7f\x00\r\u202e\u2066\u200b"


def harmless(text):
    return not set(text) & set(FORBIDDEN)


@pytest.mark.parametrize("name", HOSTILE)
def test_tables(name):
    table = Table(title=name, columns=(name, "n"), rows=((name, "1"),), notes=(name,))
    assert harmless(table.html())
    assert "<script>" not in table.html()
    from rich.console import Console

    text = io.StringIO()
    table.print(Console(file=text, force_terminal=False, width=200))
    assert harmless(text.getvalue())


@pytest.mark.parametrize("name", HOSTILE)
def test_json_is_the_same_value(name):
    text = printable_json({"name": name})
    assert harmless(text)
    assert json.loads(text) == {"name": name}


def test_csv_executes_nothing_and_is_read_again(tmp_path):
    names = [name for name in HOSTILE if name.isprintable()]
    frame = pl.DataFrame({"model": names, "=top1": [-0.5] * len(names)})
    write_table(frame, tmp_path / "out.csv")
    text = (tmp_path / "out.csv").read_bytes()
    for row in csv.reader(io.StringIO(text.decode())):
        assert not row[0].startswith(("=", "+", "-", "@", "\t", "\r"))
    table = read_delimited("out.csv", decode("out.csv", text))
    assert table.frame["model"].to_list() == names
    assert table.frame["=top1"].to_list() == ["-0.5"] * len(names)
    assert harmless(csv_text(pl.DataFrame({"model": HOSTILE})))


def test_nothing_else_writes_csv():
    from pathlib import Path

    source = Path(sb.__file__).parent
    found = [p.name for p in source.rglob("*.py") if "csv.writer" in p.read_text()]
    found += [p.name for p in source.rglob("*.py") if ".write_csv(" in p.read_text()]
    assert found == ["display.py"]


@pytest.mark.parametrize("name", ["a\u202eb", "a\x1b[2Jb", "=1", "$x_1"])
def test_figures(tmp_path, name):
    import numpy as np

    chart = Bars(title=name, categories=(name,), series=(name,), values=np.array([[1.0]]))
    save_static(chart, tmp_path / "out.svg")
    text = (tmp_path / "out.svg").read_text()
    assert harmless(text)


@pytest.fixture(scope="module")
def testbed(tmp_path_factory):
    """A testbed with hostile names of models."""
    place = tmp_path_factory.mktemp("hostile")
    rows = [f"model-{at},{0.5 + at / 50},{0.4 + at / 50}" for at in range(12)]
    quoted = [f'"{name}",0.7{at},0.6{at}' for at, name in enumerate(HOSTILE[:5] + HOSTILE[6:13])]
    text = "model,val,v2\n" + "\n".join(rows + quoted) + "\n"
    (place / "bed.csv").write_text(text.replace("\x00", ""), newline="")
    line = ["import", "bed.csv", "-o", "bed.parquet", "--shift", "s=val:v2", "--n", "val=1000"]
    made = shiftbed(*line, "--n", "v2=1000", cwd=place)
    assert made.returncode == 0, made.stderr + made.stdout
    return place


COMMANDS = {
    "fit": ["bed.parquet"],
    "rank": ["bed.parquet"],
    "compare": ["bed.parquet"],
    "testbeds": [],
    "models": ["bed.parquet"],
    "card": ["model-3", "--testbed", "bed.parquet", "-o", "card.md"],
    "report": ["bed.parquet", "-o", "report.html"],
    "score": ["bed.parquet"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(testbed, command):
    for more in ([], ["--json"]):
        done = shiftbed(command, *COMMANDS[command], *more, cwd=testbed)
        assert harmless(done.stdout)
        assert harmless(done.stderr.replace("\n", ""))
    for file in ("report.html", "card.md"):
        if (testbed / file).is_file():
            assert harmless((testbed / file).read_text())
