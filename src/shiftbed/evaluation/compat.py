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


@cache
def ensure_torchvision() -> bool:
    """Import torchvision, declaring the operators it misses if it would fail; whether it did.

    Call this before importing timm, torchvision, open_clip or transformers' image processors.
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
    for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # half imported
    import torch

    library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}{_SIGNATURE}")
    _kept.append(library)
    import torchvision  # noqa: F401

    return True


_kept: list[Any] = []
"""A library's operators live only as long as it does."""
