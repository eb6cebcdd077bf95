"""Backends: that they agree, that the report says what happened, and what memory does."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation import backends
from shiftbed.evaluation.backends import (
    Backend,
    agreement,
    choose_backend,
    is_out_of_memory,
    with_halving,
)
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import FunctionModel, resolve
from shiftbed.evaluation.preprocessing import Preprocessing

torch = pytest.importorskip("torch")
ensure_torchvision()
pytest.importorskip("timm")

rng = np.random.default_rng(0)
SAMPLE = [rng.random((6, 3, 64, 64), np.float32) for _ in range(2)]


def small(name="resnet10t", **options):
    return resolve(f"timm:{name}?pretrained=false&size=64&num_classes=20", **options)


def needs_onnx():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")


def same_on_any_batch(model, fast):
    """Any batch size, any layout, bytes too."""
    for n in (1, 5, 6, 7):
        x = rng.integers(0, 256, (n, 64, 64, 3), dtype=np.uint8).transpose(0, 3, 1, 2)
        expected = model.logits(x)
        assert np.allclose(fast.logits(x), expected, atol=1e-3 * np.abs(expected).max())


def test_the_fastest_that_agrees_is_taken():
    needs_onnx()
    model = small("resnet18")
    chosen = choose_backend(model, SAMPLE, "auto")
    assert json.loads(json.dumps(chosen.report)) == chosen.report
    found = chosen.report["candidates"]
    assert set(found) == {"torch", "compile", "onnxruntime"}
    assert "number of images" in found["compile"]["excluded"]
    assert "excluded" not in found["onnxruntime"], found
    assert found["torch"]["max_difference"] == 0
    fastest = min(("torch", "onnxruntime"), key=lambda n: found[n]["seconds_per_batch"])
    assert chosen.name == chosen.report["chosen"] == fastest
    assert chosen.report["threads"] == torch.get_num_threads()
    same_on_any_batch(model, chosen)


def test_onnxruntime_agrees_with_torch():
    needs_onnx()
    model = small("mobilenetv3_small_050")
    fast = choose_backend(model, [], "onnxruntime")  # as a run that continues asks for it
    assert "not measured" in fast.report["candidates"]["onnxruntime"]["note"]
    same_on_any_batch(model, fast)


def test_one_asked_for_by_name_is_compared_and_timed_alone():
    needs_onnx()
    model, threads = small(), torch.get_num_threads()
    calls = []
    counted = replace(model)
    object.__setattr__(
        counted, "logits", lambda x, **k: calls.append(torch.get_num_threads()) or model.logits(x)
    )
    chosen = choose_backend(counted, SAMPLE, "onnxruntime")
    assert calls == [1] * len(SAMPLE)  # the reference only; one thread does not wait for others
    assert torch.get_num_threads() == threads
    found = chosen.report["candidates"]
    assert found["onnxruntime"]["images_per_second"] > 0
    assert found["onnxruntime"]["max_difference"] > 0
    assert "images_per_second" not in found["torch"]
    same_on_any_batch(model, chosen)


def test_candidates_that_differ_are_left_out(monkeypatch):
    model = small()
    monkeypatch.setattr(backends, "exported", lambda m, within: lambda x: m.logits(x) * 1.01)
    chosen = choose_backend(model, SAMPLE)
    assert chosen.name == "torch"
    assert "differ" in chosen.report["candidates"]["onnxruntime"]["excluded"]
    with pytest.raises(InputError, match="backend 'onnxruntime': its logits differ"):
        choose_backend(model, SAMPLE, "onnxruntime")


def test_candidates_that_fail_are_left_out(monkeypatch):
    def fails(m, within):
        raise RuntimeError("no such operator\nand more")

    monkeypatch.setattr(backends, "exported", fails)
    chosen = choose_backend(small(), SAMPLE)
    assert chosen.name == "torch"
    excluded = chosen.report["candidates"]["onnxruntime"]["excluded"]
    assert excluded == "RuntimeError: no such operator"


def test_short_runs_stay_with_torch():
    chosen = choose_backend(small(), SAMPLE, images=50)
    assert chosen.name == "torch"
    assert "50 images take about" in chosen.report["candidates"]["onnxruntime"]["excluded"]
    assert chosen.report["candidates"]["torch"]["images_per_second"] > 0


def test_what_cannot_be_had():
    chosen = choose_backend(small(precision="bfloat16"), SAMPLE)
    assert chosen.name == "torch"
    excluded = chosen.report["candidates"]["onnxruntime"]["excluded"]
    assert excluded == "the model runs in bfloat16"
    with pytest.raises(InputError, match="unknown backend 'onnx'; did you mean 'onnxruntime'"):
        choose_backend(small(), SAMPLE, "onnx")


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr(backends, "has_compiler", lambda: False)
    with pytest.raises(InputError, match=r"no C\+\+ compiler"):
        choose_backend(small(), SAMPLE, "compile")


def test_compiling_is_given_up_after_its_time(monkeypatch):
    """A compiler that never ends, and the clock that ends it."""

    def endless(module, **_):
        def run(x):
            threading.Event().wait(60)

        return run

    monkeypatch.setattr(backends, "has_compiler", lambda: True)
    monkeypatch.setattr(backends, "has_compiler", lambda: True)
    monkeypatch.setattr(torch, "compile", endless)
    with pytest.raises(InputError, match=r"compiling took more than 0\.2 s"):
        choose_backend(small(), SAMPLE, "compile", compile_seconds=0.2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_agrees_with_torch():
    if not backends.has_compiler():
        pytest.skip("no C++ compiler")
    model = small()
    chosen = choose_backend(model, SAMPLE, "compile", compile_seconds=300)
    x = rng.random((9, 3, 64, 64), np.float32)
    assert chosen.name == "compile"
    assert agreement(model.logits(x), chosen.logits(x))["agrees"]


def test_models_without_a_module_run_as_they_are():
    model = FunctionModel(
        id="python:x",
        classes=3,
        preprocessing=Preprocessing(size=(64, 64)),
        function=lambda x: x.mean(axis=(2, 3)),
    )
    for asked in ("auto", "python"):
        chosen = choose_backend(model, SAMPLE, asked)
        assert isinstance(chosen, Backend)
        assert chosen.name == "python"
        assert np.array_equal(chosen.logits(SAMPLE[0]), model.logits(SAMPLE[0]))
    report = choose_backend(model, [], "compile").report
    assert report["candidates"]["python"]["asked_for"] == "compile"


def test_agreement_knows_ties():
    reference = np.array([[10.0, 9.999, 0.0], [1.0, 2.0, 3.0]], np.float32)
    swapped = np.array([[9.9995, 10.0, 0.0], [1.0, 2.0, 3.0]], np.float32)
    found = agreement(reference, swapped)
    assert found["agrees"]
    assert found["same_argmax"] == 0.5
    assert not agreement(reference, reference + 0.02)["agrees"]
    assert not agreement(reference, np.full_like(reference, np.nan))["agrees"]
    assert not agreement(reference, reference[:1])["agrees"]


# Memory


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate"), True),
        (Exception("Failed to allocate memory for requested buffer of size 9"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_which_errors_mean_memory(error, expected):
    assert is_out_of_memory(error) is expected


def test_halving_keeps_order_and_the_smaller_size():
    sizes, said = [], []

    def run(pixels):
        sizes.append(len(pixels))
        if len(pixels) > 5:
            raise RuntimeError("CUDA out of memory.")
        return pixels.reshape(len(pixels), -1)[:, :2]

    halving = with_halving(run, lambda before, after: said.append((before, after)))
    x = np.arange(20 * 3 * 2 * 2, dtype=np.float32).reshape(20, 3, 2, 2)
    assert np.array_equal(halving(x), x.reshape(20, -1)[:, :2])
    assert said == [(20, 10), (10, 5)]
    assert sizes == [20, 10, 5, 5, 5, 5]
    halving(x)
    assert len(said) == 2
    assert sizes[6:] == [5, 5, 5, 5]


def test_halving_ends_at_one_image_and_passes_other_errors_on():
    def full(pixels):
        raise MemoryError

    with pytest.raises(MemoryError):
        with_halving(full)(np.zeros((4, 3, 2, 2), np.float32))

    def wrong(pixels):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        with_halving(wrong)(np.zeros((4, 3, 2, 2), np.float32))
    assert with_halving(lambda p: p)(np.zeros((0, 3, 2, 2), np.float32)).shape == (0, 3, 2, 2)


def test_real_exhaustion():
    """torch's own error for a tensor that no machine can hold."""
    calls = []

    def run(pixels):
        calls.append(len(pixels))
        if len(pixels) > 1:
            torch.empty(2**50, dtype=torch.float32)
        return pixels[:, :, 0, 0]

    assert with_halving(run)(np.zeros((2, 3, 1, 1), np.float32)).shape == (2, 3)
    assert calls == [2, 1, 1]


def test_measuring_costs_a_small_part_of_the_images_at_hand(monkeypatch):
    model, seen = small(), []
    logits = type(model).logits
    monkeypatch.setattr(backends, "EXPORT_SECONDS", 0.0)
    monkeypatch.setattr(
        type(model), "logits", lambda self, x, **k: seen.append(len(x)) or logits(self, x, **k)
    )
    choose_backend(model, SAMPLE, images=10**7)
    many = sum(seen)
    seen.clear()
    choose_backend(model, SAMPLE, images=20 * sum(map(len, SAMPLE)))
    assert sum(seen) < many  # one round, not three


def test_a_graph_that_is_kept_is_worth_trying_sooner(monkeypatch, tmp_path):
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path))
    model = small()
    monkeypatch.setattr(backends, "EXPORT_SECONDS", 1e9)
    monkeypatch.setattr(backends, "OPEN_SECONDS", 0.0)
    cold = choose_backend(model, SAMPLE, images=10**5)
    assert "preparing it" in cold.report["candidates"]["onnxruntime"]["excluded"]
    monkeypatch.setattr(backends, "_graphs", {})
    backends.exported(model)
    warm = choose_backend(model, SAMPLE, images=10**5)
    assert "images_per_second" in warm.report["candidates"]["onnxruntime"]
