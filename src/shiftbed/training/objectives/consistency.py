"""AugMix's loss: cross-entropy and agreement of three views of an example."""

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from shiftbed.errors import InputError
from shiftbed.training.objective import Batch, Objective


def jensen_shannon(logits: tuple[Tensor, ...]) -> Tensor:
    """JS(p₁; …; p_k) = mean_i KL(p_i ‖ m), m = mean_i p_i, averaged over the batch (B, classes).

    Hendrycks et al. 2020, Section 3. In [0, log k]; 0 where all agree.

    >>> z = torch.tensor([[2.0, 0.0, -1.0]])
    >>> abs(float(jensen_shannon((z, z, z)))) < 1e-6
    True
    >>> far = torch.tensor([[100.0, 0.0]])
    >>> round(float(jensen_shannon((far, far.flip(1)))), 4)  # log 2
    0.6931
    """
    logs = torch.stack([functional.log_softmax(one, dim=1) for one in logits])
    mixture = torch.logsumexp(logs, dim=0) - math.log(len(logits))
    return (logs.exp() * (logs - mixture)).sum(dim=2).mean()


@final
class Consistency(Objective):
    """CE(clean) + ``weight``·JS(clean; view 1; view 2), the views drawn by the augmentation.

    Hendrycks et al. 2020, Section 3: λ = 12. Cross-entropy is on the clean example alone. All views
    go through the network as one batch, so batch statistics are shared.
    """

    views = 2
    clean_first = True

    def __init__(self, weight: float = 12.0) -> None:
        if not weight > 0:
            raise InputError(f"objective 'augmix': weight must be above 0, got {weight!r}")
        self.weight = weight

    def loss(self, network: nn.Module, batch: Batch) -> Tensor:
        logits = network(torch.cat([batch.pixels, *batch.views]))
        parts = torch.chunk(logits, 1 + self.views)
        return functional.cross_entropy(parts[0], batch.labels) + self.weight * jensen_shannon(
            parts
        )
