"""The catalogue's results in a notebook; the command's contract is in tests/cli."""

import pytest

from shiftbed.errors import InputError
from shiftbed.results.catalogue import check_data, shift, shifts
from tests import trees


def test_shifts_are_a_frame_and_a_page():
    found = shifts()
    assert found.frame["task"].drop_nulls().n_unique() == 10
    assert len(found.frame.filter(found.frame["task"].is_not_null())) == 172
    assert "imagenet@imagenet-a-classes" in found._repr_html_()
    assert set(shifts(kind="consistency").frame["kind"]) == {"consistency"}
    with pytest.raises(InputError, match="did you mean 'consistency'"):
        shifts(kind="consistancy")


def test_a_shift_is_explained_with_its_published_line(imagenet):
    found = shift("imagenet-v2")
    line = imagenet.fit("imagenet-v2")
    assert f"{line.weights[0]:.3f}·x" in str(found)
    assert "Recht" in found.citation
    assert found.facts["id_twin"] == "imagenet"


def test_a_directory_is_checked(tmp_path):
    nothing = check_data(tmp_path)
    assert nothing.complete
    assert "no test set" in str(nothing)
    trees.folders(tmp_path / "imagenet-a", trees.A[:6])
    found = check_data(str(tmp_path))
    assert not found.complete
    assert found.frame["name"].to_list() == ["imagenet-a"]
    assert found.frame["expected"].to_list() == [7500]
