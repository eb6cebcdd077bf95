"""Preprocessing against the libraries' own transforms, and on images that are hard to read."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.data import batches, open_test_set
from shiftbed.evaluation.preprocessing import INTERPOLATIONS, Preprocessing, as_picture

from .models.photographs import photograph, photographs


def ours(p: Preprocessing, image: Image.Image) -> np.ndarray:
    """What the model sees after its normalisation, (C, H, W)."""
    x = p.pixels(image).astype(np.float64) / 255
    return ((x - p.mean) / p.std).transpose(2, 0, 1)


def agree(p: Preprocessing, transform, image: Image.Image) -> None:
    theirs = transform(image).numpy().astype(np.float64)
    mine = ours(p, image)
    assert mine.shape == theirs.shape
    # 1/255 in units of pixels is allowed; in fact only float32's rounding remains
    assert np.abs((mine - theirs) * np.array(p.std)[:, None, None]).max() < 1e-6


SIZES = [(224, 224), (160, 160), (288, 192)]


@pytest.mark.parametrize("image", photographs())
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("crop", ["center", "squash", "border"])
@pytest.mark.parametrize("crop_pct", [0.875, 0.95, 1.0])
def test_as_timm_does(image, size, crop, crop_pct):
    ensure_torchvision()
    from timm.data import create_transform

    from shiftbed.evaluation.models.from_timm import preprocessing_of

    config = {
        "input_size": (3, *size),
        "interpolation": "bicubic",
        "mean": (0.485, 0.456, 0.406),
        "std": (0.229, 0.224, 0.225),
        "crop_pct": crop_pct,
        "crop_mode": crop,
    }
    agree(preprocessing_of(config), create_transform(**config, is_training=False), image)


@pytest.mark.parametrize("image", photographs())
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_as_torchvision_does(image, interpolation):
    ensure_torchvision()
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms._presets import ImageClassification

    from shiftbed.evaluation.models.from_torchvision import preprocessing_of

    preset = ImageClassification(
        crop_size=224, resize_size=232, interpolation=InterpolationMode(interpolation)
    )
    agree(preprocessing_of(preset), preset, image)


@pytest.mark.parametrize("image", photographs())
@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("fill", [0, 128])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:open_clip")
def test_as_open_clip_does(image, mode, fill):
    ensure_torchvision()
    from open_clip.transform import PreprocessCfg, image_transform_v2

    from shiftbed.evaluation.models.from_open_clip import preprocessing_of

    config = PreprocessCfg(size=224, resize_mode=mode, interpolation="bicubic", fill_color=fill)
    agree(preprocessing_of(config.__dict__), image_transform_v2(config, is_train=False), image)


def test_small_images_are_enlarged_and_padded_as_torchvision_does():
    ensure_torchvision()
    from torchvision import transforms

    image = photograph("flower").resize((31, 20))
    p = Preprocessing(size=(64, 48), resize=40, interpolation="bilinear")
    agree(p, transforms.Compose([
        transforms.Resize(40), transforms.CenterCrop((64, 48)), transforms.ToTensor(),
    ]), image)  # fmt: skip


def test_a_large_aspect_ratio_costs_no_memory_and_is_nearly_the_same():
    row = np.random.default_rng(0).integers(0, 256, (1, 20_000, 3), dtype=np.uint8)
    p = Preprocessing(size=(64, 64), resize=64)
    wide = p.pixels(row)  # as a whole: 64 x 1,280,000 pixels
    assert wide.shape == (64, 64, 3)
    # one row, stretched: column x of the crop lies at (x + 0.5) / 64 about the middle pixel
    whole = Image.fromarray(row[:, 9_990:10_010]).resize((20 * 64, 64), Image.Resampling.BILINEAR)
    middle = np.asarray(whole)[:, 10 * 64 - 32 : 10 * 64 + 32].astype(int)
    assert np.abs(wide.astype(int) - middle).max() <= 1


@pytest.mark.parametrize("crop", ["center", "squash", "none", "border"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (2, 3)])
def test_odd_shapes(crop, shape):
    p = Preprocessing(size=(32, 24), crop=crop)
    image = np.full((*shape, 3), 77, np.uint8)
    pixels = p.pixels(image)
    assert pixels.shape == (32, 24, 3)
    assert pixels.dtype == np.uint8
    if crop != "border":
        assert (pixels == 77).all()


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(1, 90),
    width=st.integers(1, 90),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    resize=st.one_of(st.none(), st.integers(1, 50), st.tuples(*[st.integers(1, 50)] * 2)),
    crop=st.sampled_from(["center", "squash", "border"]),
    interpolation=st.sampled_from(sorted(INTERPOLATIONS)),
    mode=st.sampled_from(["RGB", "BGR", "L"]),
)
def test_every_combination_gives_the_promised_shape(
    height, width, size, resize, crop, interpolation, mode
):
    p = Preprocessing(size=size, resize=resize, crop=crop, interpolation=interpolation, mode=mode)
    image = np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)
    assert p.pixels(image).shape == (*size, p.channels)
    assert Preprocessing.from_dict(p.describe()) == p


def saved(image: Image.Image, kind: str, **options) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return Image.open(io.BytesIO(buffer.getvalue()))


P = Preprocessing(size=(8, 8))


def test_modes_that_become_rgb():
    grey = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4)
    as_grey = np.repeat(np.asarray(grey)[:, :, None], 3, axis=2)
    assert np.array_equal(P.pixels(grey), as_grey)
    assert np.array_equal(P.pixels(saved(grey.convert("P"), "PNG")), as_grey)
    assert np.array_equal(P.pixels(grey.convert("LA")), as_grey)
    assert np.array_equal(P.pixels(saved(grey.convert("RGBA"), "PNG")), as_grey)
    bits = grey.convert("1")
    assert np.array_equal(P.pixels(bits), P.pixels(np.asarray(bits)))
    assert set(np.unique(P.pixels(bits))) == {0, 255}


def test_cmyk_jpeg_is_converted():
    photo = photograph("flower").resize((64, 48))
    cmyk = saved(photo.convert("CMYK"), "JPEG", quality=95)
    assert cmyk.mode == "CMYK"
    p = Preprocessing(size=(48, 64))
    difference = p.pixels(cmyk).astype(int) - np.asarray(photo)
    assert np.abs(difference).mean() < 6


def test_sixteen_bit_is_scaled_not_clipped():
    values = np.array([[0, 128, 129, 257, 65535, 65535 - 129, 32768, 1000]], np.uint16)
    expected = np.rint(values / 257).astype(np.uint8)
    p = Preprocessing(size=(1, 8), mode="L")
    assert np.array_equal(p.pixels(values)[:, :, 0], expected)
    png = saved(Image.fromarray(values), "PNG")
    assert png.mode.startswith("I")
    assert np.array_equal(p.pixels(png)[:, :, 0], expected)
    assert np.array_equal(p.pixels(Image.fromarray(values.astype(np.int32)))[:, :, 0], expected)


def test_alpha_is_dropped_and_transparent_palettes_do_not_warn():
    rgba = np.zeros((8, 8, 4), np.uint8)
    rgba[..., 0], rgba[..., 3] = 200, 10
    assert (P.pixels(rgba)[..., 0] == 200).all()
    palette = saved(Image.fromarray(rgba[..., :3]).quantize(4), "PNG", transparency=b"\x00\x80")
    assert palette.mode == "P"
    assert (P.pixels(palette)[..., 0] == 200).all()


def test_floats_are_fractions():
    p = Preprocessing(size=(1, 3), mode="L")
    assert p.pixels(np.array([[0.0, 0.5, 1.0]])).ravel().tolist() == [0, 128, 255]
    for bad in (255.0, -0.1, np.nan):
        with pytest.raises(InputError, match=r"must lie in \[0, 1\]"):
            p.pixels(np.array([[bad, 0.0, 0.0]]))


def test_channel_order():
    photo = photograph("china")
    rgb, bgr = (Preprocessing(size=(32, 32), mode=m).pixels(photo) for m in ("RGB", "BGR"))
    assert np.array_equal(rgb[..., ::-1], bgr)
    grey = Preprocessing(size=(427, 640), crop="none", mode="L").pixels(photo)
    assert np.array_equal(grey[..., 0], np.asarray(photo.convert("L")))


NO_IMAGES = [np.zeros((0, 3)), np.zeros((2, 2, 5)), np.zeros(4), np.zeros((2, 2), complex)]


@pytest.mark.parametrize("bad", NO_IMAGES)
def test_arrays_that_are_no_images(bad):
    with pytest.raises(InputError, match="image"):
        as_picture(bad, "RGB")


def test_override_and_what_changed():
    p = Preprocessing(size=(224, 224), resize=235, interpolation="bicubic", mean=(0.5,), std=(0.2,))
    bigger = p.override(size=448)
    assert bigger.resize == 470
    assert bigger.changes_from(p) == {"size": (448, 448)}
    assert p.override(crop_pct=0.875).resize == 256
    assert p.override(interpolation="bilinear").changes_from(p) == {"interpolation": "bilinear"}
    assert p.override(mode="L").mean == (0.5,)
    assert p.override(size=(96, 128)).resize == (100, 134)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": 3}, "unknown field of preprocessing 'sizes'; did you mean 'size'"),
        ({"interpolation": "bicubik"}, "did you mean 'bicubic'"),
        ({"crop": "middle"}, "unknown crop"),
        ({"mode": "CMYK"}, "unknown mode"),
        ({"size": (0, 3)}, "two positive integers"),
        ({"resize": 0}, "at least 1"),
        ({"mean": (1.0, 2.0)}, "3 numbers, one per channel"),
        ({"std": 0.0}, "std must be positive"),
        ({"crop_pct": 2}, "crop_pct"),
        ({"crop": "none", "resize": 9}, "must be left out"),
    ],
)
def test_bad_fields(changes, message):
    with pytest.raises(InputError, match=message):
        Preprocessing(size=(8, 8)).override(**changes)


class TestDrafts:
    whole = Preprocessing(size=(56, 56), resize=64)
    draft = whole.override(decoding="draft")

    def test_are_off_and_go_without_saying(self):
        """Records and identities of models made before hold."""
        assert self.whole.draft is None
        assert "decoding" not in self.whole.describe()
        assert Preprocessing.from_dict(self.whole.describe()) == self.whole
        assert Preprocessing.from_dict(self.draft.describe()) == self.draft
        assert self.draft.changes_from(self.whole) == {"decoding": "draft"}
        with pytest.raises(InputError, match="unknown decoding 'fast'"):
            self.whole.override(decoding="fast")

    @given(
        st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(["center", "squash", "none"])
    )
    def test_are_at_least_twice_what_they_are_resized_to(self, width, height, crop):
        p = Preprocessing(size=(56, 48), crop=crop, decoding="draft")
        down, across = p._resized(height, width)
        assert p.draft(width, height) == (2 * across, 2 * down)

    def test_come_out_nearly_alike(self, tmp_path):
        file = tmp_path / "own" / "china.jpg"
        file.parent.mkdir()
        photograph("china").save(file, quality=92)
        test_set = open_test_set(tmp_path)
        found = {
            p.decoding: next(batches(test_set, None, p.pixels, 1, draft=p.draft)).pixels[0]
            for p in (self.whole, self.draft)
        }
        assert test_set.load(0, self.draft.draft).size == (320, 214)  # of 640 × 427
        gap = np.abs(found["full"].astype(int) - found["draft"])
        assert 0 < gap.mean() < 1.5
