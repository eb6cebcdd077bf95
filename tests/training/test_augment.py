"""Augmentations: in [0, 1], drawn per (seed, epoch, example), and what each does."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.corruptions import Corruption
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.training.augment import CropFlip, keys_of, label_of, make_augmentation, uniforms
from shiftbed.training.auto_augment import AugMix, RandAugment
from shiftbed.training.corruption_augment import Corrupt, GaussianNoise
from shiftbed.training.stream import make_stream
from tests.training.digit_runs import SEEN, digits

SOME = "corruption", {"names": ["fog", "contrast", "jpeg_compression"]}
EACH = [
    ("crop-flip", {}),
    ("flip", {}),
    ("randaugment", {}),
    ("augmix", {}),
    ("gaussian-noise", {"share": 0.5}),
    SOME,
    ("ColorJitter", {"brightness": 0.5}),
]


@pytest.fixture(scope="module")
def batch():
    noise = torch.rand(24, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.avg_pool2d(noise, 3, stride=1, padding=1)


@pytest.mark.parametrize(("name", "options"), EACH, ids=[name for name, _ in EACH])
def test_an_examples_draw_depends_on_seed_epoch_view_and_itself_alone(batch, name, options):
    steps = [{"name": name, **options}]
    augment = make_augmentation(steps, seed=3)
    rows = np.arange(100, 124)
    whole = augment(batch, rows, epoch=2)
    assert whole.shape == batch.shape
    assert whole.dtype == torch.float32
    assert float(whole.min()) >= 0
    assert float(whole.max()) <= 1
    order = np.random.default_rng(0).permutation(24)[:7]
    torch.testing.assert_close(augment(batch[order], rows[order], 2), whole[order], rtol=0, atol=0)
    again = make_augmentation(steps, seed=3)(batch, rows, epoch=2)
    torch.testing.assert_close(again, whole, rtol=0, atol=0)
    for other in (
        augment(batch, rows, epoch=3),
        augment(batch, rows, epoch=2, view=1),
        make_augmentation(steps, seed=4)(batch, rows, epoch=2),
        augment(batch, rows + 1, epoch=2),
    ):
        changed = (other != whole).flatten(1).any(dim=1)
        assert changed.float().mean() > 0.2


@pytest.mark.parametrize(("name", "options"), EACH, ids=[name for name, _ in EACH])
def test_layout_in_memory_and_global_generators_are_left_alone(batch, name, options):
    augment = make_augmentation([{"name": name, **options}])
    last = batch.contiguous(memory_format=torch.channels_last)
    before, state = last.clone(), torch.get_rng_state()
    found = augment(last, np.arange(24), 0)
    assert found.stride() == last.stride()
    assert torch.equal(last, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.allclose(found, augment(batch, np.arange(24), 0), atol=1e-6)


def test_none_is_the_batch_itself_and_uint8_becomes_fractions(batch):
    augment = make_augmentation("none")
    assert augment.label == "none"
    assert augment(batch, np.arange(24), 0) is batch
    eight = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    assert augment(eight, np.arange(1), 0).flatten().tolist() == pytest.approx([0, 0.2, 1])


def test_views_share_crop_and_flip_and_the_plain_one_has_nothing_else(batch):
    augment = make_augmentation("crop-flip+gaussian-noise")
    rows = np.arange(24)
    plain = augment(batch, rows, 0, basic_only=True)
    assert torch.equal(plain, make_augmentation("crop-flip")(batch, rows, 0))
    first = augment(batch, rows, 0, 1, of_one_crop=True)
    second = augment(batch, rows, 0, 2, of_one_crop=True)
    assert not torch.equal(first, second)
    assert float((first - plain).abs().mean()) < 0.1  # noise about the same crop
    assert float((augment(batch, rows, 0, 1) - plain).abs().mean()) > 0.15


@given(padding=st.integers(0, 5), flip=st.booleans(), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_a_padded_crop_is_a_window_of_the_padded_image(padding, flip, seed):
    x = torch.arange(1, 49, dtype=torch.float32).view(1, 1, 6, 8) / 48
    found = CropFlip(padding=padding, flip=flip)(x, keys_of([seed], 0, "t", 0))[0, 0]
    padded = torch.nn.functional.pad(x, (padding,) * 4)[0, 0]
    windows = [
        padded[top : top + 6, left : left + 8]
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
    ]
    windows += [window.flip(1) for window in windows] if flip else []
    assert any(torch.equal(found, window) for window in windows)


def test_randaugment_is_torchvisions_operations_at_torchvisions_strength(batch):
    """With the table cut to one operation and one sign, torchvision itself gives the same."""
    ensure_torchvision()
    from torchvision.transforms import v2

    class OneOf(v2.RandAugment):
        def _get_random_item(self, dct):
            return self.only, (dct[self.only][0], False)

    step = RandAugment(num_ops=1, magnitude=9)
    found = step(batch, keys_of(range(24), 0, "t", 0))
    explained = torch.zeros(24, dtype=torch.bool)
    for name in v2.RandAugment._AUGMENTATION_SPACE:
        one = OneOf(num_ops=1, magnitude=9)
        one.only = name
        explained |= (found - one(batch)).flatten(1).abs().amax(dim=1) < 1e-6
    assert explained.sum() >= 12  # the others drew the opposite sign
    assert not explained.all()


def test_every_operation_is_drawn_equally_often():
    step = RandAugment()
    x = torch.rand(1, 3, 8, 8).expand(2800, -1, -1, -1)
    draws = uniforms(keys_of(range(2800), 0, "t", 0), 3)
    counts = np.bincount((draws[:, 0] * 14).astype(int), minlength=14)
    assert stats.chisquare(counts).pvalue > 1e-3
    assert step(x[:4], keys_of(range(4), 0, "t", 0)).shape == (4, 3, 8, 8)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_augmix_weights_are_beta_and_dirichlet(alpha):
    m, w = AugMix(alpha=alpha).weights(uniforms(keys_of(range(3000), 0, "t", 0), 4))
    assert stats.kstest(m, stats.beta(alpha, alpha).cdf).pvalue > 1e-3
    assert np.allclose(w.sum(axis=1), 1, atol=1e-5)
    for k in range(3):  # a share of Dirichlet(α, α, α) is Beta(α, 2α)
        assert stats.kstest(w[:, k], stats.beta(alpha, 2 * alpha).cdf).pvalue > 1e-3


def test_augmix_is_a_mixture_of_the_image_and_its_chains(batch):
    """Of a black image every operation but solarize is black; of a mean it stays in the hull."""
    found = AugMix(severity=1)(batch, keys_of(range(24), 0, "t", 0))
    assert torch.isfinite(found).all()
    constant = torch.full((24, 3, 8, 8), 0.25)
    mild = AugMix(severity=1, all_ops=True)(constant, keys_of(range(24), 0, "t", 0))
    assert float(mild.max()) <= 1
    assert float((found - batch).abs().mean()) > 0.005


def test_augmix_leaves_out_what_test_corruptions_are_made_of():
    ensure_torchvision()
    from torchvision.transforms import v2

    assert AugMix().all_ops is False
    left = set(v2.AugMix._AUGMENTATION_SPACE) - set(v2.AugMix._PARTIAL_AUGMENTATION_SPACE)
    assert left == {"Brightness", "Color", "Contrast", "Sharpness"}


def test_gaussian_noise_has_its_standard_deviation_and_its_share():
    x = torch.full((200, 3, 16, 16), 0.5)
    keys = keys_of(range(200), 0, "t", 0)
    noise = GaussianNoise(sigma=0.05)(x, keys) - x
    assert float(noise.std()) == pytest.approx(0.05, rel=0.02)
    assert abs(float(noise.mean())) < 0.001
    half = GaussianNoise(sigma=0.05, share=0.5)(x, keys)
    changed = int((half != x).flatten(1).any(dim=1).sum())
    assert 70 <= changed <= 130
    assert stats.normaltest(noise.flatten()[:5000].numpy()).pvalue > 1e-3


def test_training_on_a_corruption_gives_that_corruption(batch):
    keys = keys_of(range(24), 0, "t", 0)
    found = Corrupt(names="contrast", severities=4)(batch, keys)
    wanted = Corruption("contrast", 4)(batch.numpy(), [f"{key:x}" for key in keys.tolist()])
    assert np.array_equal(found.numpy(), wanted)


def test_corruption_and_severity_are_drawn_per_image():
    step = Corrupt(names=["fog", "snow"], severities=[1, 3], share=0.75)
    drawn = step.drawn(keys_of(range(1600), 0, "t", 0))
    counts = [drawn.count((name, level)) for name in ("fog", "snow") for level in (1, 3)]
    assert stats.chisquare([*counts, drawn.count(None)], [300, 300, 300, 300, 400]).pvalue > 1e-3
    everything = Corrupt().kinds
    assert len(everything) == 20
    assert everything["greyscale"] == (1,)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("augmx", "did you mean 'augmix'"),
        ("standard", "must be the first step"),
        ("augmix+flip", "'flip' must come before 'augmix'"),
        ([{"name": "augmix", "severty": 3}], "severty"),
        ([{"name": "randaugment", "magnitude": 31}], "below 31"),
        ([{"name": "gaussian-noise", "sigma": 0}], "sigma must be above 0"),
        ([{"name": "corruption", "names": "fogg"}], "did you mean 'fog'"),
        ([{"name": "corruption", "severities": 6}], "severity"),
        ([{"name": "corruption", "names": []}], "must not be empty"),
        ([{"name": "corruption", "share": 0}], "share must be a number in"),
    ],
)
def test_what_cannot_be_done_is_said(steps, message):
    with pytest.raises(InputError, match=message):
        make_augmentation(steps)


def test_labels_say_what_was_trained_on():
    assert label_of([]) == "none"
    assert label_of([{"name": "standard"}, {"name": "augmix"}]) == "standard+augmix"
    assert label_of([{"name": "corruption", "names": "fog", "severities": [1, 2]}]) == "fog:1/2"
    assert label_of([{"name": "gaussian-noise", "sigma": 0.2, "share": 0.5}]) == (
        "gaussian-noise:0.2@0.5"
    )


def test_a_picture_is_cropped_by_its_seed_alone():
    from PIL import Image

    picture = Image.fromarray(np.arange(48 * 40 * 3, dtype=np.uint8).reshape(48, 40, 3))
    seen = Preprocessing(size=(24, 24))
    augment = make_augmentation("standard", seen)
    first, again = augment.picture(picture, 5, 1), augment.picture(picture, 5, 1)
    assert first.shape == (3, 24, 24)
    assert torch.equal(first, again)
    assert not torch.equal(first, augment.picture(picture, 5, 2))
    plain = make_augmentation("none", seen).picture(picture, 5, 1)
    assert torch.equal(plain.permute(1, 2, 0), torch.from_numpy(seen.pixels(picture).copy()))


def test_batches_are_the_same_with_workers_and_after_a_stop():
    data = digits(slice(0, 200))
    steps = [{"name": "crop-flip", "padding": 1, "flip": False}, {"name": "augmix"}]
    made = [
        make_stream(
            data, SEEN, steps, batch_size=64, seed=1, views=2, clean_first=True, workers=workers
        )
        for workers in (0, 2)
    ]
    alone, together = list(made[0].epoch(4)), list(made[1].epoch(4))
    assert len(alone) == len(together) == 4
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one.rows, other.rows)
        assert len(one.views) == 2
        for x, y in zip((one.pixels, *one.views), (other.pixels, *other.views), strict=True):
            assert torch.equal(x, y)
    later = next(iter(made[0].epoch(4, skip=2)))
    assert torch.equal(later.pixels, alone[2].pixels)
    assert torch.equal(later.views[1], alone[2].views[1])
