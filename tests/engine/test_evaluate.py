"""Models on test sets, as a notebook calls it: objects or texts, memory or a store."""

import contextlib
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image

import shiftbed as sb
from shiftbed.errors import InputError
from tests.training import own_weights as own

torch = pytest.importorskip("torch")


def net(seed: int = 0) -> "torch.nn.Module":
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8), rng.integers(0, 4, 40)


@pytest.fixture
def val(images):
    return sb.TestSet(*images, name="val")


def model(seed: int = 0, name: str = "mine", **options):
    return sb.model(net(seed), name=name, size=8, mean=(0.5,) * 3, std=(0.25,) * 3, **options)


def plain_accuracy(module, images, labels) -> float:
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32)) / 255
    with torch.inference_mode():
        found = module.eval()((x - 0.5) / 0.25).argmax(1).numpy()
    return float((found == labels).mean())


def test_the_contract(images, val):
    loader = torch.utils.data.DataLoader(
        [
            (torch.from_numpy(a).permute(2, 0, 1) / 255, int(b))
            for a, b in zip(*images, strict=True)
        ],
        batch_size=7,
    )
    new = sb.TestSet.from_loader(loader, name="new")
    found = sb.evaluate(
        [model()], [val, new], corruptions=["fog:3"], attacks=["pgd-linf:2/255"], store=None
    )
    frame = found.score("top1", "nll").frame
    assert {"model", "setting", "metric", "value", "low", "high", "n"} <= set(frame.columns)
    ids = {f"{one}{what}" for one in ("val", "new") for what in ("", "+fog:3", "+pgd-linf:2/255")}
    assert set(frame["setting"]) == ids
    by = {r["setting"]: r["value"] for r in frame.iter_rows(named=True) if r["metric"] == "top1"}
    assert by["val"] == by["new"] == plain_accuracy(net(), *images)
    assert by["val+pgd-linf:2/255"] <= by["val"]
    assert '"settings"' in found.to_json()
    assert "pgd-linf" in str(found)
    assert "<table>" in found._repr_html_()


def test_settings_are_records_with_the_right_kinds(val):
    found = sb.evaluate(model(), val, corruptions=[sb.Corruption("fog", 3)], attacks=["fgsm-l2:1"])
    kinds = {one.id: one.kind for one in found.settings}
    assert kinds == {"val": "", "val+fog:3": "corruption", "val+fgsm-l2:1": "adversarial"}
    assert found.store.records() == {one.id: one for one in found.settings}
    bed = found.testbed()
    assert {s.target: s.kind for s in bed.shifts} == {
        "val+fog:3": "corruption",
        "val+fgsm-l2:1": "adversarial",
    }


def test_a_store_is_continued_and_other_weights_are_refused(val, tmp_path):
    first = sb.evaluate(model(), val, store=tmp_path / "kept")
    again = sb.evaluate(model(), val, store=tmp_path / "kept")
    assert (first.summary.images, again.summary.images) == (40, 0)
    assert first.frame.equals(again.frame)
    with pytest.raises(InputError, match="predictions of another model called 'mine'"):
        sb.evaluate(model(1), val, store=tmp_path / "kept")


def test_training_goes_on_as_if_nothing_had_happened(val):
    module = net().train()
    before = torch.random.get_rng_state()
    sb.evaluate(sb.model(module, name="mine", size=8), val, attacks=["pgd-linf:2/255"])
    assert module.training
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_function_and_an_estimator_are_models_too(images, val):
    from sklearn.linear_model import LogisticRegression

    flat = images[0].reshape(40, -1) / 255
    fitted = LogisticRegression(max_iter=50, tol=0.1).fit(flat, images[1])
    weights = np.random.default_rng(0).normal(size=(192, 4)).astype(np.float32)
    found = sb.evaluate(
        [
            sb.model(lambda x: x.reshape(len(x), -1) @ weights, name="function", size=8),
            sb.model(fitted, name="estimator", size=8, mean=(0.0,) * 3, std=(1.0,) * 3),
        ],
        val,
    )
    by = dict(found.frame.select("model", "value").iter_rows())
    assert by["estimator"] == fitted.score(flat, images[1])
    x = images[0].transpose(0, 3, 1, 2).reshape(40, -1) / 255
    assert by["function"] == ((x @ weights).argmax(1) == images[1]).mean()


def test_what_has_no_gradients_is_said_and_the_rest_goes_on(val):
    still = sb.model(lambda x: x.mean(axis=3).reshape(len(x), -1), name="still", size=8)
    found = sb.evaluate(still, val, attacks=["pgd-linf:2/255"])
    assert found.ready == ["val"]
    assert "needs gradients" in found.failed["still", "val+pgd-linf:2/255"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"models": []}, "models: expected at least one"),
        ({"test_sets": []}, "test_sets: expected at least one"),
        ({"test_sets": [np.zeros((1, 8, 8))]}, "must be a TestSet or a path"),
        ({"corruptions": ["fgo:3"]}, "did you mean 'fog'"),
        ({"corruptions": [3]}, "a Corruption or an attack"),
        ({"batch_size": 0}, "at least 1"),
        ({"bach_size": 3}, "did you mean 'batch_size'"),
        ({"runner": "processes"}, "is an object of this process"),
        ({"labels": {"subset": [0, 1], "map": {"a": [0]}}}, "does not go with the rest"),
    ],
)
def test_bad_input_is_one_line(val, change, match):
    given = {"models": model(), "test_sets": val} | change
    with pytest.raises(InputError, match=match) as caught:
        sb.evaluate(given.pop("models"), given.pop("test_sets"), **given)
    assert "\n" not in str(caught.value)


def test_two_of_one_name_are_refused(val):
    with pytest.raises(InputError, match="two models are called 'mine'"):
        sb.evaluate([model(), model(1)], val)
    with pytest.raises(InputError, match="two test sets have the same name"):
        sb.evaluate(model(), [val, val])


def test_two_files_of_one_python_network_give_their_two_accuracies(tmp_path):
    own.place(tmp_path)
    with contextlib.chdir(tmp_path):
        found = {}
        for name in ("right", "wrong", "right"):
            line = sb.model(own.LINE, weights=f"{name}.pt")
            done = sb.evaluate(line, own.shades())
            found.setdefault(name, []).append(done.frame["value"][0])
        assert found == {"right": [1.0, 1.0], "wrong": [0.0]}
        with pytest.raises(InputError, match="other"):
            sb.model(own.LINE, weights="strange.pt")


def test_a_backend_asked_for_is_compared_with_torch_on_a_few_images(val):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    fast = sb.evaluate(model(), val, backend="onnxruntime")
    record = fast.store.cell("mine", "val")
    assert (record["backend"], record["backend_report"]["batch_sizes"]) == ("onnxruntime", [8])
    plain = sb.evaluate(model(), val, backend="torch")
    answers = [one.store.read("mine", "val")["class_1"].to_list() for one in (fast, plain)]
    assert answers[0] == answers[1]


def test_answers_to_drafts_of_pictures_are_another_models(tmp_path):
    """Asked for in any of the ways, they are in the record and never mixed with the others."""
    if find_spec("timm") is None:  # importing it here would come before ensure_torchvision
        pytest.skip("timm is not installed")
    rng = np.random.default_rng(0)
    for i in range(4):
        folder = tmp_path / "images" / str(i % 2)
        folder.mkdir(parents=True, exist_ok=True)
        low = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        low.resize((640, 480)).save(folder / f"{i}.jpg")
    images, line = str(tmp_path / "images"), "timm:resnet10t?pretrained=false&num_classes=2&size=32"
    ways = [
        (line, {}),
        (f"{line}&decoding=draft", {}),
        (line, {"preprocessing": {"decoding": "draft"}}),
    ]
    options = {"backend": "torch", "keep_logits": True}
    made = [sb.evaluate(one, images, **options, **more) for one, more in ways]
    kept = [one.store.cell(*one.summary.complete[0]) for one in made]
    assert [one["preprocessing"].get("decoding") for one in kept] == [None, "draft", "draft"]
    assert len({one["identity"] for one in kept[:2]}) == 2
    plain, draft, again = (
        one.store.read(*one.summary.complete[0])["logits"].to_list() for one in made
    )
    assert draft == again != plain
    store = tmp_path / "store"
    sb.evaluate(line, images, store=store, **options)
    with pytest.raises(InputError, match="predictions of another model"):
        sb.evaluate(line, images, store=store, preprocessing={"decoding": "draft"}, **options)


def test_images_in_memory_are_never_taken_for_those_of_another_test_set(monkeypatch):
    """Also when a test set is gone and the next one lies where it lay: few stay open here."""
    monkeypatch.setattr("shiftbed.engine.open_setting.MOST_OPEN", 1)
    labels = np.arange(24) % 2
    for seed in range(24):
        images = np.random.default_rng(seed).integers(0, 256, (24, 4, 4), dtype=np.uint8)
        done = sb.evaluate(shade, sb.TestSet(images, labels, name="seen"), name="shade")
        mean = images.reshape(24, -1).mean(axis=1) / 255
        right = (mean > 0.5) == labels
        assert done.frame["value"].item() == pytest.approx(right.mean()), seed
        probability = done.store.read("shade", "seen")["prob_1"].to_numpy()
        z = np.abs(2 * mean - 1)
        np.testing.assert_allclose(probability, 1 / (1 + np.exp(-z)), atol=1e-5)


def shade(pixels):
    mean = pixels.reshape(len(pixels), -1).mean(axis=1)
    return np.stack([1 - mean, mean], axis=1)


shade.preprocessing = {"size": (4, 4), "mode": "L", "crop": "none"}
