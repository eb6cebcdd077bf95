"""Lists in a recipe are sweeps: one table becomes all its combinations, and each gets a name."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any


def combinations(value: Any) -> Iterator[Any]:
    """Every combination of the lists within a value, at any depth, in the order they are written.

    A list is a sweep; a list in a list is a value that is a list.

    >>> list(combinations({"lr": [0.1, 0.01], "name": "SGD"}))
    [{'lr': 0.1, 'name': 'SGD'}, {'lr': 0.01, 'name': 'SGD'}]
    >>> list(combinations({"milestones": [[30, 60]]}))
    [{'milestones': [30, 60]}]
    """
    if isinstance(value, Mapping):
        keys = list(value)
        for values in product(*(list(combinations(value[key])) for key in keys)):
            yield dict(zip(keys, values, strict=True))
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, list):
                yield one
            else:
                yield from combinations(one)
    else:
        yield value


def canonical(value: Any) -> str:
    """The same text for the same arguments: keys sorted, whole floats as they print.

    >>> canonical({"b": 1e-3, "a": 1}) == canonical({"a": 1, "b": 0.001})
    True
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def short_hash(value: Any) -> str:
    """Twelve hexadecimal digits of the SHA-256 of the canonical text.

    >>> short_hash({"lr": 0.1})
    '9c9ba942d8bb'
    """
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:12]
