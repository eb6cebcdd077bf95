"""Committed figures of examples follow from the inputs that are there."""

import pytest

from examples import inputs


@pytest.mark.parametrize("name", inputs.pinned())
def test_figures_are_of_the_inputs_that_are_there(name):
    assert inputs.pinned()[name] == inputs.inputs_hash(name), (
        f"run examples/{name} again, write its figures, then python -m examples.inputs --pin {name}"
    )


def test_what_counts_as_an_input(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "HERE", tmp_path)
    place = tmp_path / "study"
    place.mkdir()
    (place / "recipe.toml").write_text("seed = [0, 1]\n")
    (place / "net.py").write_text('"""A net."""\n\nWIDTH = 3  # channels\n')
    (place / "README.md").write_text("# Study\n\nInputs: `000000000000`, today.\n")
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
