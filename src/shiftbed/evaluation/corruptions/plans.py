"""From a corruption's parameters and an image's shape to a function that fills a batch."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluation.corruptions import blur, colour, digital, frost, lens, noise, weather
from shiftbed.evaluation.corruptions.philox import Keys, uniforms
from shiftbed.evaluation.corruptions.smooth import gaussian_taps

Batch = NDArray[np.float32]
Params = dict[str, float]
Run = Callable[[Batch, Batch, Keys], None]  # pixels (N, H, W, C), result, keys

f = np.float32


def plan(name: str, p: Params, height: int, width: int, folder: str | None = None) -> Run:
    """What to run over a few images at a time; tables that depend on the size are made here.

    ``folder`` holds pictures of frost.
    """
    match name:
        case "greyscale":
            return lambda x, out, keys: colour.greyscale(x, out)
        case "gaussian_noise":
            return lambda x, out, keys: noise.gaussian(x, out, keys, f(p["scale"]))
        case "shot_noise":
            cdf, start, photons = noise.poisson_table(p["photons"])
            return lambda x, out, keys: noise.shot(x, out, keys, cdf, start, f(photons))
        case "impulse_noise":
            return lambda x, out, keys: noise.impulse(x, out, keys, p["amount"])
        case "speckle_noise":
            return lambda x, out, keys: noise.speckle(x, out, keys, f(p["scale"]))
        case "brightness":
            return lambda x, out, keys: colour.brightness(x, out, f(p["add"]))
        case "contrast":
            return lambda x, out, keys: colour.contrast(x, out, f(p["factor"]))
        case "saturate":
            return lambda x, out, keys: colour.saturate(x, out, f(p["factor"]), f(p["add"]))
        case "pixelate":
            rows, columns = (digital.bounds(size, p["factor"]) for size in (height, width))
            return lambda x, out, keys: digital.pixelate(x, out, *rows, *columns)
        case "jpeg_compression":
            return lambda x, out, keys: digital.jpeg(x, out, int(p["quality"]))
        case "elastic_transform":
            return lambda x, out, keys: digital.elastic(
                x, out, keys, p["alpha"], p["sigma"], p["affine"]
            )
        case _:
            return _plan_layers(name, p, height, width, folder)


def _plan_layers(name: str, p: Params, height: int, width: int, folder: str | None) -> Run:
    """The blurs and the weather."""
    match name:
        case "gaussian_blur":
            taps = gaussian_taps(p["sigma"])
            return lambda x, out, keys: blur.gaussian(x, out, taps)
        case "defocus_blur":
            runs = lens.disk(p["radius"], p["edge"])
            return lambda x, out, keys: lens.defocus(x, out, *runs)
        case "glass_blur":
            taps = gaussian_taps(p["sigma"])
            reach, rounds = int(p["reach"]), int(p["rounds"])
            return lambda x, out, keys: blur.glass(x, out, keys, taps, reach, rounds)
        case "motion_blur":
            return lambda x, out, keys: lens.motion(x, out, *motion_path(keys, p, -45, 45))
        case "zoom_blur":
            layers = lens.zoom_layers(p["end"], p["step"], height, width)
            return lambda x, out, keys: lens.zoom(x, out, *layers)
        case "snow":
            return lambda x, out, keys: weather.lay_snow(
                x, out, snow_layer(keys, p, height, width), f(p["keep"])
            )
        case "fog":
            return lambda x, out, keys: weather.fog(x, out, keys, f(p["thickness"]), p["decay"])
        case "frost":
            made = frost.textures(folder, p["resize"], height, width)
            return lambda x, out, keys: _lay_frost(x, out, keys, p, made)
        case "spatter":
            return lambda x, out, keys: _lay_spatter(x, out, keys, p)
        case _:
            raise KeyError(name)


def motion_path(keys: Keys, p: Params, low: float, high: float) -> tuple[lens.Ints, lens.Floats]:
    """Steps and weights of a motion whose angle, in degrees, is drawn per image (stream 9)."""
    weights = lens.motion_weights(int(p["radius"]), p["sigma"])
    angles = [low + (high - low) * uniforms(int(key), 9, 1)[0] for key in keys]
    return lens.motion_offsets(angles, weights.size), weights


def snow_layer(keys: Keys, p: Params, height: int, width: int) -> NDArray[np.float32]:
    """Snow for each image, (N, H, W, 1), falling at −135° to −45°."""
    return weather.snow_layer(keys, height, width, p, *motion_path(keys, p, -135, -45))


def spatter_layers(keys: Keys, p: Params, height: int, width: int) -> NDArray[np.float32]:
    """Liquid for each image, (N, H, W)."""
    taps, mud = gaussian_taps(p["sigma"]), gaussian_taps(p["mud"])
    layers = [weather.spatter_layer(key, height, width, p, taps, mud) for key in keys]
    return np.stack(layers)


def _lay_spatter(x: Batch, out: Batch, keys: Keys, p: Params) -> None:
    layers = spatter_layers(keys, p, *x.shape[1:3])
    tint = weather.tint(p["mud"] > 0)
    for n in range(len(x)):
        weather.lay_spatter(x[n], out[n], layers[n], tint, p["mud"] > 0)


def _lay_frost(
    x: Batch, out: Batch, keys: Keys, p: Params, made: tuple[frost.Texture, ...]
) -> None:
    for n, cut in enumerate(frost.places(keys, made, *x.shape[1:3])):
        frost.lay_frost(x[n], out[n], *cut, f(p["keep"]), f(p["add"]))
