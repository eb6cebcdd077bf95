"""Predictions into a store and out of it, as .npz and as CSV."""

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.importing.exchange import export_predictions, import_predictions
from shiftbed.store import PredictionStore

LABELS = np.array([0, 1, 2, 1])


@pytest.fixture
def store(tmp_path):
    top1 = np.array([[0, 1, 2, 2], [0, 0, 0, 0]])
    np.savez(tmp_path / "val.npz", models=["a", "b"], top1=top1, labels=LABELS)
    assert import_predictions(tmp_path / "store", [tmp_path / "val.npz"]) == 2
    return PredictionStore(tmp_path / "store")


def test_csv_goes_out_and_comes_back(store, tmp_path):
    (tmp_path / "val.csv").write_text(
        "file,class,probability,model\n1,2,0.5,c\n0,0,,c\n3,1,1.0,c\n2,1,,\n"
    )
    assert import_predictions(store, [tmp_path / "val.csv"]) == 2
    assert store.read("c", "val")["class_1"].to_list() == [0, 2, None, 1]
    assert store.read("c", "val")["prob_1"].to_list() == [None, 0.5, None, 1.0]
    assert store.read("val", "val")["class_1"].to_list() == [None, None, 1, None]
    assert export_predictions(tmp_path / "store", tmp_path / "out.csv", setting="val") == 16
    again = PredictionStore(tmp_path / "again")
    import_predictions(again, [tmp_path / "val.npz"])
    text = (tmp_path / "out.csv").read_text().splitlines()
    kept = [text[0], *(line for line in text if line.startswith("c,"))]
    (tmp_path / "kept.csv").write_text("\n".join(kept))
    import_predictions(again, [tmp_path / "kept.csv"], setting="val")
    assert again.read("c", "val").equals(store.read("c", "val"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name,class\n0,1\n", "no column 'file'"),
        ("file,class\n9,1\n", "line 2, column 'file': '9' is no example of 'val'"),
        ("file,class\n0,-1\n", "line 2, column 'class': '-1' is not a whole number"),
        ("file,class\n0,\n", "the class is missing"),
        ("file,class\n0,1\n0,1\n", "line 3, column 'file': '0' has a prediction of 'val' already"),
        ("file,class,probability\n0,1,1.5\n", "not a probability"),
        (b"file,class\n\xff,1\n", "is not UTF-8"),
    ],
)
def test_wrong_csv_is_refused_in_one_line(store, tmp_path, text, why):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "val.csv").write_bytes(data)
    with pytest.raises(InputError, match=why) as raised:
        import_predictions(store, [tmp_path / "val.csv"])
    assert "\n" not in str(raised.value)
