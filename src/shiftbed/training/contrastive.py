"""CLIP-style training: images and captions towards each other, by open_clip's loss.

The image tower is the recipe's network, its head turned into a projection; the text tower is a
small transformer of open_clip with its tokenizer. Captions come with the images (pairs without a
class: ``caption_column`` of a data set), from a file, or from class names by templates; a mix may
have examples of both kinds. What answers test images compares them with prompts (zero-shot).
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from shiftbed.captioning.classes import read_classes as caption_classes
from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.data.raw_examples import IMAGENET, read_classes
from shiftbed.evaluation.models.from_open_clip import TEMPLATES
from shiftbed.evaluation.models.modules import ZeroShot
from shiftbed.evaluation.models.torch_model import seeded
from shiftbed.training.augment import keys_of, uniforms
from shiftbed.training.forgetting import become
from shiftbed.training.objective import Objective, Setup, TrainingBatch
from shiftbed.training.select import of_examples, read_column

if TYPE_CHECKING:
    from shiftbed.training.loop import Run


Tokenizer = Callable[[list[str]], Tensor]


def templates_of(given: Sequence[str]) -> tuple[str, ...]:
    """Templates that are each about one class."""
    found = (given,) if isinstance(given, str) else tuple(given)
    for one in found:
        if one.count("{}") != 1 or one.count("{") != 1 or one.count("}") != 1:
            raise InputError(f"a template must have {{}} once, for the class, got {one!r}")
    if not found:
        raise InputError("objective 'contrastive' needs at least one template")
    return found


@lru_cache(maxsize=4)
def tokenizer(context_length: int) -> Tokenizer:
    """open_clip's byte-pair tokenizer, which comes with the package: texts to (N, L) tokens."""
    ensure_torchvision()
    import open_clip

    cut: Tokenizer = open_clip.SimpleTokenizer(context_length=context_length)
    return cut


def read_captions(
    file: Path, examples: Sequence[str], cut: Tokenizer
) -> tuple[Tensor, NDArray[np.int64]]:
    """(U, L) distinct captions of examples, and (N,) which one each has.

    From a file with columns ``example`` and ``caption``; examples are named as the data set names
    them, with or without ``DATA/`` in front.
    """
    known = dict(read_column(file, "caption", "captions").iter_rows())
    return distinct(of_examples(known, examples, f"{file}: no caption"), cut)


def distinct(texts: Sequence[str | None], cut: Tokenizer) -> tuple[Tensor, NDArray[np.int64]]:
    """(U, L) the distinct ones among texts, and (N,) which one each is, −1 for none."""
    every = sorted({text for text in texts if text})
    place = {text: at for at, text in enumerate(every)}
    return cut(every), np.array([place.get(text or "", -1) for text in texts])


COLDEST = math.log(100.0)
"""Largest logarithm of the scale, as CLIP clips it."""


@final
class ImageText(nn.Module):
    """Two towers into one space, and the learned scale of their cosine.

    ``length`` is the running mean length of image embeddings before they are normalised.
    """

    length: Tensor

    def __init__(self, image: nn.Module, head: nn.Linear, text: nn.Module) -> None:
        super().__init__()
        self.image, self.text = image, text
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.register_buffer("length", torch.tensor(1.0))
        self._head = (head,)

    @property
    def head(self) -> nn.Linear:
        """The projection, a part of the image tower."""
        return self._head[0]

    def forward(self, x: Tensor) -> Tensor:
        """(B, width) image embeddings of length 1."""
        return functional.normalize(self.image(x), dim=-1)

    def texts(self, tokens: Tensor) -> Tensor:
        """(B, width) text embeddings of length 1."""
        return functional.normalize(self.text(tokens), dim=-1)


@torch.no_grad()
def _prompted(network: ImageText, prompts: Tensor) -> Tensor:
    """(classes, width): the mean embedding of each class's prompts (K, T, L), of length 1."""
    network.text.eval()
    classes, templates, _ = prompts.shape
    place = network.logit_scale.device
    found = network.texts(prompts.flatten(0, 1).to(place)).view(classes, templates, -1)
    return functional.normalize(found.mean(dim=1), dim=-1)


def zero_shot(network: ImageText, prompts: Tensor) -> nn.Module:
    """A classifier of images by prompts: scale · cos(image, text) (radford2021, Section 3.1)."""
    scale = network.logit_scale.exp().item()
    return ZeroShot(network.image, _prompted(network, prompts), scale)


@torch.no_grad()
def plain_classifier(network: ImageText, prompts: Tensor) -> nn.Module:
    """A copy of the image tower whose head is the prompts': fine-tuning starts from it.

    cos is a positive multiple of ⟨text, P·f + b⟩ per image, so the linear head s·T·P, s·T·b answers
    exactly as zero-shot does; s is the scale over the usual length of embeddings.
    """
    text = _prompted(network, prompts)
    scale = network.logit_scale.exp() / network.length
    head = network.head
    other = nn.Linear(head.in_features, len(text))
    other.weight.copy_(scale * text @ head.weight)
    bias = torch.zeros(len(head.weight)) if head.bias is None else head.bias
    other.bias.copy_(scale * text @ bias)
    both: tuple[nn.Module, nn.Linear] = deepcopy((network.image, head))
    become(both[1], other)
    return both[0]


@final
class Contrastive(Objective):
    """open_clip's symmetric cross-entropy over the images and captions of a batch.

    ``width`` of the common space, ``text_width``, ``text_layers``, ``text_heads`` and
    ``context_length`` of the text tower. ``templates`` have ``{}`` for the class (open_clip models'
    prompts here, by default); each time an example is seen one is drawn. ``class_names`` replace
    the data set's own: names, a file with one per line, or ``imagenet-1k``; pairs without classes
    need them, in the order of the test sets' labels. Captions that come with the data are trained
    on in place of templates, or those of ``captions``, a CSV or Parquet file with columns
    ``example`` and ``caption``; prompts still evaluate.

    Later stages start from ``plain_classifier``; the text tower is not handed on.
    """

    remembered = ("calls",)
    needs_labels = False

    def __init__(
        self,
        width: int = 64,
        text_width: int = 64,
        text_layers: int = 2,
        text_heads: int = 4,
        context_length: int = 24,
        templates: Sequence[str] = TEMPLATES,
        class_names: Sequence[str] | str | None = None,
        captions: str | None = None,
    ) -> None:
        sizes = (width, text_width, text_layers, text_heads, context_length)
        if min(sizes) < 1 or text_width % text_heads:
            raise InputError(
                "objective 'contrastive': sizes must be 1 or more and text_width a multiple of "
                f"text_heads, got {sizes}"
            )
        self.width, self.context_length = width, context_length
        self.text_size = {"width": text_width, "layers": text_layers, "heads": text_heads}
        self.templates = templates_of(templates)
        self.class_names, self.captions = class_names, captions
        self.which: NDArray[np.int64] | None = None
        """The caption of each row of the training data, −1 for templates; None: of all."""
        self.calls = 0

    def begin(self, setup: Setup) -> nn.Module:
        ensure_torchvision()
        from open_clip.loss import ClipLoss
        from open_clip.transformer import TextTransformer

        if len(setup.heads) != 1:
            raise InputError("objective 'contrastive' needs a network with one head")
        names = self._names(setup)
        cut = tokenizer(self.context_length)
        texts = [one.format(name) for name in names for one in self.templates]
        self.prompts = cut(texts).view(len(names), len(self.templates), -1)
        self.seed, self.criterion = setup.seed, ClipLoss()
        self.texts, self.which = self.prompts.flatten(0, 1), None
        own = setup.data.captions
        if self.captions is not None:
            file = Path(setup.base) / self.captions
            self.texts, self.which = read_captions(file, setup.data.examples, cut)
        elif any(own):
            tokens, which = distinct(own, cut)
            self.texts = torch.cat([self.texts, tokens])
            self.which = np.where(which < 0, -1, which + len(self.texts) - len(tokens))
        with seeded(setup.seed):
            head = setup.heads[0]
            become(head, nn.Linear(head.in_features, self.width))
            text = TextTransformer(
                context_length=self.context_length, output_dim=self.width, **self.text_size
            )
        device = head.weight.device
        return ImageText(setup.network, head, text).to(device)

    def _names(self, setup: Setup) -> Sequence[str]:
        labelled = bool((setup.data.labels >= 0).any())
        own = [part.classes for part in setup.data.parts if part.classes]
        names: Sequence[str] | None = own[0] if own else None
        if self.class_names == IMAGENET:
            names = [(one.synonyms or (one.name,))[0] for one in caption_classes(IMAGENET)]
        elif isinstance(self.class_names, str):
            names = read_classes(Path(setup.base) / self.class_names)
        elif self.class_names:
            names = self.class_names
        if not names or (labelled and len(names) != setup.classes):
            of = f"each of the {setup.classes}" if labelled else "the"
            raise InputError(
                f"objective 'contrastive' needs a name for {of} classes, "
                f"got {len(names or ())}: class_names = [[…]], or a file with one per line"
            )
        return [str(name).replace("_", " ") for name in names]

    def outputs(self, classes: int) -> int:
        return len(self.prompts)

    def tokens(self, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
        """Distinct captions (U, L), and which one each example (B,) has now."""
        found = None if self.which is None else self.which[batch.rows]
        if found is None or (found < 0).any():
            keys = keys_of(batch.rows.tolist(), self.seed, "caption", self.calls)
            drawn = (uniforms(keys, 1)[:, 0] * len(self.templates)).astype("int64")
            made = batch.labels.cpu().numpy() * len(self.templates) + drawn
            found = made if found is None else np.where(found < 0, made, found)
        which = found
        used, place = torch.unique(torch.from_numpy(which), return_inverse=True)
        return self.texts[used], place

    def loss(self, network: nn.Module, batch: TrainingBatch) -> Tensor:
        assert isinstance(network, ImageText)
        tokens, which = self.tokens(batch)
        self.calls += 1
        place = batch.pixels.device
        text = network.texts(tokens.to(place))[which.to(place)]
        image = network.image(batch.pixels)
        with torch.no_grad():
            network.length.lerp_(image.norm(dim=-1).mean(), 0.1)
        unit = functional.normalize(image, dim=-1)
        found: Tensor = self.criterion(unit, text, network.logit_scale.exp())
        return found

    def after_step(self, run: "Run") -> None:
        assert isinstance(run.network, ImageText)
        with torch.no_grad():
            run.network.logit_scale.clamp_(0, COLDEST)

    def evaluated(self, network: nn.Module) -> nn.Module:
        return zero_shot(network, self.prompts) if isinstance(network, ImageText) else network

    def written(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, ImageText)
        return plain_classifier(network, self.prompts)
