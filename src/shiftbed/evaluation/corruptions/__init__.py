"""The twenty corruptions of ImageNet-C and the testbed, on batches of images.

See the README in this folder for the method, the parameters and what differs from the reference.
"""

from shiftbed.evaluation.corruptions.corruption import (
    Corruption,
    FunctionCorruption,
    from_function,
)
from shiftbed.evaluation.corruptions.params import NAMES, parameters, severities

__all__ = [
    "NAMES",
    "Corruption",
    "FunctionCorruption",
    "from_function",
    "parameters",
    "severities",
]
