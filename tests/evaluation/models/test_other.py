"""ONNX graphs, scikit-learn estimators and plain functions."""

import json
import pickle
import textwrap

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.models import FunctionModel, TorchModel, resolve
from shiftbed.evaluation.preprocessing import Preprocessing

rng = np.random.default_rng(0)
X = rng.random((5, 3, 8, 8), np.float32)


# ONNX


def save_onnx(file, *, batch="batch", layout="NCHW", dtype="FLOAT", size=8, classes=4):
    """A linear classifier as an ONNX graph; its weights."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    weights = np.random.default_rng(1).normal(size=(3 * size * size, classes)).astype(np.float32)
    shape = [batch, 3, size, size] if layout == "NCHW" else [batch, size, size, 3]
    nodes, last = [], "image"
    if dtype != "FLOAT":
        nodes.append(helper.make_node("Cast", [last], ["floats"], to=kinds.FLOAT))
        last = "floats"
    nodes.append(helper.make_node("Flatten", [last], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "weights"], ["logits"]))
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("image", getattr(kinds, dtype), shape)],
        [helper.make_tensor_value_info("logits", kinds.FLOAT, [batch, classes])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), file)
    return weights


def test_an_onnx_graph(tmp_path):
    file = tmp_path / "net.onnx"
    weights = save_onnx(file)
    with pytest.raises(InputError, match="does not say its preprocessing"):
        resolve(f"onnx:{file}")
    model = resolve(f"onnx:{file}?mean=0.5&std=0.25")
    assert (model.classes, model.preprocessing.size, model.differentiable) == (4, (8, 8), False)
    expected = ((X - 0.5) / 0.25).reshape(5, -1) @ weights
    assert np.allclose(model.logits(X), expected, atol=1e-4)
    (tmp_path / "net.preprocessing.json").write_text(
        json.dumps({"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bicubic"})
    )
    beside = resolve(f"onnx:{file}")
    assert beside.preprocessing.interpolation == "bicubic"
    assert np.allclose(beside.logits(X), expected, atol=1e-4)
    digest = beside.describe()["weights"]["sha256"]
    assert beside.id == f"onnx:net.onnx@{digest[:12]}"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("batch", ["batch", 1, 2, 8])
def test_onnx_layouts_and_fixed_batches(tmp_path, layout, batch):
    file = tmp_path / "net.onnx"
    weights = save_onnx(file, layout=layout, batch=batch)
    model = resolve(f"onnx:{file}?mean=0&std=1")
    arranged = X if layout == "NCHW" else X.transpose(0, 2, 3, 1)
    assert np.allclose(model.logits(X), arranged.reshape(5, -1) @ weights, atol=1e-4)


def test_onnx_of_bytes_needs_no_statistics(tmp_path):
    file = tmp_path / "net.onnx"
    weights = save_onnx(file, dtype="UINT8")
    pixels = rng.integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    found = resolve(f"onnx:{file}").logits(pixels)
    expected = pixels.reshape(5, -1).astype(np.float32) @ weights
    assert np.allclose(found, expected, rtol=1e-4, atol=0.05)


def test_files_that_are_no_graphs(tmp_path):
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    with pytest.raises(InputError, match="onnxruntime cannot open it"):
        resolve(f"onnx:{tmp_path / 'no.onnx'}")
    save_onnx(tmp_path / "net.onnx")
    with pytest.raises(InputError, match="does not take an image"):
        resolve(f"onnx:{tmp_path / 'net.onnx'}?mean=0&std=1&size=9")
    with pytest.raises(InputError, match="precision is an option of torch models"):
        resolve(f"onnx:{tmp_path / 'net.onnx'}?mean=0&std=1", precision="bfloat16")
    with pytest.raises(InputError, match="no CUDAExecutionProvider"):
        resolve(f"onnx:{tmp_path / 'net.onnx'}?mean=0&std=1", device="cuda")


# scikit-learn

LINE = "?size=8&mode=L&std=0.0625"


@pytest.fixture(scope="module")
def digits():
    datasets = pytest.importorskip("sklearn.datasets")
    data = datasets.load_digits()
    pixels = (data.images / 16).astype(np.float32)[:, None]
    return data.data, data.target, pixels


def estimators():
    try:
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression, RidgeClassifier
        from sklearn.neighbors import KNeighborsClassifier
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import LinearSVC
    except ImportError:
        return []
    return [
        LogisticRegression(max_iter=20, tol=1.0),
        make_pipeline(StandardScaler(), RidgeClassifier()),
        LinearSVC(tol=10.0),
        KNeighborsClassifier(3),
        RandomForestClassifier(5, random_state=0),
        MLPClassifier((8,), max_iter=2, random_state=0),
    ]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", estimators(), ids=lambda e: type(e).__name__)
def test_estimators(digits, tmp_path, estimator):
    skops = pytest.importorskip("skops.io")
    data, target, pixels = digits
    estimator.fit(data[:900], target[:900])
    file = tmp_path / "digits.skops"
    skops.dump(estimator, file)
    others = [t for t in skops.get_untrusted_types(file=file) if t.startswith("sklearn.")]
    model = resolve(f"sklearn:{file}{LINE}", trusted=others)
    found = model.logits(pixels[900:])
    assert found.shape == (897, 10)
    assert np.isfinite(found).all()
    assert np.array_equal(found.argmax(axis=1), estimator.predict(data[900:]))
    if callable(getattr(estimator, "predict_proba", None)):
        assert np.allclose(np.exp(found), estimator.predict_proba(data[900:]), atol=1e-6)


def test_two_classes_labels_and_names(digits, tmp_path):
    skops = pytest.importorskip("skops.io")
    from sklearn.linear_model import RidgeClassifier

    data, target, pixels = digits
    two = (target == 3) | (target == 7)
    ridge = RidgeClassifier().fit(data[two], target[two])
    skops.dump(ridge, tmp_path / "two.skops")
    model = resolve(f"sklearn:{tmp_path / 'two.skops'}{LINE}", classes=10)
    found = model.logits(pixels[two])
    assert model.classes == 10
    assert np.array_equal(found.argmax(axis=1), ridge.predict(data[two]))
    margin = ridge.decision_function(data[two])
    assert np.allclose(found[:, 7] - found[:, 3], margin, atol=1e-4)
    named = RidgeClassifier().fit(data[two], np.where(target[two] == 3, "three", "seven"))
    skops.dump(named, tmp_path / "named.skops")
    model = resolve(f"sklearn:{tmp_path / 'named.skops'}{LINE}")
    assert model.class_names == ("seven", "three")
    answers = np.array(model.class_names)[model.logits(pixels[two]).argmax(axis=1)]
    assert np.array_equal(answers, named.predict(data[two]))
    with pytest.raises(InputError, match="takes 64 features, but"):
        resolve(f"sklearn:{tmp_path / 'named.skops'}?size=9&mode=L&std=1")
    with pytest.raises(InputError, match="does not say its preprocessing"):
        resolve(f"sklearn:{tmp_path / 'named.skops'}")


class Evil:
    def __reduce__(self):
        return print, ("run",)


def test_what_is_no_estimator_is_refused(tmp_path, capsys):
    skops = pytest.importorskip("skops.io")
    from sklearn.preprocessing import FunctionTransformer

    for name in ("model.pkl", "model.joblib", "model.pickle"):
        (tmp_path / name).write_bytes(pickle.dumps(Evil()))
        with pytest.raises(InputError, match="pickles run whatever they contain"):
            resolve(f"sklearn:{tmp_path / name}{LINE}")
    (tmp_path / "pickle.skops").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match="not a skops file"):
        resolve(f"sklearn:{tmp_path / 'pickle.skops'}{LINE}")
    skops.dump(FunctionTransformer(save_onnx), tmp_path / "hostile.skops")
    with pytest.raises(InputError, match=r"types that are not trusted: .*save_onnx"):
        resolve(f"sklearn:{tmp_path / 'hostile.skops'}{LINE}")
    skops.dump(FunctionTransformer(), tmp_path / "no.skops")
    with pytest.raises(InputError, match="neither predict_proba nor decision_function"):
        resolve(f"sklearn:{tmp_path / 'no.skops'}{LINE}")
    assert "run" not in capsys.readouterr().out


# Functions

CODE = """
    import numpy as np

    def colours(pixels):
        return pixels.mean(axis=(2, 3))

    colours.preprocessing = {"size": (8, 8), "interpolation": "box"}
    colours.class_names = ("red", "green", "blue")

    def plain(pixels):
        return np.stack([pixels.max(axis=(1, 2, 3)), pixels.min(axis=(1, 2, 3))], axis=1)

    def vector(pixels):
        return pixels.mean(axis=(1, 2, 3))

    def network():
        import torch
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
        net.preprocessing = {"size": (8, 8)}
        return net

    number = 3
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(textwrap.dedent(CODE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_functions(code):
    model = resolve("python:my_nets:colours")
    assert isinstance(model, FunctionModel)
    assert model.preprocessing.interpolation == "box"
    assert model.class_names == ("red", "green", "blue")
    assert np.allclose(model.logits(X), X.mean(axis=(2, 3)))
    assert model.describe()["code"]["file"] == "my_nets.py"
    by_file = resolve(f"python:{code / 'my_nets.py'}:colours")
    assert by_file.id == "python:my_nets.py:colours"
    plain = resolve("python:my_nets:plain?size=8&std=0.5")
    assert plain.classes == 2
    assert np.allclose(plain.logits(X)[:, 0], X.max(axis=(1, 2, 3)) / 0.5)
    assert plain.id == "python:my_nets:plain?size=8&std=0.5,0.5,0.5"


def test_factories(code):
    pytest.importorskip("torch")
    model = resolve("python:my_nets:network()")
    assert isinstance(model, TorchModel)
    assert model.logits(X).shape == (5, 2)
    with pytest.raises(InputError, match="does not take an image of shape"):
        resolve("python:my_nets:network()?size=9")


def test_what_are_no_functions(code):
    with pytest.raises(InputError, match="does not say its image size"):
        resolve("python:my_nets:plain")
    with pytest.raises(InputError, match="not a function but int"):
        resolve("python:my_nets:number?size=8")
    with pytest.raises(InputError, match=r"must return \(N, classes\) logits, got \(1,\)"):
        resolve("python:my_nets:vector?size=8")
    with pytest.raises(InputError, match="unknown name in my_nets 'colour'"):
        resolve("python:my_nets:colour")


def ready() -> FunctionModel:
    return FunctionModel(
        id="mine",
        classes=3,
        preprocessing=Preprocessing(size=(8, 8)),
        function=lambda x: x[:, :, 0, 0],
    )


def test_a_finished_model_is_taken_as_it_is():
    assert resolve(f"python:{__name__}:ready()").id == "mine"
