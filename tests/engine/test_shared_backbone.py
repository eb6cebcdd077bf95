"""Heads on one backbone: evaluated together, the same predictions to the last bit as one by one."""

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from shiftbed.engine import shared_backbone
from shiftbed.engine.evaluate import evaluate, run
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models import heads, model, resolve
from shiftbed.evaluation.models.heads import with_head

ARCH = "timm:resnet10t?pretrained=false&size=32&num_classes=7"
IMAGES = 150


@pytest.fixture(autouse=True)
def fresh():
    """Nothing is kept from another test."""
    shared_backbone.forget()


@pytest.fixture
def passes(monkeypatch):
    """How many images went through a backbone, and how many through whole networks."""
    seen = {"backbone": 0, "whole": 0}
    features, logits = heads.Split.features, heads.TorchModel.logits

    def counted(self, pixels):
        seen["backbone"] += len(pixels)
        return features(self, pixels)

    def whole(self, pixels, **given):
        seen["whole"] += len(pixels)
        return logits(self, pixels, **given)

    monkeypatch.setattr(heads.Split, "features", counted)
    monkeypatch.setattr(heads.TorchModel, "logits", whole)
    return seen


@pytest.fixture(scope="module")
def images():
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
    return TestSet(pixels, np.arange(IMAGES) % 7, name="noise")


def drawn(k, width=512):
    found = []
    for seed in range(k):
        torch.manual_seed(seed)
        found.append(nn.Linear(width, 7))
    return found


def logits(found, name):
    return [found.store.read(name, one.id) for one in found.settings]


def together_and_alone(models, images, **options):
    """Frames of all predictions, evaluated together and one by one."""
    given = {"keep_logits": True, "backend": "torch", "batch_size": 32, **options}
    both = evaluate(models, images, **given)
    alone = [evaluate([one], images, **given) for one in models]
    return [
        (logits(both, one.id), logits(own, one.id)) for one, own in zip(models, alone, strict=True)
    ]


def assert_same(pairs):
    for ours, theirs in pairs:
        assert ours
        for one, other in zip(ours, theirs, strict=True):
            assert one.equals(other)  # float32 logits and all


def test_heads_answer_as_one_by_one_to_the_last_bit(images, passes):
    network = resolve(ARCH)
    models = [with_head(network, head, name=f"head-{i}") for i, head in enumerate(drawn(5))]
    assert_same(together_and_alone(models, images, corruptions=["fog:3", "gaussian_noise:2"]))


def test_the_same_on_onnxruntime(images, passes):
    pytest.importorskip("onnxruntime")
    network = resolve(ARCH)
    models = [with_head(network, head, name=f"head-{i}") for i, head in enumerate(drawn(2))]
    assert_same(together_and_alone(models, images, backend="onnxruntime"))
    assert passes["backbone"] == 2  # two images of noise, to see where the head begins


def test_the_backbone_runs_once(images, passes):
    network = resolve(ARCH)
    models = [with_head(network, head, name=f"head-{i}") for i, head in enumerate(drawn(6))]
    passes.update(backbone=0, whole=0)
    evaluate(models, images, corruptions=["fog:3"])
    assert passes["backbone"] == 2 * IMAGES
    assert passes["whole"] == 0


def test_copies_of_one_backbone_are_found(images, passes):
    """Networks of one's own, each with all its weights: they differ in the head alone."""
    network = resolve(ARCH).module.network
    models = []
    for i, head in enumerate(drawn(4)):
        network.fc = head
        models.append(model(network, name=f"copy-{i}", size=32, mean=(0.5,) * 3, std=(0.2,) * 3))
    passes.update(backbone=0, whole=0)
    found = evaluate(models, images, backend="torch", keep_logits=True)
    assert passes["backbone"] == IMAGES
    assert passes["whole"] <= 2 * len(models)  # one empty image each, to be sure
    alone = [evaluate([one], images, backend="torch", keep_logits=True) for one in models]
    assert_same(
        [(logits(found, m.id), logits(own, m.id)) for m, own in zip(models, alone, strict=True)]
    )


def test_other_backbones_stay_apart(images, passes):
    models = [
        with_head(resolve(f"{ARCH}&seed={seed}"), head, name=f"head-{seed}")
        for seed, head in enumerate(drawn(2))
    ]
    passes.update(backbone=0, whole=0)
    evaluate(models, images, backend="torch")
    assert passes == {"backbone": 0, "whole": 2 * IMAGES}


class Scaled(nn.Module):
    """The same weights, but more than its last layer: what it does is in no setting."""

    def __init__(self, scale):
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Flatten(), nn.Linear(3072, 16)), nn.Linear(16, 7)
        self.kept = [torch.tensor(scale)]

    def forward(self, x):
        return self.fc(torch.relu(self.body(x))) * self.kept[0]


def test_code_that_differs_is_noticed(images):
    torch.manual_seed(0)
    first = Scaled(1.0)
    second = Scaled(3.0)
    second.load_state_dict(first.state_dict())
    given = {"size": 32, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    models = [model(one, name=f"m{i}", **given) for i, one in enumerate((first, second))]
    assert_same(together_and_alone(models, images))
    one, other = (evaluate([m], images, keep_logits=True, backend="torch") for m in models)
    columns = [c for c in logits(one, "m0")[0].columns if c.startswith("logit")]
    a, b = logits(one, "m0")[0], logits(other, "m1")[0]
    assert not a.select(columns).equals(b.select(columns))


def test_attacks_go_the_long_way(images, passes):
    network = resolve(ARCH)
    models = [with_head(network, head, name=f"head-{i}") for i, head in enumerate(drawn(2))]
    given = {"attacks": ["pgd-linf:2/255"], "attack_options": {"steps": 2}, "share": 0.1}
    assert_same(together_and_alone(models, images, **given))


def test_files_in_a_testbed(tmp_path, images):
    """``run``: the same store, whether models come together or one after the other."""
    network = resolve(ARCH).module.network
    np.savez(tmp_path / "noise.npz", images=images_of(images), labels=images.labels)
    names = []
    for i, head in enumerate(drawn(3)):
        network.fc = head
        torch.save(network.state_dict(), tmp_path / f"{i}.pt")
        line = f"torch:{i}.pt?arch={ARCH.replace('?', '&')}"
        names.append(f"[[models]]\nid = '{line}'\nname = 'm{i}'\n")
    head = "[[test_sets]]\nname = 'noise'\npath = 'noise.npz'\n"
    head += "[defaults]\nkeep_logits = true\nbackend = 'torch'\n"
    stores = []
    for place, parts in (("all", [names]), ("each", [[one] for one in names])):
        for some in parts:
            path = tmp_path / "bed.toml"
            path.write_text(f"store = '{place}'\n{head}{''.join(some)}")
            found = run(path)
            assert not found.failed
        stores.append(found.store)
    for i in range(3):
        both = [store.read(f"m{i}", "noise") for store in stores]
        assert both[0].equals(both[1])


def images_of(test_set):
    return np.stack([np.asarray(test_set.load(i)) for i in range(len(test_set))])


def test_unreadable_images_are_left_out_of_all(tmp_path):
    """A part with a hole: the same rows, and the hole is noted for every head."""
    from PIL import Image

    for i in range(6):
        path = tmp_path / "set" / str(i % 2) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (i * 40, 10, 10)).save(path)
    (tmp_path / "set" / "0" / "2.png").write_bytes(b"no image")
    network = resolve(ARCH)
    models = [with_head(network, head, name=f"head-{i}") for i, head in enumerate(drawn(2))]
    pairs = together_and_alone(models, str(tmp_path / "set"))
    assert_same(pairs)
    for ours, _ in pairs:
        assert ours[0].filter(pl.col("class_1").is_null()).height == 1
