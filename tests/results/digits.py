"""A store with probabilities: small networks on digits, and on digits with noise."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits

SIZES = (40, 60, 90, 130, 200, 300, 450, 700)


@lru_cache(maxsize=1)
def predictions() -> tuple[dict[str, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Logits by setting and model, and labels by setting; models know ever more digits."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))
    x, y = x[order] / 16, y[order]
    noisy = x + rng.normal(0, 0.25, x.shape)
    tests = {"clean": x[700:1250], "noisy": noisy[1250:]}
    logits: dict[str, dict[str, np.ndarray]] = {name: {} for name in tests}
    for at, size in enumerate(SIZES):
        some = rng.choice(700, size, replace=False)
        fitted = LogisticRegression(max_iter=300).fit(x[some], y[some])
        for name, images in tests.items():
            logits[name][f"model{at}"] = fitted.decision_function(images).astype(np.float32)
    return logits, {"clean": y[700:1250], "noisy": y[1250:]}


def write_store(path: Path, *, keep_logits: bool = True, labelled: bool = True) -> PredictionStore:
    """The predictions in a store; without ``labelled`` the noisy set has no labels."""
    logits, labels = predictions()
    store = PredictionStore(path)
    for setting, by_model in logits.items():
        known = (
            labels[setting] if labelled or setting == "clean" else -np.ones_like(labels[setting])
        )
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=tuple(map(str, range(len(known)))),
                labels=known.astype(np.int64),
                fingerprint=setting,
            )
        )
        for model, values in by_model.items():
            part = part_from_logits(values, known, keep_logits=keep_logits)
            store.write_part(model, setting, 0, part)
            store.write_cell(model, setting, {"status": "complete"})
    return store
