"""Lines of scikit-learn's classifiers, and grids of them."""

import json
import sys
from pathlib import Path

LINEAR = "sklearn:linear_model.LogisticRegression?C=0.5&max_iter=500"
KNN = "sklearn:neighbors.KNeighborsClassifier?n_neighbors=3"
FOREST = "sklearn:ensemble.RandomForestClassifier?n_estimators=9"
SVM = "sklearn:svm.SVC?C=2"
MLP = "sklearn:neural_network.MLPClassifier?hidden_layer_sizes=12,8&max_iter=400&tol=1e-3"


def grid(*models: str, data: str = '"digits"', more: str = "") -> str:
    return f"\n[[grid]]\nmodel = {json.dumps(list(models))}\ndata = {data}\n{more}\n"


def command(recipe: Path, *options: str) -> list[str]:
    program = "from shiftbed.cli import main; main()"
    return [sys.executable, "-c", program, "train", str(recipe), "--json", *options]
