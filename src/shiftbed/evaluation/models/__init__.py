"""Any classifier under one line of text; how each prefix is read says ``README.md`` beside this.

>>> from shiftbed.evaluation.models import resolve
>>> model = resolve("timm:resnet10t?pretrained=false&num_classes=7&size=32")
>>> model.id
'timm:resnet10t?num_classes=7&pretrained=false&seed=0&size=32'
>>> import numpy as np
>>> model.logits(np.zeros((2, 3, 32, 32), np.float32)).shape
(2, 7)
"""

from shiftbed.evaluation.models.base import FunctionModel, Model
from shiftbed.evaluation.models.registry import PREFIXES, resolve
from shiftbed.evaluation.models.torch_model import TorchModel

__all__ = ["PREFIXES", "FunctionModel", "Model", "TorchModel", "resolve"]
