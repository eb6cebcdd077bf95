"""``plot``: onto axes or into a file, and options that concern neither are refused."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from shiftbed.cli.main import app
from shiftbed.errors import InputError
from shiftbed.page.document import data_of
from shiftbed.page.plot import plot
from shiftbed.results.plot import chart
from shiftbed.scales import LOGIT
from shiftbed.testbed import Testbed


def test_it_draws_onto_axes_and_returns_them(small: Testbed) -> None:
    axes = Figure().subplots()
    assert plot(small, "s", ax=axes) is axes
    assert axes.get_ylabel().startswith("ood, top-1 %")
    own = plot(small, "s", highlight=["m3"], label=0)
    assert "m3" in [text.get_text() for text in own.texts]  # type: ignore[union-attr]
    plt.close()


def test_it_writes_a_file_and_returns_its_path(small: Testbed, tmp_path: Path) -> None:
    assert plot(small, "s", output=tmp_path / "a.png", dpi=50) == tmp_path / "a.png"
    page = plot(small, "s", output=str(tmp_path / "a.html"), by="architecture")
    assert isinstance(page, Path)
    assert "vit line" in str(data_of(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"output": "a.gif"}, r"a figure is written to \.png"),
        ({"output": "a.svg", "dpi": 100}, r"dpi is for a \.png"),
        ({"dpi": 100}, r"dpi is for a \.png"),
        ({"output": "a.html", "style": "slides"}, "style is for"),
        ({"style": "slides"}, "style is for an output file"),
        ({"output": "a.png", "style": "wild"}, "unknown style 'wild'"),
        ({"output": "a.png", "ax": 1}, "not both"),
    ],
)
def test_refusals(
    small: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, refused: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=refused):
        plot(small, "s", **options)
    assert not list(tmp_path.iterdir())


def test_the_command_is_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ids = ["--id", "val", "--id", "avg_corruptions", "--ood", "imagenet-r"]
    made = CliRunner().invoke(app, ["plot", "-o", "a.html", *ids, "--threshold", "0.7"])
    assert made.output == "wrote a.html\n"
    relative = ["plot", "--chart", "relative", "--scale", "nonsense", "--by", "nope", "-o", "b.png"]
    with pytest.raises(InputError, match="relative chart takes no option"):
        app(relative, standalone_mode=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_what_is_drawn_changes_no_fit(imagenet: Testbed, tmp_path: Path) -> None:
    whole: Any = chart(imagenet, "scatter", "imagenet-v2")
    some: Any = chart(imagenet, "scatter", "imagenet-v2", only="kind=standard", xlim=(0.6, 0.8))
    assert some.equations == whole.equations
    assert set(some.group) == {"standard"}
    assert ((some.x >= 0.6) & (some.x <= 0.8)).all()
    assert (some.x_axis.low, some.x_axis.high) == pytest.approx(LOGIT.forward([0.6, 0.8]))
    assert any("beyond the limits of the axes: not drawn" in note for note in some.notes)
    at = {name: i for i, name in enumerate(whole.models)}
    rows = [at[name] for name in some.models]
    np.testing.assert_array_equal(some.q_value, whole.q_value[rows])
    two: Any = chart(imagenet, "scatter", "imagenet-v2", models=["resnet50", "vgg16"])
    assert set(two.models) == {"resnet50", "vgg16"}
    with pytest.raises(InputError, match="xlim must be two accuracies"):
        chart(imagenet, "scatter", "imagenet-v2", xlim=(0.8, 0.6))
    path = plot(imagenet, "imagenet-v2", others=["openclip"], output=tmp_path / "a.png", dpi=30)
    assert isinstance(path, Path)
    assert path.exists()


def test_a_chart_says_why_its_line_is_not_trusted(imagenet: Testbed) -> None:
    made: Any = chart(imagenet, "scatter", "ytbb")
    notes = made.notes
    assert any("is not trusted: ID accuracies range over" in note for note in notes)
    assert any("class twin val-on-ytbb-robust-classes" in note for note in notes)
