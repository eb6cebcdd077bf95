"""Any classifier, from a line of text or an object; how each prefix is read says ``README.md``.

>>> from shiftbed.evaluation.models import resolve
>>> network = resolve("timm:resnet10t?pretrained=false&num_classes=7&size=32")
>>> network.id
'timm:resnet10t?num_classes=7&pretrained=false&seed=0&size=32'
>>> import numpy as np
>>> network.logits(np.zeros((2, 3, 32, 32), np.float32)).shape
(2, 7)
"""

from shiftbed.evaluation.models.base import FunctionModel, Model
from shiftbed.evaluation.models.registry import PREFIXES, model, resolve
from shiftbed.evaluation.models.torch_model import TorchModel

__all__ = ["PREFIXES", "FunctionModel", "Model", "TorchModel", "model", "resolve"]
