"""Committed figures of examples follow from the inputs that are there."""

import pytest

from examples import inputs


@pytest.mark.parametrize("name", inputs.examples())
def test_figures_are_of_the_inputs_that_are_there(name):
    assert inputs.pinned()[name] == inputs.inputs_hash(name), (
        f"run examples/{name} again, write its figures, then python -m examples.inputs --pin {name}"
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A study that imports another example's network."""
    monkeypatch.setattr(inputs, "HERE", tmp_path / "examples")
    place, other = tmp_path / "examples" / "study", tmp_path / "examples" / "nets"
    place.mkdir(parents=True)
    other.mkdir()
    (other / "small.py").write_text("DEPTH = 8\n")
    (place / "recipe.toml").write_text("seed = [0, 1]\n")
    (place / "net.py").write_text('"""A net."""\n\nWIDTH = 3  # channels\n')
    (place / "__main__.py").write_text("from examples.nets.small import DEPTH\n")
    (place / "README.md").write_text("# Study\n\nInputs: `000000000000`, today.\n")
    return place


def test_what_counts_as_an_input(place):
    assert inputs.main([]) == 1
    assert inputs.main(["--pin", "study"]) == 0
    before = inputs.inputs_hash("study")
    assert inputs.pinned() == {"study": before}
    assert "today." in (place / "README.md").read_text()
    (place / "net.py").write_text("WIDTH   = 3\n")
    (place / "recipe.toml").write_text("# twice\nseed = [ 0, 1 ]\n")
    assert inputs.inputs_hash("study") == before
    (place / "recipe.toml").write_text("seed = [0]\n")
    assert inputs.inputs_hash("study") != before
    assert inputs.main([]) == 1
    with pytest.raises(FileNotFoundError):
        inputs.inputs_hash("nothing")


def test_what_is_imported_counts_too(place):
    before = inputs.inputs_hash("study")
    (place.parent / "nets" / "small.py").write_text("DEPTH = 20\n")
    assert inputs.inputs_hash("study") != before


def test_an_example_that_names_no_inputs_is_stale(place):
    (place / "README.md").write_text("# Study\n\n92.1 %\n")
    assert inputs.pinned() == {"study": ""}
    assert inputs.main([]) == 1
    assert inputs.main(["--pin", "study"]) == 0
    assert inputs.main([]) == 0
