"""Bad images are refused with a reason; odd ones come out as they are."""

import contextlib
import io
import warnings

import numpy as np
import pytest
from PIL import Image, ImageFile

from shiftbed.errors import InputError
from shiftbed.evaluation.data.images import NoImage, decode, decode_file
from tests.evaluation.data.conftest import encoded


@pytest.fixture(scope="module")
def small(scenes):
    return scenes[0].resize((48, 32))


def read(data: bytes) -> Image.Image:
    return decode(io.BytesIO(data))


def reason(data: bytes) -> str:
    with pytest.raises(NoImage) as caught:
        read(data)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("cut", [1, 2, 3, 10, 100, 0.5, 0.9])
def test_a_truncated_jpeg_is_never_an_image(scenes, progressive, cut):
    data = encoded(scenes[1], quality=90, progressive=progressive)
    assert np.array_equal(np.asarray(read(data)), np.asarray(Image.open(io.BytesIO(data))))
    assert "truncated" in reason(data[: -cut if cut >= 1 else -int(cut * len(data))])


def test_no_image_at_all(tmp_path):
    assert reason(b"") == "an empty file"
    assert reason(b"hello, this is text") == "not an image of a known format"
    (tmp_path / "x.jpg").mkdir()
    for name, words in [("absent.jpg", "no such file"), ("x.jpg", "a directory")]:
        with pytest.raises(NoImage, match=words):
            decode_file(tmp_path / name)


def test_every_flipped_bit_of_a_png_is_seen_or_harmless(small):
    data = encoded(small, "PNG")
    whole = np.asarray(small)
    rng = np.random.default_rng(0)
    refusals = 0
    for at in rng.integers(8, len(data), size=400):
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        try:
            image = read(bytes(changed))
        except NoImage:
            refusals += 1
        else:
            assert np.array_equal(np.asarray(image), whole)
    assert refusals > 350


@pytest.mark.parametrize(
    ("make", "kind", "mode"),
    [
        (lambda im: im.convert("CMYK"), "JPEG", "CMYK"),
        (lambda im: im.convert("L"), "JPEG", "L"),
        (lambda im: im.convert("P"), "PNG", "P"),
        (lambda im: im.convert("RGBA"), "PNG", "RGBA"),
        (lambda im: im.convert("1"), "PNG", "1"),
        (lambda im: im.resize((1, 1)), "PNG", "RGB"),
        (lambda im: im, "BMP", "RGB"),
        (lambda im: im, "PPM", "RGB"),
        (lambda im: im, "TIFF", "RGB"),
        (lambda im: im, "WEBP", "RGB"),
    ],
)
def test_the_mode_is_kept(small, make, kind, mode):
    image = read(encoded(make(small), kind))
    assert (image.mode, image.size) == (mode, make(small).size)
    image.convert("RGB").resize((8, 8))  # everything is loaded, though the file is gone


def test_16_bits_are_kept():
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    image = read(encoded(Image.fromarray(values), "PNG"))
    assert image.mode == "I;16"
    assert np.array_equal(np.asarray(image), values)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "WEBP", "PNG"])
def test_the_first_frame_of_an_animation(small, kind, tmp_path):
    frames = [small.convert("L"), Image.new("L", small.size, 255)]
    options = {"lossless": True} if kind == "WEBP" else {}
    path = tmp_path / "moving"
    path.write_bytes(encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options))
    image = decode_file(path)  # closes the file: frames must not be looked for later
    assert np.array_equal(np.asarray(image.convert("L")), np.asarray(frames[0]))


def test_orientation_is_not_applied(small):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    assert read(encoded(small, exif=exif)).size == small.size


def test_postscript_is_not_run(small):
    assert reason(encoded(small, "EPS")) == "not an image of a known format"


@pytest.mark.parametrize("most", [1000, 500])
@pytest.mark.parametrize("action", ["error", "ignore"])
def test_too_many_pixels(small, monkeypatch, most, action):
    data = encoded(small)  # 1,536 pixels: over the limit, or over twice the limit
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        assert reason(data).startswith("too large")


def test_a_bomb_is_refused_before_it_unpacks():
    assert reason(encoded(Image.new("1", (14_000, 14_000)), "PNG")).startswith("too large")


def test_leniency_switched_on_elsewhere_is_refused(small, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(InputError, match="LOAD_TRUNCATED_IMAGES"):
        read(encoded(small))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_damage_is_a_picture_or_a_reason(small, kind):
    data = encoded(small, kind)
    rng = np.random.default_rng(1)
    for _ in range(150):
        changed = np.frombuffer(data, np.uint8).copy()
        where = rng.integers(0, len(data), size=rng.integers(1, 20))
        changed[where] = rng.integers(0, 256, size=len(where))
        with contextlib.suppress(NoImage):
            assert read(changed.tobytes()).size


class TestDrafts:
    """JPEGs decoded smaller, as PIL's own ``draft`` does it, and nothing else."""

    @pytest.fixture
    def large(self, scenes):
        return scenes[0].resize((1000, 701))

    def test_a_jpeg_is_decoded_at_the_least_that_is_asked_for(self, large):
        data = encoded(large, quality=90)
        for least, wanted in (
            ((1000, 701), (1000, 701)),
            ((501, 350), (1000, 701)),
            ((500, 350), (500, 351)),
            ((250, 176), (500, 351)),
            ((125, 80), (125, 88)),
            ((1, 1), (125, 88)),
        ):
            found = decode(io.BytesIO(data), lambda width, height, least=least: least)
            assert found.size == wanted
            with Image.open(io.BytesIO(data)) as theirs:
                theirs.draft(None, least)
                assert np.array_equal(np.asarray(found), np.asarray(theirs))

    @pytest.mark.parametrize("format", ["PNG", "BMP", "GIF", "TIFF", "WEBP"])
    def test_other_formats_are_decoded_whole(self, large, format):
        file = io.BytesIO()
        large.save(file, format)
        assert decode(file, lambda width, height: (1, 1)).size == large.size

    def test_a_truncated_one_is_no_image(self, large):
        data = encoded(large, quality=90)
        with pytest.raises(NoImage, match="truncated"):
            decode(io.BytesIO(data[: len(data) // 2]), lambda width, height: (1, 1))
