"""Ways to spoil a file: bytes, values of JSON, TOML, tables and arrays, and what is no file."""

import io
import json
import os
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

Mutation = Callable[[bytes, random.Random], bytes]
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 1e308, -0.0, 0.5, 1.5),
    *(float("nan"), float("inf"), float("-inf"), "", " ", "a", "0", "-1", "nan", "1e999", "\x00"),
    *("../../etc/passwd", "a/b", "\u202egnp.exe", "=1+1", "x" * 5000, "\ud800", "é", "🙂", "%s{}"),
    *([], {}, [[]], [None], [1, "a"], {"a": {}}, [[[[[[]]]]]], {"": None}, list(range(300))),
)
TOML = (
    *(
        "0",
        "-1",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "true",
        '""',
        '"a"',
        '"/dev/zero"',
        "[]",
        "{}",
        "[[]]",
    ),
    *("[1, 2]", '["a"]', "{a = 1}", "9223372036854775807", "99999999999999999999999", "1e400"),
    *(
        "1979-05-27",
        "1979-05-27T07:32:00Z",
        '"\\u0000"',
        '"../x"',
        "[{a = 1}]",
        "[nan]",
        "'''\n'''",
    ),
)
CELLS = (
    *(
        "",
        " ",
        "nan",
        "inf",
        "-1",
        "1e400",
        "2",
        "101",
        "0",
        "1",
        "0,5",
        "1.2.3",
        "true",
        "é",
        "=1+1",
    ),
    *(
        '"',
        '""',
        '"a',
        "a\tb",
        ";",
        "\x00",
        "\ufeff",
        "9" * 400,
        "1e-400",
        "-0",
        "None",
        "½",
        "۵",
        "x" * 2000,
    ),
)


# --- bytes -----------------------------------------------------------------------------------


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 40))):
        at = rng.randrange(len(out))
        out[at] ^= 1 << rng.randrange(8)
    return bytes(out)


def flip_ends(data: bytes, rng: random.Random) -> bytes:
    """In the first or last bytes, where headers and footers are."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        at = rng.randrange(min(len(out), 300))
        out[at if rng.random() < 0.4 else -1 - at] = rng.choice(
            (0, 0xFF, 0x7F, 0x80, rng.randrange(256))
        )
    return bytes(out)


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def splice(data: bytes, rng: random.Random) -> bytes:
    """A piece is cut out, doubled, or put elsewhere."""
    a, b = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    at = rng.randrange(len(data) + 1)
    piece = data[a:b]
    kind = rng.randrange(4)
    if kind == 0:
        return data[:a] + data[b:]
    if kind == 1:
        return data[:b] + piece + data[b:]
    if kind == 2:
        return data[:at] + piece + data[at:]
    return data[:a] + bytes(rng.randrange(256) for _ in range(min(b - a, 200))) + data[b:]


def number(data: bytes, rng: random.Random) -> bytes:
    """Four or eight bytes become an extreme number."""
    width = rng.choice((1, 2, 4, 8))
    value = rng.choice((0, 1, 2 ** (8 * width - 1) - 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1))
    at = rng.randrange(max(len(data) - width, 1))
    order = rng.choice(("little", "big"))
    return data[:at] + value.to_bytes(width, order) + data[at + width :]  # type: ignore[arg-type]


def replaced(data: bytes, rng: random.Random) -> bytes:
    """Something else altogether."""
    text = data.decode("utf-8", "replace")
    return rng.choice(
        (
            b"",
            b"\n",
            b"\x00" * 100,
            b"\xff\xfe",
            b"\xef\xbb\xbf" + data,
            text.encode("utf-16"),
            text.encode("utf-32"),
            text.encode("latin-1", "replace").replace(b"e", b"\xe9"),
            data.replace(b"\n", b"\r"),
            data + b"\x00",
            b"[" * 100_000,
            b'{"a":' * 50_000,
            b"a.b = 1\n" * 3,
            b"PAR1" + data[-400:],
            b"PK\x03\x04" + data[4:],
            b"\x1f\x8b\x08" + data[3:],
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': "
            b"(99999999999999,), }",
            b"\x89PNG\r\n\x1a\n" + data[8:],
            bytes(rng.randrange(256) for _ in range(300)),
        )
    )


BYTES: tuple[Mutation, ...] = (flip_bits, flip_ends, truncate, splice, number, replaced)


# --- JSON, TOML, delimited text --------------------------------------------------------------


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            _places(inner, found)
    return found


def json_values(data: bytes, rng: random.Random) -> bytes:
    """Values swapped, left out or renamed; a store's checksum mostly left out as well."""
    whole = json.loads(data)
    holder = [whole]
    if isinstance(whole, dict) and rng.random() < 0.8:
        whole.pop("sha256", None)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        places = _places(holder, [])
        inside, key = rng.choice(places)
        kind = rng.random()
        if kind < 0.7:
            inside[key] = rng.choice(NASTY)
        elif kind < 0.85 and inside is not holder:
            del inside[key]
        elif isinstance(inside, dict):
            inside[rng.choice(("", "model", "x", "n", "setting"))] = inside.pop(key)
        else:
            inside.append(inside[key])
    return json.dumps(holder[0] if holder else None, ensure_ascii=True).encode()


def json_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = json_values(lines[at], rng)
    return b"\n".join(lines)


def toml_values(data: bytes, rng: random.Random) -> bytes:
    """Values swapped, lines left out, doubled, moved, keys renamed."""
    lines = data.decode().splitlines()
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        line = lines[at]
        kind = rng.random()
        if kind < 0.6 and "=" in line:
            key, _, value = line.partition("=")
            inner = list(re.finditer(r'"[^"]*"|[-\w.]+', value))
            if inner and rng.random() < 0.6:
                spot = rng.choice(inner)
                value = value[: spot.start()] + rng.choice(TOML) + value[spot.end() :]
            else:
                value = " " + rng.choice(TOML)
            lines[at] = f"{key}={value}"
        elif kind < 0.75:
            del lines[at]
        elif kind < 0.85:
            lines.insert(rng.randrange(len(lines) + 1), line)
        else:
            other = rng.choice(lines)
            lines[at] = f"{line.partition('=')[0]}={other.partition('=')[2]}"
    return "\n".join(lines).encode()


def cells(data: bytes, rng: random.Random) -> bytes:
    """Cells swapped, columns renamed, lines left out or doubled."""
    utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if utf16 else "utf-8")
    mark = max(",;\t", key=lambda one: text.partition("\n")[0].count(one))
    rows = [line.split(mark) for line in text.splitlines()]
    for _ in range(rng.choice((1, 1, 2, 5))):
        row = rng.choice(rows)
        kind = rng.random()
        if kind < 0.7 and row:
            row[rng.randrange(len(row))] = rng.choice(CELLS)
        elif kind < 0.8:
            row += [rng.choice(CELLS)]
        elif kind < 0.9:
            rows.append(list(row))
        else:
            at = rng.randrange(len(row) or 1)
            for one in rows:
                one[at : at + 1] = []
    out = "\n".join(mark.join(row) for row in rows)
    return out.encode("utf-16" if utf16 else "utf-8", "surrogatepass")


# --- Parquet and NumPy -----------------------------------------------------------------------


def parquet_columns(data: bytes, rng: random.Random) -> bytes:
    """Columns of other types, with nulls, renamed, left out; no rows, many rows."""
    kept = pl.read_parquet_metadata(io.BytesIO(data))
    frame = pl.read_parquet(io.BytesIO(data))
    name = rng.choice(frame.columns)
    column, n = frame[name], len(frame)
    odd: tuple[Callable[[], pl.DataFrame], ...] = (
        lambda: frame.drop(name),
        lambda: frame.rename({name: rng.choice(("", "x", "\u202e", "class_1", "a.b"))}),
        lambda: frame.with_columns(pl.lit(None).alias(name)),
        lambda: frame.with_columns(pl.Series(name, [None] * n, dtype=column.dtype)),
        lambda: frame.with_columns(pl.Series(name, [rng.choice(CELLS)] * n)),
        lambda: frame.with_columns(pl.Series(name, [float("nan")] * n)),
        lambda: frame.with_columns(pl.Series(name, [float("inf")] * n)),
        lambda: frame.with_columns(pl.Series(name, [2**62] * n)),
        lambda: frame.with_columns(pl.Series(name, [-1] * n)),
        lambda: frame.with_columns(pl.Series(name, [65535] * n, dtype=pl.UInt16)),
        lambda: frame.with_columns(pl.Series(name, [[1, 2]] * n)),
        lambda: frame.with_columns(pl.Series(name, [{"a": 1}] * n)),
        lambda: frame.with_columns(pl.Series(name, [b"\xff"] * n)),
        lambda: frame.with_columns(pl.Series(name, [True] * n)),
        lambda: frame.with_columns(pl.Series(name, range(n)).cast(pl.Date).alias(name)),
        lambda: frame.with_columns(pl.Series(name, ["a"] * n).cast(pl.Categorical)),
        lambda: frame.head(0),
        lambda: frame.head(1),
        lambda: pl.concat([frame, frame]),
        lambda: frame.select(pl.lit(1).alias("x")),
    )
    out = io.BytesIO()
    text = kept.get("shiftbed")
    if text is not None and rng.random() < 0.5:
        text = json_values(text.encode(), rng).decode()
        made = frame
    else:
        made = rng.choice(odd)()
    made.write_parquet(out, metadata=None if text is None else {"shiftbed": text})
    return out.getvalue()


def arrays(data: bytes, rng: random.Random) -> bytes:
    """An array of an .npz of another type, shape or size, or a header that promises too much."""
    with np.load(io.BytesIO(data), allow_pickle=False) as read:
        held = dict(read)
    name = rng.choice(sorted(held))
    held[name] = _array(held[name], rng)
    if rng.random() < 0.15:
        held[rng.choice(("x", "labels", "images", "../a", ""))] = held.pop(name)
    out = io.BytesIO()
    with zipfile.ZipFile(
        out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as archive:
        for key, value in held.items():
            inner = io.BytesIO()
            np.save(inner, value, allow_pickle=value.dtype == object)
            whole = inner.getvalue()
            if key == name and rng.random() < 0.2:
                whole = flip_ends(whole, rng)
            archive.writestr(f"{key}.npy", whole)
    return out.getvalue()


def one_array(data: bytes, rng: random.Random) -> bytes:
    out = io.BytesIO()
    made = _array(np.load(io.BytesIO(data)), rng)
    np.save(out, made, allow_pickle=made.dtype == object)
    return out.getvalue()


def _array(value: np.ndarray, rng: random.Random) -> np.ndarray:
    odd: tuple[Callable[[], np.ndarray], ...] = (
        lambda: value[:0],
        lambda: value[:1],
        lambda: value[..., None],
        lambda: value.reshape(-1),
        lambda: np.array(3),
        lambda: np.array("text"),
        lambda: np.array(["a"] * len(value)),
        lambda: np.full(value.shape, np.nan),
        lambda: np.full(value.shape, np.inf),
        lambda: np.full(value.shape, -1),
        lambda: np.full(value.shape, 2**62),
        lambda: np.zeros(value.shape, complex),
        lambda: np.zeros(value.shape, "M8[s]"),
        lambda: np.zeros(value.shape, [("a", "i4")]),
        lambda: np.zeros(value.shape, bool),
        lambda: np.zeros(value.shape, "S3"),
        lambda: np.array([None] * max(len(value), 1), dtype=object),
        lambda: value.T,
        lambda: np.asfortranarray(value.astype(">f4") if value.dtype.kind in "iuf" else value),
        lambda: np.concatenate([value, value]),
        lambda: np.zeros((0, 8, 8, 3), np.uint8),
        lambda: np.zeros((2, 0, 0, 3), np.uint8),
    )
    return rng.choice(odd)()


STRUCTURED: dict[str, tuple[Mutation, ...]] = {
    ".json": (json_values,),
    ".jsonl": (json_lines,),
    ".toml": (toml_values,),
    ".csv": (cells,),
    ".tsv": (cells,),
    ".txt": (cells,),
    ".parquet": (parquet_columns,),
    ".npz": (arrays,),
    ".npy": (one_array,),
}


def mutate(data: bytes, suffix: str, rng: random.Random) -> bytes:
    """One spoilt version, by a mutation of its format as often as by one of bytes."""
    own = STRUCTURED.get(suffix, ())
    if own and rng.random() < 0.6:
        return rng.choice(own)(data, rng)
    return rng.choice(BYTES)(data or b"\x00", rng)


# --- no file at all --------------------------------------------------------------------------


def place_fifo(path: Path) -> None:
    os.mkfifo(path)


def place_folder(path: Path) -> None:
    path.mkdir()


def place_loop(path: Path) -> None:
    path.symlink_to(path.name)


def place_nothing(path: Path) -> None:
    path.symlink_to("/nonexistent/file")


def place_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


PLACED: dict[str, Callable[[Path], None]] = {
    "fifo": place_fifo,
    "folder": place_folder,
    "loop": place_loop,
    "dangling": place_nothing,
    "device": place_device,
}
"""What stands in a file's place instead."""
