"""A corruption as a value: a name, a severity and a seed, applied to batches."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.corruptions import blur, digital, frost, noise, weather
from shiftbed.evaluation.corruptions.kernels import gaussian_taps, kernel
from shiftbed.evaluation.corruptions.params import NAMES, parameters
from shiftbed.evaluation.corruptions.philox import Keys, image_keys
from shiftbed.evaluation.data.images import cores
from shiftbed.evaluation.image_batches import as_fractions, as_given, check_values, ids_of

Batch = NDArray[np.float32]
Run = Callable[[Batch, Batch, Keys], None]  # pixels (N, H, W, C), result, keys

Params = dict[str, float]

f = np.float32
CHUNK = 4  # images a thread takes at a time
SMALLEST = 8
ONE = np.uint32(0x3F800000)


@dataclass(frozen=True)
class Corruption:
    """One of the twenty corruptions at a severity.

    ``seed`` and each image's id fix its randomness. ``frost`` is a folder of pictures of frost to
    use in place of the synthesized textures. ``threads`` (all cores if None) changes the time
    taken and nothing else.

    >>> fog = Corruption("fog", 3)
    >>> fog.id
    'fog:3'
    >>> fog(np.full((2, 32, 32, 3), 128, np.uint8)).shape
    (2, 32, 32, 3)
    """

    name: str
    severity: int
    _: KW_ONLY
    seed: int = 0
    frost: str | None = None
    threads: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise unknown("corruption", self.name, NAMES)
        parameters(self.name, self.severity, 224, 224)
        if self.frost is not None and self.name != "frost":
            raise InputError(f"a folder of frost pictures is of no use to {self.name}")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads must be at least 1, got {self.threads}")

    @property
    def id(self) -> str:
        """The name and severity as a setting spells them: ``gaussian_noise:3``."""
        return f"{self.name}:{self.severity}"

    def __call__(self, images: Any, ids: Sequence[str] | None = None) -> Any:
        """Corrupt uint8 (N, H, W, C) or (N, H, W), or float (N, C, H, W) in [0, 1].

        The images may be an array, or a tensor on any device; the result is of the same kind,
        type and memory format, and the input is not changed. Without ids an image's position is
        its id. Eight bits are divided by 255, corrupted, and cut to ⌊255 x⌋ as ImageNet-C's are.
        """
        if not isinstance(images, np.ndarray):
            from shiftbed.evaluation.corruptions.on_device import corrupt_tensor

            return corrupt_tensor(self, images, ids)
        return as_given(self._corrupted(as_fractions(images), ids_of(ids, len(images))), images)

    def _corrupted(self, x: Batch, ids: Sequence[str]) -> Batch:
        """Corrupt fractions (N, C, H, W) with the compiled kernels."""
        check_shape(x.shape)
        keys = image_keys(ids, self.seed, self.name, self.severity)
        pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        out = np.empty_like(pixels)
        if len(x):
            height, width = pixels.shape[1:3]
            values = parameters(self.name, self.severity, height, width)
            run = plan(self.name, values, height, width, self.frost)

            def some(part: slice) -> None:
                check_range(pixels[part])
                run(pixels[part], out[part], keys[part])

            over_parts(some, len(x), self.threads)
        result = out.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(result) if x.flags.c_contiguous else result


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse (N, C, H, W) without 1 or 3 channels or with sides of less than 8 pixels."""
    if shape[1] not in (1, 3):
        hint = "" if shape[3] not in (1, 3) else "; float images have their channels second"
        if shape[2] in (1, 3):
            hint = "; uint8 images have their channels last"
        raise InputError(f"images must have 1 or 3 channels, got {shape[1]}{hint}")
    if min(shape[2:]) < SMALLEST:
        raise InputError(
            f"images must be at least {SMALLEST} pixels high and wide, got {shape[2]}×{shape[3]}"
        )


@kernel
def out_of_range(bits: NDArray[np.uint32]) -> bool:
    """Whether a float32, given as its bits, lies outside [0, 1] or is not a number.

    Bits order like values from 0 to 1; everything above is larger, negative or NaN.
    """
    most = np.uint32(0)
    for i in range(bits.size):
        most = max(most, bits[i])
    return bool(most > ONE)


def check_range(x: Batch) -> None:
    """Refuse values outside [0, 1]."""
    if not x.size:
        return
    values = x if x.flags.c_contiguous else x.transpose(0, 2, 3, 1)
    if out_of_range(np.ascontiguousarray(values).view(np.uint32).reshape(-1)):
        check_values(float(x.min()), float(x.max()), bool(np.isfinite(x).all()))


def over_parts(some: Callable[[slice], None], count: int, threads: int | None) -> None:
    """Call ``some`` on slices of ``count`` images by several threads; the first error is raised."""
    parts = [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
    threads = min(threads or cores(), len(parts))
    if threads == 1:
        for part in parts:
            some(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(some, parts):
            pass


@dataclass(frozen=True, kw_only=True)
class FunctionCorruption:
    """A corruption of one's own: ``function(x, ids, severity, seed)``, checked on both sides."""

    function: Callable[[Batch, Sequence[str], int, int], Batch]
    name: str
    severity: int
    seed: int = 0

    @property
    def id(self) -> str:
        """The name and severity, as for the others."""
        return f"{self.name}:{self.severity}"

    def __call__(self, images: Any, ids: Sequence[str] | None = None) -> Any:
        """Apply the function to a batch as ``Corruption`` takes it.

        The function sees float32 fractions (N, C, H, W), read-only.
        """
        if not isinstance(images, np.ndarray):
            from shiftbed.evaluation.corruptions.on_device import through_arrays

            return through_arrays(self, images, ids)
        x = as_fractions(images)
        check_shape(x.shape)
        check_range(x)
        seen = x.view()
        seen.flags.writeable = False
        out = np.asarray(self.function(seen, ids_of(ids, len(x)), self.severity, self.seed))
        if out.shape != x.shape or out.dtype != np.float32:
            raise InputError(
                f"corruption {self.name} must return float32 {x.shape}, got {out.dtype} {out.shape}"
            )
        try:
            check_range(out)
        except InputError as error:
            raise InputError(f"corruption {self.name} returned: {error}") from None
        return as_given(out, images)


def from_function(
    function: Callable[[Batch, Sequence[str], int, int], Batch],
    severity: int,
    *,
    seed: int = 0,
    name: str | None = None,
) -> FunctionCorruption:
    """Use a plain function ``f(x, ids, severity, seed)`` as a corruption.

    >>> def darker(x, ids, severity, seed):
    ...     return x * np.float32(1 - severity / 10)
    >>> half = from_function(darker, 5)
    >>> half.id, half(np.ones((1, 1, 8, 8), np.float32)).max()
    ('darker:5', np.float32(0.5))
    """
    called = name or function.__name__
    if called in NAMES:
        raise InputError(f"corruption {called!r} exists; give yours a name of its own")
    if severity < 1:
        raise InputError(f"corruption {called}: severity must be at least 1, got {severity!r}")
    return FunctionCorruption(function=function, name=called, severity=severity, seed=seed)


def plan(name: str, p: Params, height: int, width: int, folder: str | None = None) -> Run:
    """What to run over a few images at a time; tables that depend on the size are made here.

    ``folder`` holds pictures of frost.
    """
    if name == "frost":
        made = frost.textures(folder, p["resize"], height, width)
        return lambda x, out, keys: _lay_frost(x, out, keys, p, made)
    run, arguments = (_PLAIN | _DRAWN)[name]
    more = arguments(p, height, width)
    if name in _PLAIN:
        return lambda x, out, keys: run(x, out, *more)
    return lambda x, out, keys: run(x, out, keys, *more)


def _lay_frost(
    x: Batch, out: Batch, keys: Keys, p: Params, made: tuple[frost.Texture, ...]
) -> None:
    for n, cut in enumerate(frost.places(keys, made, *x.shape[1:3])):
        frost.lay_frost(x[n], out[n], *cut, f(p["keep"]), f(p["add"]))


def _lay_snow(x: Batch, out: Batch, keys: Keys, p: Params) -> None:
    weather.lay_snow(x, out, weather.snow_layer(keys, p, *x.shape[1:3]), f(p["keep"]))


def _lay_spatter(x: Batch, out: Batch, keys: Keys, p: Params) -> None:
    layers = weather.spatter_layers(keys, p, *x.shape[1:3])
    tint = weather.MUD if p["mud"] > 0 else weather.WATER
    for n in range(len(x)):
        weather.lay_spatter(x[n], out[n], layers[n], tint, p["mud"] > 0)


def _motion_blur(x: Batch, out: Batch, keys: Keys, p: Params) -> None:
    blur.motion(x, out, *blur.motion_path(keys, p, -45, 45))


Plans = dict[str, tuple[Callable[..., None], Callable[..., tuple[Any, ...]]]]
"""What runs, and its further arguments from parameters, height and width."""

_PLAIN: Plans = {
    "greyscale": (digital.greyscale, lambda p, *size: ()),
    "brightness": (digital.brightness, lambda p, *size: (f(p["add"]),)),
    "contrast": (digital.contrast, lambda p, *size: (f(p["factor"]),)),
    "saturate": (digital.saturate, lambda p, *size: (f(p["factor"]), f(p["add"]))),
    "pixelate": (
        digital.pixelate,
        lambda p, *size: tuple(one for side in size for one in digital.bounds(side, p["factor"])),
    ),
    "jpeg_compression": (digital.jpeg, lambda p, *size: (int(p["quality"]),)),
    "gaussian_blur": (blur.gaussian, lambda p, *size: (gaussian_taps(p["sigma"]),)),
    "defocus_blur": (blur.defocus, lambda p, *size: blur.disk(p["radius"], p["edge"])),
    "zoom_blur": (blur.zoom, lambda p, *size: blur.zoom_layers(p["end"], p["step"], *size)),
}
_DRAWN: Plans = {
    "gaussian_noise": (noise.gaussian, lambda p, *size: (f(p["scale"]),)),
    "speckle_noise": (noise.speckle, lambda p, *size: (f(p["scale"]),)),
    "impulse_noise": (noise.impulse, lambda p, *size: (p["amount"],)),
    "shot_noise": (
        noise.shot,
        lambda p, *size: (*noise.poisson_table(p["photons"]), f(p["photons"])),
    ),
    "glass_blur": (
        blur.glass,
        lambda p, *size: (gaussian_taps(p["sigma"]), int(p["reach"]), int(p["rounds"])),
    ),
    "motion_blur": (_motion_blur, lambda p, *size: (p,)),
    "snow": (_lay_snow, lambda p, *size: (p,)),
    "fog": (weather.fog, lambda p, *size: (f(p["thickness"]), p["decay"])),
    "spatter": (_lay_spatter, lambda p, *size: (p,)),
    "elastic_transform": (
        digital.elastic,
        lambda p, *size: (p["alpha"], p["sigma"], p["affine"]),
    ),
}
"""The same for those that draw from the images' keys."""
