"""Image classifiers of transformers, built from configurations."""

import json

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import resolve
from shiftbed.evaluation.models.from_hf import preprocessing_of

from .photographs import photograph

torch = pytest.importorskip("torch")
ensure_torchvision()
transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

X = np.random.default_rng(0).random((3, 3, 32, 32), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        num_labels=4,
        id2label=dict(enumerate(["cat", "dog", "owl", "fox"])),
    )
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(place)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(place)
    return place


def test_a_folder(folder):
    model = resolve(f"hf:{folder}")
    assert model.class_names == ("cat", "dog", "owl", "fox")
    assert model.id.startswith(f"hf:{folder.name}?weights=")
    network = transformers.ViTForImageClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        expected = network(pixel_values=(torch.from_numpy(X) - 0.5) / 0.5).logits.numpy()
    assert np.allclose(model.logits(X), expected, atol=1e-5)
    described = model.describe()
    assert described["architecture"] == "ViTForImageClassification"
    assert list(described["weights"]) == ["model.safetensors"]


def test_from_the_photograph_on(folder):
    """The same logits as processor and model of the library give for a real photograph."""
    model, photo = resolve(f"hf:{folder}"), photograph("china")
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    network = transformers.ViTForImageClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        theirs = network(**processor(images=photo, return_tensors="pt")).logits.numpy()
    ours = model.logits(model.preprocessing.pixels(photo).transpose(2, 0, 1)[None])
    assert np.allclose(ours, theirs, atol=1e-4)


def test_weights_drawn_from_a_seed(folder):
    model = resolve(f"hf:{folder}?pretrained=false&seed=4")
    config = transformers.ViTConfig.from_pretrained(folder)
    torch.manual_seed(4)
    network = transformers.AutoModelForImageClassification.from_config(config).eval()
    with torch.inference_mode():
        expected = network(pixel_values=(torch.from_numpy(X) - 0.5) / 0.5).logits.numpy()
    assert np.allclose(model.logits(X), expected, atol=1e-5)


PROCESSORS = [
    ("ViT", {}),
    ("ConvNext", {"size": {"shortest_edge": 224}}),
    ("ConvNext", {"size": {"shortest_edge": 384}}),
    ("MobileNetV2", {}),
    ("EfficientNet", {}),
    ("EfficientNet", {"rescale_offset": True, "rescale_factor": 1 / 127.5}),
    ("Levit", {}),
    ("PoolFormer", {}),
    ("MobileViT", {}),
    ("Beit", {}),
    ("DeiT", {}),
    ("Bit", {}),
    ("Siglip", {}),
]


@pytest.mark.parametrize(("kind", "settings"), PROCESSORS)
@pytest.mark.parametrize("name", ["china", "flower"])
def test_as_the_processors_do(kind, settings, name):
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
    photo = photograph(name)
    theirs = np.asarray(processor(images=photo, return_tensors="np")["pixel_values"][0])
    p = preprocessing_of(processor.to_dict())
    ours = ((p.pixels(photo) / 255 - np.array(p.mean)) / np.array(p.std)).transpose(2, 0, 1)
    assert ours.shape == theirs.shape
    difference = np.abs(ours - theirs) * np.array(p.std)[:, None, None]
    assert difference.max() <= 1 / 255 + 1e-6
    assert difference.mean() < 1e-4


def test_preprocessing_that_cannot_be_expressed_is_refused(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    place = tmp_path / "preprocessor_config.json"
    settings = json.loads(place.read_text())
    place.write_text(json.dumps({**settings, "do_resize": False}))
    with pytest.raises(InputError, match="does not resize"):
        resolve(f"hf:{tmp_path}")
    perceiver = {**settings, "image_processor_type": "PerceiverImageProcessor"}
    perceiver |= {"do_center_crop": True, "crop_size": {"height": 24, "width": 24}}
    place.write_text(json.dumps(perceiver))
    with pytest.raises(InputError, match="cannot be taken over: it makes"):
        resolve(f"hf:{tmp_path}")
    changes = {"size": 32, "mean": 0.5, "std": 0.5}
    assert resolve(f"hf:{tmp_path}", preprocessing=changes).preprocessing.size == (32, 32)
    place.unlink()
    with pytest.raises(InputError, match="give preprocessing with size, mean and std"):
        resolve(f"hf:{tmp_path}")


def test_folders_that_are_no_models(tmp_path, folder):
    with pytest.raises(InputError, match=r"no config\.json"):
        resolve(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="transformers cannot load it"):
        resolve(f"hf:{tmp_path}")
    with pytest.raises(InputError, match="takes no weights"):
        resolve(f"hf:{folder}", weights=tmp_path / "config.json")
    with pytest.raises(InputError, match="has 4 classes, not 5"):
        resolve(f"hf:{folder}", classes=5)
