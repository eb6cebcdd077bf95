"""Image towers of open_clip: probed, fine-tuned from a text-derived head, interpolated, souped."""

import contextlib

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import resolve
from shiftbed.training.networks import make_network
from tests.evaluation.models.test_clip import CONFIG

torch = pytest.importorskip("torch")
ensure_torchvision()
open_clip = pytest.importorskip("open_clip")

ARCH = "tiny-tower-for-tests"
NAMES = ["red square", "green square", "blue square"]
RECIPE = """
name = "towers"
[data.colours]
path = "train.npz"
[[test_sets]]
name = "test"
path = "test.npz"
[[grid]]
model = "open_clip:{arch}?pretrained=false&classes=names.txt"
start = "pretrained"
data = "colours"
optimiser = {{name = "AdamW", lr = 0.001}}
steps = 12
batch_size = 16
checkpoints = {{unit = "step", at = [[0, 12]]}}
seed = [0, 1]
"""


def colours(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images, one channel brighter by half."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    images = rng.integers(0, 120, (n, 32, 32, 3))
    images[np.arange(n), :, :, labels] += 120
    return images.astype(np.uint8), labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny architecture, images, class names, and a working directory."""
    place = tmp_path_factory.mktemp("towers")
    (place / f"{ARCH}.json").write_text(CONFIG)
    open_clip.add_model_config(place / f"{ARCH}.json")
    (place / "names.txt").write_text("\n".join(NAMES) + "\n")
    for name, n, seed in (("train", 96, 0), ("val", 60, 1), ("test", 60, 2)):
        images, labels = colours(n, seed)
        np.savez(place / f"{name}.npz", images=images, labels=labels)
    (place / "recipe.toml").write_text(RECIPE.format(arch=ARCH))
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(place):
        patch.setenv("SHIFTBED_CACHE", str(place / "cache"))
        yield place


@pytest.fixture(scope="module")
def line(folder):
    return f"open_clip:{ARCH}?pretrained=false&classes=names.txt"


@pytest.fixture(scope="module")
def tuned(folder):
    """Two runs from the text-derived head: their folders."""
    done = sb.train("recipe.toml")
    assert not done.failed
    return sorted(path.parent for path in folder.glob("*/*/done.json"))


def test_a_linear_probe_beats_chance(folder):
    probed = sb.linear_probe(
        f"open_clip:{ARCH}?pretrained=false", "test.npz", train="train.npz", validation="val.npz",
        penalties=[1e-6, 1e-3, 1.0], out="probed.pt",
    )  # fmt: skip
    row = probed.frame.row(0, named=True)
    assert row["value"] > 0.8
    assert row["low"] > 1 / 3
    again = resolve(f"open_clip:{ARCH}?weights=probed.pt")
    x = np.random.default_rng(0).random((3, 3, 32, 32), np.float32)
    np.testing.assert_allclose(again.logits(x), probed.model.logits(x), atol=1e-5)


def test_fine_tuning_starts_from_the_zero_shot_model(folder, line, tuned):
    x = np.random.default_rng(1).random((4, 3, 32, 32), np.float32)
    zero = resolve(line)
    start = resolve(f"run:{tuned[0]}?step=0")
    np.testing.assert_allclose(start.logits(x), zero.logits(x), atol=1e-4)
    network = make_network(line, 3, "pretrained")
    text = network.heads[0].weight.detach()
    end = resolve(f"run:{tuned[0]}?step=12")
    assert not np.allclose(end.logits(x), zero.logits(x), atol=1e-2)
    assert text.shape == (3, 16)
    new = make_network(line, 3, "pretrained", head="new", seed=1).heads[0].weight
    assert not torch.allclose(new, text)


def test_the_path_of_wise_ft_ends_at_both_models(folder, line, tuned):
    file = tuned[0] / "step-00000012.pt"
    ends = [line, f"{line.replace('pretrained=false&', '')}&weights={file}"]
    found = sb.interpolate(*ends, "test.npz", alphas=[0, 0.5, 1], weights="mixed")
    x = np.random.default_rng(2).random((5, 3, 32, 32), np.float32)
    for alpha, want in ((0, resolve(ends[0])), (1, resolve(ends[1]))):
        (name,) = [one for one in found.store.models() if one.endswith(f"@{alpha}")]
        (path,) = (folder / "mixed").glob(f"*-{alpha}.pt")
        mixed = resolve(f"open_clip:{ARCH}?weights={path}")
        np.testing.assert_array_equal(mixed.logits(x), want.logits(x))
        alone = sb.evaluate(want, "test.npz").frame["value"][0]
        assert dict(found.frame.select("alpha", "value").iter_rows())[float(alpha)] == alone, name


def test_a_soup_of_two_towers(folder, line, tuned):
    files = [path / "step-00000012.pt" for path in tuned]
    lines = [f"open_clip:{ARCH}?weights={file}" for file in files]
    made = sb.soup(lines, how="uniform", out="soup.pt")
    states = [torch.load(file, weights_only=True) for file in files]
    mean = (states[0]["head.weight"] + states[1]["head.weight"]) / 2
    torch.testing.assert_close(made.state["head.weight"], mean)
    assert resolve(f"open_clip:{ARCH}?weights=soup.pt").classes == 3


def test_a_tower_that_does_not_fit(folder):
    torch.save({"encoder.x": torch.zeros(1), "head.weight": torch.zeros(3, 16)}, "odd.pt")
    with pytest.raises(InputError, match="does not fit the architecture"):
        resolve(f"open_clip:{ARCH}?weights=odd.pt")
