"""Test sets over ImageNet's classes and over CIFAR-10's."""

from typing import Any

from shiftbed.catalogue.entries import TestSetEntry

CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    *("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "spatter", "brightness", "contrast", "saturate"),
    *("pixelate", "jpeg_compression", "elastic_transform"),
)
"""The 19 corruptions that are released on disk, for ImageNet and for CIFAR-10."""
SEVERITIES = 5
CIFAR_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_PARTS = tuple(f"{name}-{at}" for name in CORRUPTIONS for at in range(1, SEVERITIES + 1))
_TESTBED = "imagenet-testbed-2020"
_RECHT = (
    "Recht, Roelofs, Schmidt, Shankar: Do ImageNet Classifiers Generalize to ImageNet? ICML 2019."
)
_RECHT_CIFAR = (
    "Recht, Roelofs, Schmidt, Shankar: Do CIFAR-10 Classifiers Generalize to CIFAR-10? 2018."
)
_HENDRYCKS_C = (
    "Hendrycks, Dietterich: Benchmarking Neural Network Robustness to Common Corruptions and "
    "Perturbations. ICLR 2019."
)
_SHANKAR = (
    "Shankar, Dave, Roelofs, Ramanan, Recht, Schmidt: Do Image Classifiers Generalize Across Time? "
    "ICCV 2021."
)
_VAL = (
    "DIR/n01440764/ILSVRC2012_val_00000293.JPEG, … (or DIR/val/n01440764/…), a folder per synset; "
    "or DIR/ILSVRC2012_val_00000001.JPEG, … flat, with LOC_val_solution.csv, val.txt or the "
    "development kit (ILSVRC2012_devkit_t12) in DIR or beside it"
)


def _entry(name: str, title: str, about: str, **more: Any) -> TestSetEntry:
    given: dict[str, Any] = {
        "family": "imagenet",
        "kind": "natural-dataset",
        "classes": 1000,
        "labels": "imagenet",
        "twin": "imagenet",
        "layout": "synsets",
        "base": name,
        "licence": "MIT",
    }
    return TestSetEntry(name=name, title=title, about=about, **(given | more))


def _subset(name: str, title: str, about: str, **more: Any) -> TestSetEntry:
    given = {"labels": "subset", "twin": f"imagenet@{name}-classes", "classes": 200}
    return _entry(name, title, about, **(given | more))


def _v2(name: str, folder: str, what: str, *published: str, original: bool) -> TestSetEntry:
    encoding = "as collected" if original else "re-encoded like ImageNet's own images"
    return _entry(
        name,
        f"ImageNetV2, {what}" + (", original encoding" if original else ""),
        f"ImageNet's collection repeated, {what} sampling, {encoding}",
        images=10_000,
        per_class=10,
        layout="numbers",
        tree=f"DIR/0/*.jpeg … DIR/999/*.jpeg, a folder per class number ({folder})",
        citation=_RECHT,
        published=published,
    )


IMAGENET: tuple[TestSetEntry, ...] = (
    _entry(
        "imagenet",
        "ImageNet, validation",
        "the validation set of ILSVRC 2012, the ID set of all these",
        kind="",
        twin=None,
        images=50_000,
        per_class=50,
        layout="imagenet",
        tree=_VAL,
        licence="ImageNet's terms of access: non-commercial research",
        citation="Russakovsky, Deng, Su, et al.: ImageNet Large Scale Visual Recognition "
        "Challenge. IJCV 2015.",
    ),
    _entry(
        "imagenet-125",
        "ImageNet, 125 classes",
        "the eighth of the classes on which taori2020 trains and tests with less data",
        kind="",
        twin=None,
        labels="subset",
        classes=125,
        images=6250,
        per_class=50,
        layout="imagenet",
        tree=_VAL,
        licence="ImageNet's terms of access: non-commercial research",
        citation="Taori, Dave, Shankar, Carlini, Recht, Schmidt: Measuring Robustness to Natural "
        "Distribution Shifts in Image Classification. NeurIPS 2020.",
    ),
    _entry(
        "imagenet-real",
        "ImageNet, ReaL labels",
        "the validation images with reassessed labels, several per image; 46,837 have any",
        labels="imagenet-sets",
        images=50_000,
        layout="real",
        tree="DIR/real.json (50,000 lists of labels, by the number of the image) and the images "
        "as for imagenet: DIR/val/n01440764/ILSVRC2012_val_00000293.JPEG, …",
        licence="Apache-2.0 (the labels)",
        citation="Beyer, Hénaff, Kolesnikov, Zhai, van den Oord: Are We Done with ImageNet? 2020.",
        published=("timm:imagenet-real",),
    ),
    _v2(
        "imagenet-v2",
        "imagenetv2-matched-frequency-format-val",
        "matched frequency",
        *(f"{_TESTBED}:imagenet-v2", "timm:imagenet-v2", "openclip:imagenet-v2"),
        original=False,
    ),
    _v2(
        "imagenet-v2-threshold-0.7",
        "imagenetv2-threshold0.7-format-val",
        "threshold 0.7",
        f"{_TESTBED}:imagenet-v2-threshold-0.7",
        original=False,
    ),
    _v2(
        "imagenet-v2-top-images",
        "imagenetv2-top-images-format-val",
        "top images",
        f"{_TESTBED}:imagenet-v2-top-images",
        original=False,
    ),
    _v2(
        "imagenet-v2-original",
        "imagenetv2-matched-frequency",
        "matched frequency",
        f"{_TESTBED}:imagenet-v2-original",
        original=True,
    ),
    _v2(
        "imagenet-v2-threshold-0.7-original",
        "imagenetv2-threshold0.7",
        "threshold 0.7",
        f"{_TESTBED}:imagenet-v2-threshold-0.7-original",
        original=True,
    ),
    _v2(
        "imagenet-v2-top-images-original",
        "imagenetv2-topimages",
        "top images",
        f"{_TESTBED}:imagenet-v2-top-images-original",
        original=True,
    ),
    _entry(
        "imagenet-sketch",
        "ImageNet-Sketch",
        "black-and-white sketches found by searching for each class's name",
        images=50_889,
        tree="DIR/n01440764/sketch_0.JPEG, … (or DIR/sketch/…), a folder per synset",
        citation="Wang, Ge, Lipton, Xing: Learning Robust Global Representations by Penalizing "
        "Local Predictive Power. NeurIPS 2019.",
        published=(
            f"{_TESTBED}:imagenet-sketch",
            "timm:imagenet-sketch",
            "openclip:imagenet-sketch",
        ),
    ),
    _subset(
        "imagenet-a",
        "ImageNet-A",
        "photographs kept because a ResNet-50 gets them wrong; 200 of the classes",
        kind="adversarially-filtered",
        images=7500,
        tree="DIR/n01498041/*.jpg, … (or DIR/imagenet-a/…), a folder per synset, 200 of them",
        citation="Hendrycks, Zhao, Basart, Steinhardt, Song: Natural Adversarial Examples. "
        "CVPR 2021.",
        published=(f"{_TESTBED}:imagenet-a", "timm:imagenet-a", "openclip:imagenet-a"),
    ),
    _subset(
        "imagenet-r",
        "ImageNet-R",
        "renditions: art, cartoons, embroidery, toys, …; 200 of the classes",
        images=30_000,
        tree="DIR/n01443537/art_0.jpg, … (or DIR/imagenet-r/…), a folder per synset, 200 of them",
        citation="Hendrycks, Basart, Mu, et al.: The Many Faces of Robustness. ICCV 2021.",
        published=(f"{_TESTBED}:imagenet-r", "timm:imagenet-r", "openclip:imagenet-r"),
    ),
    _entry(
        "objectnet",
        "ObjectNet",
        "household objects from unusual sides and in unusual places; of its 313 objects 113 are "
        "among ImageNet's classes, some of them several; the red border is cropped, 2 pixels as in "
        "taori2020, objectnet/border-1 for the 1 pixel of the data set's own note",
        labels="superclasses",
        classes=113,
        images=18_574,
        also=(18_514,),
        twin="imagenet@objectnet-classes",
        layout="objectnet",
        tree="DIR/alarm_clock/*.png, … (or DIR/images/…, DIR/objectnet-1.0/images/…), a folder "
        "per object, 313 of them",
        licence="CC BY 4.0 and never for training; images shown must keep their red border",
        citation="Barbu, Mayo, Alverio, et al.: ObjectNet: A Large-Scale Bias-Controlled Dataset "
        "for Pushing the Limits of Object Recognition Models. NeurIPS 2019.",
        published=(f"{_TESTBED}:objectnet", "openclip:objectnet"),
        parts=("border-0", "border-1", "border-2"),
    ),
    _entry(
        "stylized-imagenet",
        "Stylized ImageNet",
        "the validation images in the styles of paintings",
        kind="corruption",
        images=50_000,
        per_class=50,
        tree="DIR/n01440764/*.png, … (or DIR/val/n01440764/…), a folder per synset, as the "
        "authors' code writes it",
        licence="MIT (the code that makes it); ImageNet's terms for the images",
        citation="Geirhos, Rubisch, Michaelis, et al.: ImageNet-Trained CNNs Are Biased towards "
        "Texture. ICLR 2019.",
        published=(f"{_TESTBED}:stylized_imagenet",),
    ),
    _entry(
        "imagenet-c",
        "ImageNet-C",
        "the validation images corrupted and saved as JPEG: 19 corruptions of 5 severities",
        kind="corruption",
        images=50_000,
        per_class=50,
        layout="imagenet-c",
        tree="DIR/gaussian_noise/1/n01440764/*.JPEG, … (or DIR/noise/gaussian_noise/1/…); write "
        "imagenet-c/gaussian_noise-3@DIR",
        licence="CC BY 4.0",
        citation=_HENDRYCKS_C,
        published=(f"{_TESTBED}:avg_corruptions",),
        parts=_PARTS,
    ),
    _entry(
        "imagenet-vid-robust",
        "ImageNet-Vid-Robust",
        "video frames, reviewed: 1,109 anchors (the default) and, as "
        "imagenet-vid-robust/frames, all 22,179 frames within 10 of one; 30 superclasses",
        labels="superclass-sets",
        classes=30,
        images=1109,
        twin="imagenet@imagenet-vid-robust-classes",
        layout="vid-robust",
        tree="DIR/val/ILSVRC2015_val_00000000/000442.JPEG, …, with labels.json and pmsets.json in "
        "DIR, DIR/metadata or DIR/imagenet-vid-robust_metadata",
        licence="MIT (metadata); ImageNet's terms for the frames",
        citation=_SHANKAR,
        published=(f"{_TESTBED}:imagenet-vid", f"{_TESTBED}:imagenet-vid-pm10"),
        digest="d0913d9ccb99b21b",
        parts=("anchors", "frames"),
    ),
    _entry(
        "ytbb-robust",
        "YTBB-Robust",
        "frames of YouTube videos, reviewed: 2,530 anchors (the default) and, as "
        "ytbb-robust/frames, the reviewed frames within 10; 24 superclasses, 5 without a class",
        labels="superclass-sets",
        classes=24,
        images=2530,
        twin="imagenet@ytbb-robust-classes",
        layout="ytbb-robust",
        tree="DIR/KxDh7a8_AmU_44666/frame-1117.jpg, …, with anchor_labels.json, "
        "ytbb_robustness_test_anchors_full.csv and pmk_labels.json in DIR, DIR/metadata or "
        "DIR/ytbb-robust_metadata",
        licence="MIT (metadata); the videos are their uploaders'",
        citation=_SHANKAR,
        published=(f"{_TESTBED}:ytbb", f"{_TESTBED}:ytbb-pm10"),
        parts=("anchors", "frames"),
    ),
)


def _cifar(name: str, title: str, about: str, **more: Any) -> TestSetEntry:
    given = {"family": "cifar-10", "classes": 10, "labels": "own", "twin": "cifar-10"}
    return _entry(name, title, about, **(given | more))


CIFAR: tuple[TestSetEntry, ...] = (
    _cifar(
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
    _cifar(
        "cifar-10.1-v4",
        "CIFAR-10.1 v4",
        "CIFAR-10's collection repeated, all 2,021 images of its version 4",
        images=2021,
        digest="177d5f4d01c1509e",
        layout="cifar-10.1",
        tree="DIR/cifar10.1_v4_data.npy and DIR/cifar10.1_v4_labels.npy (or in DIR/datasets)",
        citation=_RECHT_CIFAR,
    ),
    _cifar(
        "cifar-10.1",
        "CIFAR-10.1 v6",
        "CIFAR-10's collection repeated, 200 images of each class",
        images=2000,
        per_class=200,
        digest="cbbe51e1ee7927b5",
        layout="cifar-10.1",
        tree="DIR/cifar10.1_v6_data.npy and DIR/cifar10.1_v6_labels.npy (or in DIR/datasets)",
        citation=_RECHT_CIFAR,
        published=("robustnets-2022:cifar10.1",),
    ),
    _cifar(
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
    _cifar(
        "cinic-10",
        "CINIC-10, test",
        "CIFAR-10's classes, most images from ImageNet's synsets; groups tell the two apart",
        images=90_000,
        per_class=9000,
        layout="cinic-10",
        tree="DIR/test/airplane/*.png, …, a folder per class; names start with a synset or cifar10",
        citation="Darlow, Crowley, Antoniou, Storkey: CINIC-10 Is Not ImageNet or CIFAR-10. 2018.",
    ),
    _cifar(
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
        citation=_HENDRYCKS_C,
        published=("robustnets-2022:cifar10-c",),
        parts=_PARTS,
    ),
)
