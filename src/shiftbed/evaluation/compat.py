"""Make ``import torchvision`` work beside a torch build it was not compiled for.

torchvision's wheels are compiled against one build of torch. Beside another (a CUDA build of
torchvision and a CPU build of torch) its compiled operators cannot be loaded, and the import fails
with ``operator torchvision::nms does not exist``, although models and transforms need none of
them. Declaring the missing operators first lets the import succeed; calling them (``ops.nms``,
``io.*``) still fails. A matching pair of packages is left alone.
"""

import sys
from functools import cache
from typing import Any

from shiftbed.errors import InputError

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")


@cache
def ensure_torchvision() -> bool:
    """Import torchvision, declaring the operators it misses if it would fail; whether it did.

    Call this before importing timm, torchvision, open_clip or transformers' image processors.

    >>> ensure_torchvision() in (True, False)
    True
    """
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    except ImportError as error:
        raise InputError(
            f"torchvision cannot be imported ({error}): pip install 'shiftbed[evaluate]'"
        ) from None
    else:
        return False
    _forget_half_imported()
    _kept.append(_declare_operators())
    import torchvision  # noqa: F401

    return True


def _forget_half_imported() -> None:
    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]


def _declare_operators() -> Any:
    import torch

    library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in _OPERATORS:
        library.define(f"{name}{_SIGNATURE}")
    return library


_kept: list[Any] = []
"""A library's operators live only as long as it does."""
