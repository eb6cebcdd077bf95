"""Zero-shot models of open_clip: random weights, the real tokenizer."""

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import from_open_clip, resolve

torch = pytest.importorskip("torch")
ensure_torchvision()
open_clip = pytest.importorskip("open_clip")

ARCH = "tiny-for-tests"
NAMES = ["tabby cat", "golden retriever", "pot of flowers"]
TEMPLATES = ["a photo of a {}.", "a sketch of a {}."]
CONFIG = """{"embed_dim": 16,
 "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
 "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}}"""
X = np.random.default_rng(0).random((4, 3, 32, 32), np.float32)


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """A tiny architecture beside open_clip's own, and an empty cache."""
    (tmp_path / f"{ARCH}.json").write_text(CONFIG)
    open_clip.add_model_config(tmp_path / f"{ARCH}.json")
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "cache"))
    return tmp_path


def zero_shot(**options):
    return resolve(f"open_clip:{ARCH}?pretrained=false", classes=NAMES, **options)


def test_logits_are_scaled_cosines():
    model = zero_shot(templates=TEMPLATES)
    torch.manual_seed(0)
    network = open_clip.create_model(ARCH, pretrained_text=False).eval()
    tokenizer = open_clip.get_tokenizer(ARCH)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in open_clip_statistics())
    with torch.inference_mode():
        image = network.encode_image((torch.from_numpy(X) - mean) / std)
        image = image / image.norm(dim=1, keepdim=True)
        columns = []
        for name in NAMES:
            text = network.encode_text(tokenizer([t.format(name) for t in TEMPLATES]))
            text = (text / text.norm(dim=1, keepdim=True)).mean(dim=0)
            columns.append(text / text.norm())
        expected = network.logit_scale.exp() * image @ torch.stack(columns).T
    assert np.allclose(model.logits(X), expected.numpy(), atol=1e-4)
    assert model.class_names == tuple(NAMES)
    assert model.differentiable


def open_clip_statistics():
    return open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD


def test_text_features_are_computed_once(small, monkeypatch):
    calls = []
    compute = from_open_clip.text_features
    monkeypatch.setattr(from_open_clip, "text_features", lambda *a: calls.append(1) or compute(*a))
    first, second = zero_shot(), zero_shot()
    assert len(calls) == 1
    assert np.array_equal(first.logits(X), second.logits(X))
    assert first.id == second.id
    other = zero_shot(templates=TEMPLATES)
    assert len(calls) == 2
    assert other.id != first.id  # the prompts are part of what a zero-shot model is
    assert len(list((small / "cache/text-features").glob("*.npy"))) == 2


def test_weights_from_a_file(small):
    torch.manual_seed(9)
    network = open_clip.create_model(ARCH, pretrained_text=False)
    torch.save(network.state_dict(), small / "clip.pt")
    model = resolve(f"open_clip:{ARCH}", weights=small / "clip.pt", classes=NAMES)
    assert "weights=clip.pt@" in model.id
    seeded = resolve(f"open_clip:{ARCH}?pretrained=false&seed=9", classes=NAMES)
    assert np.allclose(model.logits(X), seeded.logits(X), atol=1e-5)
    assert resolve(f"torch:{small / 'clip.pt'}?arch=open_clip:{ARCH}", classes=NAMES).id == model.id


def test_names_and_templates_from_files(small):
    (small / "names.txt").write_text("\n".join(NAMES) + "\n")
    (small / "templates.json").write_text('["a photo of a {}.", "a sketch of a {}."]')
    listed = zero_shot(templates=TEMPLATES)
    line = f"open_clip:{ARCH}?pretrained=false&classes={small / 'names.txt'}"
    assert resolve(f"{line}&templates={small / 'templates.json'}").id == listed.id
    (small / "templates.json").write_text('{"a": 1}')
    with pytest.raises(InputError, match="must be a JSON list"):
        zero_shot(templates=small / "templates.json")
    (small / "names.txt").write_text("cat\n\ndog\n")
    with pytest.raises(InputError, match="none of them empty"):
        resolve(line)


@pytest.mark.parametrize("bad", ["a photo", "{} and {}", "{0}", "{name}", "a {} {"])
def test_templates_have_one_place(bad):
    with pytest.raises(InputError, match=r"must have \{\} once"):
        zero_shot(templates=[bad])


def test_class_names_are_needed():
    with pytest.raises(InputError, match="needs the names of the classes"):
        resolve(f"open_clip:{ARCH}?pretrained=false")
    with pytest.raises(InputError, match="needs the names of the classes"):
        resolve(f"open_clip:{ARCH}?pretrained=false", classes=3)


def test_the_tokenizer_cuts_long_names_and_knows_others():
    model = resolve(f"open_clip:{ARCH}?pretrained=false", classes=["ünïcode 🐈", "very " * 200])
    assert np.isfinite(model.logits(X)).all()


@pytest.mark.slow
def test_a_published_architecture():
    model = resolve("open_clip:RN50?pretrained=false", classes=NAMES)
    assert model.preprocessing.size == (224, 224)
    assert model.logits(np.zeros((1, 3, 224, 224), np.float32)).shape == (1, 3)
