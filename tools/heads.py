"""A small store of whole networks and heads: what the gallery draws wenzel2022's S6 and S7 of.

    python -m tools.heads [FOLDER]

A network trained on rendered digits is tuned on MNIST, whole or its head alone, with all of the
images and with a tenth of them, three seeds each; scikit-learn's digits are the OOD set. FOLDER
(demo/heads) then has the recipe, the images, the runs and the store. Half a minute; run again, it
goes on where it was.
"""

import sys
from pathlib import Path

import shiftbed as sb
from examples.digits.data import domains
from shiftbed.atomic import write_atomically
from shiftbed.training import read_recipe

HEADS = "demo/heads"
NETS = Path(__file__).parents[1] / "examples" / "digits" / "nets.py"
RECIPE = """\
name = "heads"

[data.mnist]
path = "data/train/mnist.npz"
[data.rendered]
path = "data/train/rendered.npz"

[[test_sets]]
name = "mnist"
path = "data/test/mnist.npz"
[[test_sets]]
name = "digits"
path = "data/test/digits.npz"

[[shifts]]
name = "digits"
id = "mnist"
ood = "digits"
fit_on = "training_data=mnist"

[[grid]]
name = "tuned"
model = "python:nets.py:wide()"
batch_size = 64
[[grid.stages]]
data = "rendered"
seed = 0
optimiser = {name = "AdamW", lr = 0.003}
steps = 300
[[grid.stages]]
tune = ["whole", "head"]
data = [{name = "mnist", fraction = 0.1}, {name = "mnist", fraction = 1.0}]
seed = [0, 1, 2]
optimiser = {name = "SGD", lr = 0.01, momentum = 0.9}
steps = 200
"""


def make(folder: Path) -> Path:
    """Train what is not there yet; where the store is."""
    folder.mkdir(parents=True, exist_ok=True)
    domains(folder / "data")
    for name, content in (("nets.py", NETS.read_bytes()), ("recipe.toml", RECIPE.encode())):
        with write_atomically(folder / name) as file:
            file.write(content)
    done = sb.train(read_recipe(folder / "recipe.toml", allow_code=True))
    if done.failed:
        sys.exit(str(done))
    return folder / "store"


if __name__ == "__main__":
    print(f"wrote {make(Path(*sys.argv[1:2]) if sys.argv[1:] else Path(HEADS))}")
