"""The twenty corruptions of ImageNet-C and the testbed, on batches of [0, 1] images.

See the README in this folder for the method, the parameters and what differs from the reference.
"""

from shiftbed.evaluation.corruptions.corruption import (
    Corruption,
    FunctionCorruption,
    corrupt,
    from_function,
)
from shiftbed.evaluation.corruptions.params import NAMES, parameters, severities

__all__ = [
    "NAMES",
    "Corruption",
    "FunctionCorruption",
    "corrupt",
    "from_function",
    "parameters",
    "severities",
]
