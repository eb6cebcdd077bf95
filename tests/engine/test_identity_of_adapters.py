"""Whatever is loaded is changed under its name: new answers or a refusal, never the old ones.

Each adapter of models and each format of test sets writes two versions of the same name. The same
call is made with both, in one process and (slow) as a command in processes of their own.
"""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import shiftbed as sb
from shiftbed.engine.identity import identity
from shiftbed.engine.plan import ModelSpec
from shiftbed.evaluation.models.registry import name_of
from shiftbed.store import PredictionStore

torch = pytest.importorskip("torch")
RGB = "&size=8&mean=0,0,0&std=1,1,1&crop=none"


def pixels(version=0, n=24):
    return np.random.default_rng(version).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)


LABELS = np.arange(24) % 4


class Flat(torch.nn.Sequential):
    """A network of this file."""

    def __init__(self, version):
        torch.manual_seed(version)
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(192, 4))


def plain_network(version):
    torch.manual_seed(version)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).eval()


def timm_weights(version):
    import timm

    torch.manual_seed(version)
    network = timm.create_model("test_resnet", num_classes=4)
    torch.save(network.state_dict(), "timm.pt")
    return "timm:test_resnet?weights=timm.pt&num_classes=4&size=32"


def own_network(version):
    torch.save(plain_network(version).state_dict(), "own.pt")
    with open("own_net.py", "w") as file:
        file.write(
            "import torch\n\n\nclass Net(torch.nn.Sequential):\n    def __init__(self):\n"
            "        super().__init__(torch.nn.Flatten(), torch.nn.Linear(192, 4))\n"
        )
    return f"torch:own.pt?arch=python:own_net.py:Net{RGB}"


def python_weights(version):
    own_network(version)
    return f"python:own_net.py:Net?weights=own.pt{RGB}"


def exported(version):
    example = (torch.zeros(2, 3, 8, 8),)
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(plain_network(version), example, dynamic_shapes=shapes)
    torch.export.save(program, "program.pt2")
    return "torch:program.pt2?mean=0,0,0&std=1,1,1&crop=none"


def exported_side_car(version):
    exported(0)
    size = {"size": [8, 8], "crop": "none", "mean": [version] * 3, "std": [1, 1, 1]}
    with open("program.preprocessing.json", "w") as file:
        json.dump(size, file)
    return "torch:program.pt2"


def onnx_external(version):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(version).normal(size=(192, 4)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["f"]),
            helper.make_node("MatMul", ["f", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with_data = {"save_as_external_data": True, "location": "tensors", "size_threshold": 0}
    Path("tensors").unlink(missing_ok=True)
    onnx.save(model, "net.onnx", **with_data)
    return "onnx:net.onnx?mean=0,0,0&std=1,1,1&crop=none"


def sklearn_file(version):
    skops = pytest.importorskip("skops.io")
    from sklearn.linear_model import LogisticRegression

    kept = Path(f"estimator{version}")  # the format has times in it
    if not kept.is_file():
        fitted = LogisticRegression().fit(pixels(version).reshape(24, -1) / 255, LABELS)
        kept.write_bytes(skops.dumps(fitted))
    Path("estimator.skops").write_bytes(kept.read_bytes())
    return f"sklearn:estimator.skops?{RGB[1:]}"


def python_source(version):
    with open("by_source.py", "w") as file:
        file.write(
            f"import numpy as np\nW = np.random.default_rng({version}).normal(size=(192, 4))\n\n\n"
            "def answers(x):\n    return x.reshape(len(x), -1) @ W\n"
        )
    return f"python:by_source.py:answers?{RGB[1:]}"


def python_module(version):
    """A module by its name, which a process imports once."""
    python_source(version)
    with open("by_source.py") as source, open("by_module_name.py", "w") as file:
        file.write(source.read())
    return f"python:by_module_name:answers?{RGB[1:]}"


def python_imported(version):
    with open("deeper_part.py", "w") as file:
        file.write(f"SEED = {version}\n")
    with open("imports_it.py", "w") as file:
        file.write(
            "import numpy as np\nfrom deeper_part import SEED\n\n"
            "W = np.random.default_rng(SEED).normal(size=(192, 4))\n\n\n"
            "def answers(x):\n    return x.reshape(len(x), -1) @ W\n"
        )
    return f"python:imports_it:answers?{RGB[1:]}"


def python_declared(version):
    np.save("matrix.npy", np.random.default_rng(version).normal(size=(192, 4)))
    with open("declares.py", "w") as file:
        file.write(
            "import numpy as np\n\n\n"
            "def answers(x):\n    return x.reshape(len(x), -1) @ np.load('matrix.npy')\n"
        )
    return f"python:declares.py:answers?{RGB[1:]}"


def python_undeclared(version):
    np.save("matrix.npy", np.random.default_rng(version).normal(size=(192, 4)))
    with open("hides.py", "w") as file:
        file.write(
            "import numpy as np\n\n\n"
            "def answers(x):\n    return x.reshape(len(x), -1) @ np.load('mat' + 'rix.npy')\n"
        )
    return f"python:hides.py:answers?num_classes=4{RGB}"


def nets_weights(version):
    from shiftbed.training.networks import build

    torch.manual_seed(version)
    torch.save(build("resnet8", 4, 3).state_dict(), "nets.pt")
    return "nets:resnet8?weights=nets.pt"


def hf_folder(version):
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "image_size": 32, "patch_size": 8, "num_labels": 4}
    config = transformers.ViTConfig(**sizes)
    torch.manual_seed(version)
    transformers.ViTForImageClassification(config).save_pretrained("vit")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained("vit")
    return "hf:vit"


def open_clip_file(version):
    open_clip = pytest.importorskip("open_clip")
    text = {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    vision = {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16}
    with open("tiny-identity.json", "w") as file:
        json.dump({"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}, file)
    open_clip.add_model_config("tiny-identity.json")
    torch.manual_seed(version)
    network = open_clip.create_model("tiny-identity", pretrained_text=False)
    torch.save(network.state_dict(), "clip.pt")
    with open("names.txt", "w") as file:
        file.write("cat\ndog\nowl\nfox\n")
    return "open_clip:tiny-identity?weights=clip.pt&classes=names.txt"


def open_clip_prompts(version):
    open_clip_file(0)
    with open("prompts.txt", "w") as file:
        file.write(["a photo of a {}.\n", "a {} in the dark.\n"][version])
    return "open_clip:tiny-identity?weights=clip.pt&classes=names.txt&templates=prompts.txt"


def a_function(version):
    weight = np.random.default_rng(version).normal(size=(192, 4))
    function = lambda x: x.reshape(len(x), -1) @ weight  # noqa: E731
    return sb.model(function, name="function", size=8, crop="none")


def a_module(version):
    return sb.model(plain_network(version), name="module", size=8, crop="none")


def a_module_of_ones_own(version):
    return sb.model(Flat(version), name="own-module", size=8, crop="none")


def an_estimator(version):
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression().fit(pixels(version).reshape(24, -1) / 255, LABELS)
    return sb.model(fitted, name="estimator", size=8, crop="none", std=(1.0, 1.0, 1.0))


def a_mix_of_weights(version):
    """A soup, of checkpoints that are overwritten."""
    for at in range(2):
        torch.save(plain_network(2 * version + at).state_dict(), f"soup{at}.pt")
    states = [torch.load(f"soup{at}.pt", weights_only=True) for at in range(2)]
    torch.save({k: (states[0][k] + states[1][k]) / 2 for k in states[0]}, "own.pt")
    own_network_source()
    return f"torch:own.pt?arch=python:own_net.py:Net{RGB}"


def own_network_source():
    before = torch.load("own.pt", weights_only=True)
    own_network(0)
    torch.save(before, "own.pt")


TEXTS = (
    *(timm_weights, own_network, python_weights, exported, exported_side_car, onnx_external),
    *(sklearn_file, python_source, python_module, python_imported, python_declared),
    *(python_undeclared, nets_weights, hf_folder, open_clip_file, open_clip_prompts),
    a_mix_of_weights,
)
OBJECTS = (a_function, a_module, a_module_of_ones_own, an_estimator)
ASKED = ("python_undeclared", "a_function", "a_module_of_ones_own")
STARTED_AGAIN = ("python_module", "python_imported")


@pytest.fixture
def here(tmp_path, monkeypatch):
    from shiftbed.evaluation.compat import ensure_torchvision

    ensure_torchvision()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("by_module_name", "imports_it", "deeper_part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from shiftbed.evaluation.models import from_python

    monkeypatch.setattr(from_python, "_sources", {})
    np.savez("val.npz", images=pixels(9), labels=LABELS)
    return tmp_path


def answers(model, store, test_set="val.npz", **options):
    """The logits that are in the store after the call, in order."""
    options |= {"keep_logits": True, "backend": "torch" if model_is_torch(model) else "auto"}
    options |= {"labels": {"labels": "model"}, "store": store}
    found = sb.evaluate(model, test_set, **options)
    kept = PredictionStore(store) if isinstance(store, str) else store
    return np.stack(kept.read(found.models[0], found.settings[0].id)["logits"].to_list())


def model_is_torch(model):
    return isinstance(model, str) and model.startswith(("timm", "torch", "nets", "hf", "open_clip"))


@pytest.mark.parametrize("adapter", [*TEXTS, *OBJECTS], ids=lambda one: one.__name__)
def test_in_one_process(here, adapter):
    name = adapter.__name__
    old = answers(adapter(0), "store")
    doubtful = name in ASKED
    if doubtful:
        (record,) = PredictionStore("store").cells()
        assert record["identity_unknown"]
        with pytest.raises(sb.InputError, match="cannot be known") as refused:
            answers(adapter(0), "store")
        assert "\n" not in str(refused.value)
        assert np.array_equal(answers(adapter(0), "store", same=True), old)
    else:
        assert np.array_equal(answers(adapter(0), "store"), old)  # found again
    changed = adapter(1)
    if name in STARTED_AGAIN:
        with pytest.raises(sb.InputError, match=r"another model|has changed since"):
            answers(changed, "store")
        with pytest.raises(sb.InputError, match="has changed since"):
            answers(changed, "store", fresh=True)
        with pytest.raises(sb.InputError, match="has changed since"):
            answers(changed, "other")
        return
    with pytest.raises(sb.InputError, match=r"another model|cannot be known"):
        answers(changed, "store")
    new = answers(changed, "other")
    assert not np.allclose(new, old)
    assert np.array_equal(answers(changed, "store", fresh=True), new)
    if not doubtful:
        assert np.array_equal(answers(changed, "store"), new)
        with pytest.raises(sb.InputError, match="another model"):
            answers(adapter(0), "store", same=True)  # known not to be the same


def test_one_of_fresh_and_same(here):
    with pytest.raises(sb.InputError, match="one of fresh and same"):
        answers(a_module(0), "store", fresh=True, same=True)


def test_a_model_that_cannot_be_opened_costs_nothing(here):
    line = timm_weights(0)
    old = answers(line, "store")
    with open("timm.pt", "wb") as file:
        file.write(b"damaged")
    with pytest.raises(sb.InputError):
        answers(line, "store", fresh=True)
    timm_weights(0)
    assert np.array_equal(answers(line, "store"), old)


MOVED = [timm_weights, own_network, python_weights, onnx_external, sklearn_file, nets_weights]
MOVED += [hf_folder, open_clip_file]


def absolute(line, folder):
    """A line with the files of a folder by their whole paths."""
    names = {path.name for path in folder.iterdir() if path.name in line.replace(":", "=")}
    for name in sorted(names):
        line = re.sub(rf"(?<=[:=]){re.escape(name)}(?=[?&:]|$)", f"{folder}/{name}", line)
    return line


@pytest.mark.parametrize("adapter", MOVED, ids=lambda one: one.__name__)
def test_folders_are_no_part_of_it_and_in_no_record(here, adapter, tmp_path_factory):
    """Absolute paths: base names are kept; moved, it is the same; another of that name is not."""
    line = absolute(adapter(0), here)
    assert str(here) in line
    store = tmp_path_factory.mktemp("kept") / "store"
    old = answers(line, str(store))
    kept = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert all(str(here) not in str(path.relative_to(store)) for path in kept)
    assert [path.name for path, data in kept.items() if str(here).encode() in data] == []
    moved = tmp_path_factory.mktemp("moved") / "there"
    shutil.copytree(here, moved)
    assert np.array_equal(answers(line.replace(str(here), str(moved)), str(store)), old)
    with contextlib.chdir(moved.parent):  # and by a relative path, under the name it has
        relative = ModelSpec.of_line(line.replace(str(here), "there"), name_of(line))
        assert np.array_equal(answers(relative, str(store), "there/val.npz"), old)
    assert len(PredictionStore(str(store)).cells()) == 1
    adapter(1)
    with pytest.raises(sb.InputError, match="another model"):
        answers(line, str(store))


def test_what_an_earlier_version_kept_with_its_folders_is_found(here):
    """A cell of the name and identity that a line with whole paths had."""
    line = absolute(nets_weights(0), here)
    model = ModelSpec.of_line(line)
    old = answers(line, "store")
    store = PredictionStore("store")
    (record,) = store.cells()
    assert record["identity"] == identity(model, {})
    store.write_cell(
        model.name, record["setting"], record | {"identity": identity(model, {}, folders=True)}
    )
    assert np.array_equal(answers(line, "store"), old)


def command(line, *more, test_set="val.npz"):
    """The same command in a process of its own."""
    code = "from shiftbed.cli import main; main()"
    given = ["eval", line, test_set, "--store", "store", "--labels", "model", "--json"]
    return subprocess.run(
        [sys.executable, "-c", code, *given, *more], capture_output=True, text=True, check=False
    )


OWN_PROCESS = [one for one in TEXTS if not one.__name__.startswith("open_clip")]


@pytest.mark.slow
@pytest.mark.parametrize("adapter", OWN_PROCESS, ids=lambda one: one.__name__)
def test_in_a_new_process(here, adapter):
    line = adapter(0)
    first = command(line)
    assert first.returncode == 0, first.stderr
    assert adapter(1) == line
    second = command(line)
    assert second.returncode == 2, "the old answers were returned"
    assert second.stderr.count("\n") == 1
    assert "--fresh" in second.stderr
    third = command(line, "--fresh")
    assert third.returncode == 0, third.stderr
    assert command(line, "--same").returncode == 0


def test_the_command_asks_and_is_answered(here):
    """What ``python:`` loads without naming it, in processes of their own."""
    line = python_undeclared(0)
    assert command(line).returncode == 0
    asked = command(line)
    assert asked.returncode == 2
    assert asked.stderr.count("\n") == 1
    assert "loads matrix.npy, which its source does not name" in asked.stderr
    assert "--same" in asked.stderr
    assert "--fresh" in asked.stderr
    assert command(line, "--same").returncode == 0


# --- test sets -----------------------------------------------------------------------------------


def png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "png")
    return buffer.getvalue()


def as_npz(version):
    np.savez("set.npz", images=pixels(version), labels=LABELS)
    return "set.npz"


def as_npz_prefix(version):
    np.savez("sets.npz", faint_images=pixels(version), faint_labels=LABELS)
    return "sets.npz:faint"


def as_folder(version):
    for at, image in enumerate(pixels(version)):
        file = Path("folder", f"class{LABELS[at]}", f"{at}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(image))
    return "folder"


def as_manifest(version):
    as_folder(version)
    rows = [f"folder/class{LABELS[at]}/{at}.png,{LABELS[at]}" for at in range(24)]
    with open("list.csv", "w") as file:
        file.write("path,label\n" + "\n".join(rows) + "\n")
    return "list.csv"


def as_tars(version):
    for shard in range(2):
        with tarfile.open(f"shard-{shard}.tar", "w") as tar:
            for at in range(12 * shard, 12 * shard + 12):
                image = pixels(version)[at]
                for name, data in ((f"{at}.png", png(image)), (f"{at}.cls", b"%d" % LABELS[at])):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return "shard-{0..1}.tar"


def as_parquet(version):
    import polars as pl

    images = [
        {"bytes": png(image), "path": f"{at}.png"} for at, image in enumerate(pixels(version))
    ]
    pl.DataFrame({"image": images, "label": LABELS}).write_parquet("set.parquet")
    return "set.parquet"


def as_hf_folder(version):
    datasets = pytest.importorskip("datasets")
    import shutil

    datasets.disable_progress_bars()
    images = [Image.fromarray(one) for one in pixels(version)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    made = datasets.Dataset.from_dict(
        {"image": images, "label": LABELS.tolist()}, features=features
    )
    shutil.rmtree("saved", ignore_errors=True)
    made.save_to_disk("saved")
    return "saved"


SETS = (as_npz, as_npz_prefix, as_folder, as_manifest, as_tars, as_parquet, as_hf_folder)


@pytest.mark.parametrize("form", SETS, ids=lambda one: one.__name__)
def test_sets_in_one_process(here, form):
    model = a_module(0)
    old = answers(model, "store", form(0))
    assert np.array_equal(answers(model, "store", form(0)), old)
    path = form(1)
    with pytest.raises(sb.InputError, match="other examples or labels"):
        answers(model, "store", path)
    new = answers(model, "other", path)
    assert not np.allclose(new, old)
    expected = answers(model, PredictionStore(None), sb.TestSet(pixels(1), LABELS, name="direct"))
    order = np.lexsort(new.T), np.lexsort(expected.T)
    assert np.allclose(new[order[0]], expected[order[1]], atol=1e-5)


def test_one_picture_more_in_a_folder(here):
    model = a_module(0)
    path = as_folder(0)
    assert len(answers(model, "store", path)) == 24
    (here / "folder/class0/new.png").write_bytes(png(pixels(5)[0]))
    assert len(answers(model, "other", path)) == 25
