"""Test sets over CIFAR-10's classes."""

from typing import Any

from shiftbed.catalogue.imagenet import CORRUPTIONS, SEVERITIES
from shiftbed.catalogue.record import TestSetEntry

CIFAR_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def _entry(name: str, title: str, about: str, **more: Any) -> TestSetEntry:
    given: dict[str, Any] = {
        "family": "cifar-10",
        "kind": "natural-dataset",
        "classes": 10,
        "twin": "cifar-10",
        "base": name,
        "licence": "MIT",
    }
    return TestSetEntry(name=name, title=title, about=about, **(given | more))


_RECHT = "Recht, Roelofs, Schmidt, Shankar: Do CIFAR-10 Classifiers Generalize to CIFAR-10? 2018."

CIFAR: tuple[TestSetEntry, ...] = (
    _entry(
        "cifar-10",
        "CIFAR-10, test",
        "the test set, the ID set of all these; a model with ImageNet's classes meets it through "
        "the class map of CINIC-10 (--through imagenet)",
        kind="",
        twin=None,
        images=10_000,
        per_class=1000,
        digest="0777b4d8d34036ef",
        layout="cifar-10",
        tree="DIR/test_batch.bin (or DIR/cifar-10-batches-bin/test_batch.bin): the binary version, "
        "not the Python one; or DIR/test/airplane/*.png, a folder per class",
        licence="not stated by its authors",
        citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images. 2009.",
    ),
    _entry(
        "cifar-10.1-v4",
        "CIFAR-10.1 v4",
        "CIFAR-10's collection repeated, all 2,021 images of its version 4",
        images=2021,
        digest="177d5f4d01c1509e",
        layout="cifar-10.1",
        tree="DIR/cifar10.1_v4_data.npy and DIR/cifar10.1_v4_labels.npy (or in DIR/datasets)",
        citation=_RECHT,
    ),
    _entry(
        "cifar-10.1",
        "CIFAR-10.1 v6",
        "CIFAR-10's collection repeated, 200 images of each class",
        images=2000,
        per_class=200,
        digest="cbbe51e1ee7927b5",
        layout="cifar-10.1",
        tree="DIR/cifar10.1_v6_data.npy and DIR/cifar10.1_v6_labels.npy (or in DIR/datasets)",
        citation=_RECHT,
        published=("robustnets-2022:cifar10.1",),
    ),
    _entry(
        "cifar-10.2",
        "CIFAR-10.2, test",
        "a second repetition of the collection, by other people",
        images=2000,
        per_class=200,
        layout="cifar-10.2",
        tree="DIR/cifar102_test.npz",
        licence="not stated by its authors",
        citation="Lu, Nott, Olson, et al.: Harder or Different? A Closer Look at Distribution "
        "Shift in Dataset Reproduction. ICML UDL workshop 2020.",
    ),
    _entry(
        "cinic-10",
        "CINIC-10, test",
        "CIFAR-10's classes, most images from ImageNet's synsets; groups tell the two apart",
        images=90_000,
        per_class=9000,
        layout="cinic-10",
        tree="DIR/test/airplane/*.png, …, a folder per class; names start with a synset or cifar10",
        citation="Darlow, Crowley, Antoniou, Storkey: CINIC-10 Is Not ImageNet or CIFAR-10. 2018.",
    ),
    _entry(
        "cifar-10-c",
        "CIFAR-10-C",
        "the test images corrupted and saved: 19 corruptions of 5 severities",
        kind="corruption",
        images=10_000,
        per_class=1000,
        digest="0777b4d8d34036ef",
        layout="cifar-10-c",
        tree="DIR/gaussian_noise.npy, … and DIR/labels.npy (or in DIR/CIFAR-10-C), severities 1 to "
        "5 one after the other; write cifar-10-c/gaussian_noise-3@DIR",
        licence="CC BY 4.0",
        citation="Hendrycks, Dietterich: Benchmarking Neural Network Robustness to Common "
        "Corruptions and Perturbations. ICLR 2019.",
        published=("robustnets-2022:cifar10-c",),
        parts=tuple(f"{name}-{at}" for name in CORRUPTIONS for at in range(1, SEVERITIES + 1)),
    ),
)
