"""What a model loads is changed under its name: new answers or a refusal, never the old ones."""

import subprocess
import sys

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.engine.identity import identity
from shiftbed.engine.plan import ModelSpec
from shiftbed.evaluation.models.dependencies import code_files, dependencies
from shiftbed.store import PredictionStore

CODE = """
import numpy as np
import torch
from parts.head import SIGN

SIZE = {"size": (8, 8), "mode": "L", "crop": "none"}

def plain(pixels):
    return SIGN * pixels.reshape(len(pixels), -1)[:, :4]

plain.preprocessing = SIZE

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, 4))

    preprocessing = SIZE
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (80, 8, 8), dtype=np.uint8)
    np.savez("val.npz", images=pixels, labels=pixels.reshape(80, -1)[:, :4].argmax(axis=1))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "head.py").write_text("from .deeper import SIGN\n")
    (tmp_path / "parts" / "deeper.py").write_text("SIGN = 1\n")
    (tmp_path / "mynet.py").write_text(CODE)
    return tmp_path


def evaluate(spec):
    """The same command in a process of its own: its accuracies, or what it refuses with."""
    code = "from shiftbed.cli import main; main()"
    line = ["eval", spec, "val.npz", "--store", "store", "--json"]
    return subprocess.run(
        [sys.executable, "-c", code, *line], capture_output=True, text=True, check=False
    )


def never_the_old(spec, change):
    first = evaluate(spec)
    assert first.returncode == 0, first.stderr
    again = evaluate(spec)
    assert again.returncode == 0, again.stderr
    change()
    second = evaluate(spec)
    assert second.returncode != 0, "the old answers were returned"
    assert "another model" in second.stderr + second.stdout
    assert "Traceback" not in second.stderr


def test_the_source_of_code(here):
    def change():
        (here / "mynet.py").write_text(CODE.replace("return SIGN", "return -SIGN"))

    never_the_old("python:mynet:plain", change)


def test_a_module_that_the_source_imports(here):
    never_the_old(
        "python:mynet.py:plain", lambda: (here / "parts" / "deeper.py").write_text("SIGN = -1\n")
    )


def test_files_that_code_depends_on_are_found_without_running_it(here):
    (here / "mynet.py").write_text(CODE + "\nraise RuntimeError('imported')\n")
    names = {path.name for path in code_files("mynet:plain")}
    assert names == {"mynet.py", "__init__.py", "head.py", "deeper.py"}
    assert set(dependencies("python:mynet.py:Net?seed=1")) == {
        "mynet.py",
        "parts/__init__.py",
        "head.py",
        "deeper.py",
    }
    assert dependencies("timm:resnet18?pretrained=false") == {}


@pytest.mark.parametrize(
    "spec",
    [
        "python:mynet:Net?weights=net.pt",
        "torch:net.pt?arch=python:mynet:Net",
        "timm:test_resnet?weights=net.pt&num_classes=4&size=32&mean=0.5,0.5,0.5&std=0.5,0.5,0.5",
    ],
)
def test_weights(here, spec):
    def parts(given):
        prefix, _, rest = given.partition(":")
        name, _, query = rest.partition("?")
        return identity(ModelSpec(name="m", source=f"{prefix}:{name}?{query}", options={}), {})

    (here / "net.pt").write_bytes(b"one")
    one = parts(spec)
    assert parts(spec) == one
    (here / "net.pt").write_bytes(b"two")
    assert parts(spec) != one
    (here / "net.pt").write_bytes(b"one")
    assert parts(spec) == one


def test_external_data_of_onnx(here):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((64, 4), np.float32), "w")
    node = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        node,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [weight],
    )
    model = helper.make_model(graph)
    onnx.save(model, "net.onnx", save_as_external_data=True, location="tensors", size_threshold=0)
    line = "onnx:net.onnx?size=8&mode=L&mean=0&std=1"
    found = dependencies(line)
    assert set(found) == {"tensors"}
    (here / "tensors").write_bytes((2 * np.ones((64, 4), np.float32)).tobytes())
    assert dependencies(line) != found


def test_stores_of_earlier_versions_go_on(here):
    (here / "mynet.py").rename("earlier_net.py")
    spec = "python:earlier_net:plain"
    sb.evaluate(spec, "val.npz", store="store")
    store = PredictionStore("store")
    (record,) = store.cells()
    model = ModelSpec(name=record["model"], source=spec, options={})
    older = {k: v for k, v in record.items() if k not in ("depends_on", "model", "setting")}
    older["identity"] = identity(model, record["options"], whole=False)
    store.write_cell(record["model"], record["setting"], older)
    assert sb.evaluate(spec, "val.npz", store="store").frame["value"][0] is not None


def test_a_module_changed_within_one_process_is_refused(here, monkeypatch):
    (here / "changing_net.py").write_text(CODE)
    sb.evaluate("python:changing_net:plain", "val.npz")
    (here / "changing_net.py").write_text(CODE.replace("return SIGN", "return -SIGN"))
    with pytest.raises(sb.InputError, match=r"changing_net\.py has changed since"):
        sb.evaluate("python:changing_net:plain", "val.npz")
