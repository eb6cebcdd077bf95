"""Tables 2 and 3 of andreassen2021, with and without published predictions."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.papers import Cell, reproduce

SHARED = Path(__file__).resolve().parents[3] / "shared" / "predictions"
CIFAR10 = SHARED / "cifar10_predictions_30models.npz"
IMAGENET = SHARED / "imagenetv2_67models_imagenet-validation-original.npz"


def cells_of(*predictions: Path) -> dict[tuple[str, str, str], Cell]:
    cells = reproduce("andreassen2021", predictions=predictions).cells
    return {(cell.table, cell.row, cell.column): cell for cell in cells}


def test_the_imagenet_figures_need_no_files() -> None:
    cells = cells_of()
    for scale in ("linear", "probit", "logit"):
        assert cells["Table 2", scale, "ImageNet"].status == "equal"
        assert "--predictions" in cells["Table 2", scale, "CIFAR-10"].why
    for letter in "AB":
        cell = cells["Table 3", "ImageNet/ImageNetV2", letter]
        assert (cell.status, cell.why) == ("equal", "201 models")
    assert Counter(cell.status for cell in cells.values()) == {
        "equal": 6,
        "differs": 1,
        "not recomputable": 18,
    }


def test_fine_tuned_models_cannot_be_recomputed() -> None:
    cell = cells_of()["Section 5.5 (text)", "resnet18", "ImageNet accuracy, fine-tuned with replay"]
    assert cell.status == "not recomputable"
    assert "fine-tuned models" in cell.why


def test_a_cifar10_line_from_predictions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, size=(2, 1000), dtype=np.uint8)
    wrong = rng.random((2, 5, 1000)) < np.linspace(0.05, 0.4, 5)[:, None] * [[[1.0]], [[1.6]]]
    original, v6 = (labels[:, None] + wrong) % 10
    path = tmp_path / "cifar10.npz"
    np.savez(
        path,
        models=np.array(list("abcde")),
        original=original,
        v6=v6,
        labels_original=labels[0],
        labels_v6=labels[1],
    )
    x, y = (np.log((1 - w) / w) for w in wrong.mean(axis=2))
    slope, intercept = np.polyfit(x, y, 1)
    cells = cells_of(path)
    assert cells["Table 3", "CIFAR-10/10.1", "A"].recomputed == pytest.approx(slope)
    assert cells["Table 3", "CIFAR-10/10.1", "B"].recomputed == pytest.approx(intercept)
    r2 = cells["Table 2", "logit", "CIFAR-10"].recomputed
    assert r2 == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)


def test_hard_images_from_predictions(tmp_path: Path) -> None:
    labels = np.zeros(50_000, dtype=np.int16)
    top1 = np.ones((3, 50_000), dtype=np.int16)
    top1[0, :40_000] = 0
    top1[1, 35_000:47_630] = 0
    path = tmp_path / "imagenet.npz"
    np.savez(path, models=np.array(["a", "b", "c"]), top1=top1, labels=labels)
    row = "ImageNet images no testbed model gets right"
    cell = cells_of(path)["Section 5.4 (text)", row, "share (%)"]
    assert cell.recomputed == pytest.approx(4.74)
    assert cell.why == "2,370 of 50,000 images, 3 models"


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        cells_of(tmp_path / "absent.npz")
    text = tmp_path / "text.npz"
    text.write_text("not an archive")
    with pytest.raises(InputError, match="cannot be read"):
        cells_of(text)
    array = tmp_path / "array.npy"
    np.save(array, np.zeros(3))
    with pytest.raises(InputError, match="cannot be read"):
        cells_of(array)
    small = tmp_path / "small.npz"
    np.savez(small, models=np.array(["a"]), top1=np.zeros((1, 10)), labels=np.zeros(10))
    with pytest.raises(InputError, match="50,000 ImageNet validation images"):
        cells_of(small)


@pytest.mark.skipif(not CIFAR10.exists(), reason="published CIFAR-10 predictions are not here")
def test_the_30_public_cifar10_models() -> None:
    cells = cells_of(CIFAR10)
    slope, intercept = (cells["Table 3", "CIFAR-10/10.1", letter] for letter in "AB")
    assert slope.recomputed == pytest.approx(0.8393, abs=5e-5)
    assert intercept.recomputed == pytest.approx(-0.4715, abs=5e-5)
    assert slope.status == "differs"
    assert "scikit-learn" in slope.why


@pytest.mark.skipif(not IMAGENET.exists(), reason="published ImageNet predictions are not here")
def test_the_67_imagenet_models() -> None:
    cells = cells_of(IMAGENET)
    row = "ImageNet images no testbed model gets right"
    cell = cells["Section 5.4 (text)", row, "share (%)"]
    assert (cell.status, cell.why) == ("equal", "2,384 of 50,000 images, 67 models")
