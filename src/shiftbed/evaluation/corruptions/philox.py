"""Random numbers from a counter: the n-th draw of an image is a function, not a state.

Philox4x32-10 (Salmon et al. 2011, *Parallel random numbers: as easy as 1, 2, 3*) turns a 64-bit key
and a 128-bit counter into four 32-bit words. The key is a hash of (seed, image id, corruption,
severity); the counter is (block, stream, 0, 0), where a stream is one use of randomness within a
corruption. Nothing depends on which images were drawn before.

Words are laid out in tiles of 1,024: word j of block i of tile t is element 1024·t + 256·j + i.
That order lets one block of code fill vector registers, and it does not depend on how many are
drawn: the first n words are the first n of any longer draw.

Normals are the inverse distribution function of one word each. Only additions, multiplications,
square roots and bit shifts are used, each rounded once, so torch computes the same bits.
"""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from shiftbed.evaluation.corruptions.kernels import f, inlined, kernel

TILE = 1024
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
M0, M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
W0, W1 = np.uint32(WEYL[0]), np.uint32(WEYL[1])

LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
"""Coefficients of the polynomials in ``normal``."""

Words = NDArray[np.uint32]
Keys = NDArray[np.uint64]


def image_keys(ids: Sequence[str], seed: int, name: str, severity: int) -> Keys:
    """One 64-bit key per image: the first eight bytes of BLAKE2b of seed, name, severity and id."""
    start = f"{seed}|{name}|{severity}|".encode()
    digests = (
        blake2b(start + i.encode("utf-8", "surrogatepass"), digest_size=8).digest() for i in ids
    )
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def block(key: int, counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """One block of Philox4x32-10 in plain integers: what the fast ones are tested with."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF
        c2, c3 = (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def uniforms(key: int, stream: int, count: int) -> list[float]:
    """``count`` ≤ 4 numbers in [0, 1) for what an image needs once: an angle, a place to crop."""
    return [w / 2**32 for w in block(int(key), (0, stream, 0, 0))[:count]]


@kernel
def fill_tile(key: int, stream: int, tile: int, words: Words) -> None:
    """The 1,024 words of one tile."""
    lanes = words.shape[0] // 4
    base = tile * lanes
    for i in range(lanes):
        c0 = np.uint32(base + i)
        c1 = np.uint32(stream)
        c2 = np.uint32(0)
        c3 = np.uint32(0)
        k0 = np.uint32(np.uint64(key) & np.uint64(0xFFFFFFFF))
        k1 = np.uint32(np.uint64(key) >> np.uint64(32))
        for _ in range(10):
            p0 = np.uint64(c0) * M0
            p1 = np.uint64(c2) * M1
            c0 = np.uint32(np.uint32(p1 >> np.uint64(32)) ^ c1 ^ k0)
            c2 = np.uint32(np.uint32(p0 >> np.uint64(32)) ^ c3 ^ k1)
            c1 = np.uint32(p1)
            c3 = np.uint32(p0)
            k0 = np.uint32(k0 + W0)
            k1 = np.uint32(k1 + W1)
        words[i] = c0
        words[lanes + i] = c1
        words[2 * lanes + i] = c2
        words[3 * lanes + i] = c3


@inlined
def polynomial(at: np.float32, coefficients: tuple[float, ...]) -> np.float32:
    """Horner's rule, highest power first, each product and sum rounded on its own."""
    value = f(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * at + f(coefficient)
    return value


@inlined
def normal(word: np.uint32) -> np.float32:
    """A standard normal from one word: the top bit is its sign, the rest P(|Z| > |z|).

    With v = P(|Z| > |z|), z = √2 erf⁻¹(1 − v), by Giles's two polynomials in w = −log(v(2 − v))
    (*Approximating the erfinv function*, 2010); the logarithm is Cephes's. Off by less than 3e-6
    up to |z| = 5.5 and by less than 0.003 beyond, which one draw in 26 million is.
    """
    v = (f(np.int32(word & np.uint32(0x7FFFFFFF))) + f(0.5)) * f(2.0**-31)
    y = f(v * (f(2) - v))
    bits = y.view(np.int32)
    exponent = np.int32((bits - np.int32(0x3F3504F3)) >> np.int32(23))
    t = np.int32(bits - np.int32(exponent << np.int32(23))).view(np.float32) - f(1)
    p = polynomial(t, LOG)
    square = t * t
    w = -(((p * t) * square - f(0.5) * square) + t + f(exponent) * f(0.6931471805599453))
    near = polynomial(w - f(2.5), NEAR)
    far = polynomial(f(np.sqrt(max(w, f(0)))) - f(3), FAR)
    z = ((near if w < f(5) else far) * (f(1) - v)) * f(1.4142135623730951)
    return -z if word >> np.uint32(31) else z


@kernel
def fill_words(key: int, stream: int, out: Words) -> None:
    """The first ``out.size`` words of a stream."""
    tile = np.empty(TILE, np.uint32)
    for start in range(0, out.size, TILE):
        fill_tile(key, stream, start // TILE, tile)
        stop = min(start + TILE, out.size)
        out[start:stop] = tile[: stop - start]


@kernel
def fill_normals(key: int, stream: int, out: NDArray[np.float32]) -> None:
    """The first ``out.size`` standard normals of a stream."""
    tile = np.empty(TILE, np.uint32)
    for start in range(0, out.size, TILE):
        fill_tile(key, stream, start // TILE, tile)
        some = out[start : start + TILE]
        for i in range(some.size):
            some[i] = normal(tile[i])
