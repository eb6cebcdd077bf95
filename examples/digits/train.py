"""A dozen quick models of very different kinds, trained in about a minute and kept on disk."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.digits.data import training

__all__ = ["RECIPES", "Recipe", "train"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One model: its kind, its share of the training data, what was done to the images."""

    name: str
    make: str
    share: float = 1.0
    augment: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The model's file: its name and a hash of the whole recipe, so that none is stale."""
        text = json.dumps([self.make, self.share, self.augment, self.options], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        plain = self.name.replace("%", "pct")
        return f"{plain}-{digest}.{'pt2' if self.make == 'cnn' else 'skops'}"

    @property
    def trusted(self) -> list[str]:
        """Types in the model's file that skops asks about; they are scikit-learn's own."""
        kinds = {
            "forest": ["sklearn.tree._tree.Tree"],
            "mlp": ["sklearn.neural_network._stochastic_optimizers.AdamOptimizer"],
        }
        return kinds.get(self.make, [])


RECIPES = [
    Recipe(name="linear", make="linear"),
    Recipe(name="linear-10%", make="linear", share=0.1),
    Recipe(name="linear-3%", make="linear", share=0.03),
    Recipe(name="knn", make="knn", options={"n_neighbors": 3}),
    Recipe(name="knn-10%", make="knn", share=0.1, options={"n_neighbors": 3}),
    Recipe(name="forest", make="forest", options={"n_estimators": 60}),
    Recipe(name="forest-10%", make="forest", share=0.1, options={"n_estimators": 60}),
    Recipe(name="mlp", make="mlp", options={"hidden_layer_sizes": [100]}),
    Recipe(name="mlp-10%", make="mlp", share=0.1, options={"hidden_layer_sizes": [100]}),
    Recipe(name="cnn", make="cnn", options={"epochs": 8, "width": 16}),
    Recipe(name="cnn-25%", make="cnn", share=0.25, options={"epochs": 16, "width": 16}),
    Recipe(name="cnn-5%", make="cnn", share=0.05, options={"epochs": 40, "width": 16}),
    Recipe(name="cnn-shifted", make="cnn", augment=True, options={"epochs": 12, "width": 16}),
]


def train(data: Path, models: Path) -> Iterator[tuple[Recipe, bool]]:
    """Train what is missing; yields each recipe and whether it had to be trained."""
    models.mkdir(parents=True, exist_ok=True)
    for recipe in RECIPES:
        path = models / recipe.file
        if path.exists():
            yield recipe, False
            continue
        images, labels = training(data, recipe.share)
        part = path.with_name("." + path.name)
        _MAKE[recipe.make](recipe, images, labels, part)
        part.rename(path)
        yield recipe, True


def _sklearn(recipe: Recipe, images: NDArray[np.uint8], labels: Any, path: Path) -> None:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from skops.io import dump

    kinds: dict[str, Callable[..., Any]] = {
        "linear": lambda: LogisticRegression(max_iter=200, C=0.05),
        "knn": lambda **o: KNeighborsClassifier(**o),
        "forest": lambda **o: RandomForestClassifier(random_state=0, **o),
        "mlp": lambda **o: MLPClassifier(random_state=0, early_stopping=True, **o),
    }
    x = images.reshape(len(images), -1).astype(np.float32) / 255
    model = kinds[recipe.make](**recipe.options)
    dump(model.fit(x, labels), path)


def _cnn(recipe: Recipe, images: NDArray[np.uint8], labels: Any, path: Path) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    width = recipe.options["width"]
    net = nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * width * 49, 10),
    )  # fmt: skip
    x = torch.from_numpy(images).float().div(255)[:, None]
    y = torch.from_numpy(np.asarray(labels))
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.01)
    for _ in range(recipe.options["epochs"]):
        for rows in torch.randperm(len(x)).split(64):
            batch = _shifted(x[rows]) if recipe.augment else x[rows]
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(batch), y[rows]).backward()
            optimiser.step()
    net.eval()
    batch_size = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(net, (x[:2],), dynamic_shapes=({0: batch_size},))
    torch.export.save(program, path)


def _shifted(batch: Any) -> Any:
    """Each image moved by up to 3 pixels, and blurred by half of the batches."""
    import torch

    dy, dx = (int(v) for v in torch.randint(-3, 4, (2,)))
    moved = torch.roll(batch, (dy, dx), dims=(2, 3))
    if torch.rand(()) < 0.5:
        moved = torch.nn.functional.avg_pool2d(moved, 3, stride=1, padding=1)
    return moved


_MAKE: dict[str, Callable[..., None]] = {
    "linear": _sklearn,
    "knn": _sklearn,
    "forest": _sklearn,
    "mlp": _sklearn,
    "cnn": _cnn,
}
