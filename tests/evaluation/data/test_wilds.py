"""WILDS through its own package, where it is installed; else through a stand-in with its interface.

The stand-in reads the same files (metadata.csv and patches, as the package's Camelyon17 does) and
has the attributes of ``WILDSDataset`` that are used here, and no others.
"""

import csv
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.evaluation.data import open_test_set

torch = pytest.importorskip("torch")
CENTERS = (0, 0, 0, 1, 1, 2, 2, 2, 2, 3)
"""Hospital of each patch; the package's test hospital is 2, its OOD validation hospital 1."""


def camelyon17(root_dir, download, split_scheme="official", version=None):
    """As ``wilds.datasets.camelyon17_dataset`` reads it."""
    assert not download
    folder = f"{root_dir}/camelyon17_v1.0"
    try:
        with open(f"{folder}/metadata.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"The camelyon17 dataset could not be found in {folder}. Initialize the dataset with "
            "download=True"
        ) from None
    centers, slides, y = (
        torch.tensor([int(row[key]) for row in rows]) for key in ("center", "slide", "tumor")
    )
    split = np.array([int(row["split"]) for row in rows])
    split[centers == 1], split[centers == 2] = 3, 2

    def picture(at):
        where = "patches/patient_{patient}_node_{node}/patch_patient_{patient}_node_{node}_x_"
        name = (where + "{x_coord}_y_{y_coord}.png").format(**rows[at])
        return Image.open(f"{folder}/{name}").convert("RGB")

    return SimpleNamespace(
        dataset_name="camelyon17",
        version=version or "1.0",
        split_dict={"train": 0, "id_val": 1, "test": 2, "val": 3},
        split_array=split,
        y_array=y,
        y_size=1,
        n_classes=2,
        is_classification=True,
        metadata_fields=["hospital", "slide", "y", "from_source_domain"],
        metadata_array=torch.stack([centers, slides, y, torch.as_tensor(split == 0).long()], 1),
        metadata_map={"from_source_domain": [False, True]},
        get_input=picture,
    )


@pytest.fixture
def package(monkeypatch):
    """The real one, or the stand-in."""
    if find_spec("wilds") is not None:
        return
    made = ModuleType("wilds")
    made.__version__ = "2.0.0"
    made.get_dataset = lambda dataset, version=None, **given: camelyon17(version=version, **given)
    monkeypatch.setitem(sys.modules, "wilds", made)


@pytest.fixture
def root(tmp_path):
    """A tiny Camelyon17 as WILDS publishes it: the red of a patch is its number, times 20."""
    folder = tmp_path / "data" / "camelyon17_v1.0"
    folder.mkdir(parents=True)
    (folder / "RELEASE_v1.0.txt").touch()
    lines = [",patient,node,x_coord,y_coord,tumor,slide,center,split"]
    for i, center in enumerate(CENTERS):
        split = int(i == 9)  # its last one is for ID validation
        lines.append(f"{i},{center:03d},{i % 2},{32 * i},64,{i % 2},{10 * center},{center},{split}")
        node = f"patient_{center:03d}_node_{i % 2}"
        (folder / "patches" / node).mkdir(parents=True, exist_ok=True)
        patch = Image.new("RGB", (96, 96), (20 * i, 0, 255 * (i % 2)))
        patch.save(folder / "patches" / node / f"patch_{node}_x_{32 * i}_y_64.png")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "data"


def reds(test_set):
    return [test_set.load(at).getpixel((0, 0))[0] // 20 for at in range(len(test_set))]


def test_a_split_with_its_labels_domains_and_pictures(package, root):
    found = open_test_set(f"wilds:camelyon17?root={root}&split=test")
    assert found.name == "camelyon17-test"
    assert reds(found) == [5, 6, 7, 8]
    assert found.examples == ("5", "6", "7", "8")
    assert found.labels.tolist() == [1, 0, 1, 0]
    assert found.classes == ("0", "1")
    assert found.groups.tolist() == ["2"] * 4
    assert any("wilds" in note and "camelyon17 1.0" in note for note in found.notes)
    train = open_test_set(f"wilds:camelyon17?root={root}&split=train", group_column="slide")
    assert reds(train) == [0, 1, 2]
    assert train.groups.tolist() == ["0"] * 3
    assert reds(open_test_set(f"wilds:camelyon17?root={root}&split=id_val")) == [9]


def test_a_field_of_the_metadata_makes_settings(package, root, monkeypatch, tmp_path):
    """From Python, and from a testbed.toml beside the data."""
    sets = [
        f"wilds:camelyon17?root={root}&split={split}&hospital={hospital}"
        for split, hospital in (("train", 0), ("test", 2))
    ]
    blue = sb.model(
        lambda x: np.stack([1 - x[:, 2].mean((1, 2)), x[:, 2].mean((1, 2))], 1),
        name="blue", size=8, mean=(0.0,) * 3, std=(1.0,) * 3, classes=2,
    )  # fmt: skip
    found = sb.evaluate(blue, sets)
    by = {row["setting"]: (row["value"], row["n"]) for row in found.frame.iter_rows(named=True)}
    assert by == {"camelyon17-train-hospital-0": (1, 3), "camelyon17-test-hospital-2": (1, 4)}
    (tmp_path / "blue.py").write_text(
        "import numpy as np\n\ndef blue(x):\n"
        "    return np.stack([1 - x[:, 2].mean((1, 2)), x[:, 2].mean((1, 2))], 1)\n"
    )
    (tmp_path / "testbed.toml").write_text(
        '[[models]]\nid = "python:blue.py:blue"\nclasses = 2\n'
        "preprocessing = {size = [8, 8], mean = [0, 0, 0], std = [1, 1, 1]}\n"
        '[[test_sets]]\nname = "ood"\npath = "wilds:camelyon17?root=data&hospital=2"\n'
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ran = sb.run(tmp_path / "testbed.toml", allow_code=True)
    assert ran.frame.select("setting", "value", "n").rows() == [("ood", 1.0, 4)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("&split=tset", "unknown split of camelyon17 'tset'; did you mean 'test'"),
        ("&hospitl=2", "unknown field of camelyon17's metadata 'hospitl'; did you mean 'hospital'"),
        ("&hospital=4", "no image in the split test, hospital 4"),
        ("&split", "'split' must be key=value"),
    ],
)
def test_what_is_not_there_is_one_line(package, root, query, said):
    with pytest.raises(InputError, match=said):
        open_test_set(f"wilds:camelyon17?root={root}{query}")


def test_no_data_and_no_folder(package, tmp_path):
    with pytest.raises(InputError, match="unknown data set of pictures in WILDS 'amazon'"):
        open_test_set(f"wilds:amazon?root={tmp_path}")
    with pytest.raises(InputError, match="wilds cannot open it: The camelyon17 dataset could not"):
        open_test_set(f"wilds:camelyon17?root={tmp_path}")
    with pytest.raises(InputError, match="no folder"):
        open_test_set(f"wilds:camelyon17?root={tmp_path}/none")
    assert not (tmp_path / "none").exists()


def test_without_the_package_a_line_says_what_to_install(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "wilds", None)
    with pytest.raises(InputError, match="needs wilds: pip install wilds"):
        open_test_set(f"wilds:camelyon17?root={root}")
