"""Tasks of domains: the ten of wenzel2022 (Table S1), and handwritten digits.

Domain types are Table S1's. Counts are those the authors publish: of the cleaned DomainNet, of
DomainBed's releases, of WILDS 2.0.
"""

from shiftbed.catalogue.entries import Domain, DomainTask

_KOH = (
    "Koh, Sagawa, Marklund, et al.: WILDS: A Benchmark of in-the-Wild Distribution Shifts. "
    "ICML 2021; "
)
_CARS = ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe")


def _domains(kind: str, **images: int | None) -> tuple[Domain, ...]:
    return tuple(Domain(name=n, type=kind, images=i, folders=(n,)) for n, i in images.items())


def _wilds(*images: int) -> tuple[Domain, ...]:
    names = ("id", "ood")
    return tuple(Domain(name=n, type="real", images=i) for n, i in zip(names, images, strict=True))


TASKS: tuple[DomainTask, ...] = (
    DomainTask(
        name="pacs",
        title="PACS",
        paper="PACS",
        domains=(
            *_domains("artificial", art_painting=2048, cartoon=2344),
            *_domains("real", photo=1670),
            *_domains("artificial", sketch=3929),
        ),
        classes=7,
        splits=("train", "crossval", "test"),
        layout="domains",
        containers=("PACS", "kfold"),
        tree="DIR/art_painting/dog/pic_001.jpg, … (or DIR/kfold, DIR/PACS); official splits: "
        "DIR/art_painting_train_kfold.txt, …_crossval_kfold.txt, …_test_kfold.txt (test is all)",
        licence="not stated by its authors",
        citation="Li, Yang, Song, Hospedales: Deeper, Broader and Artier Domain Generalization. "
        "ICCV 2017.",
    ),
    DomainTask(
        name="vlcs",
        title="VLCS",
        paper="VLCS",
        domains=(
            Domain(name="Caltech101", type="real", images=1415, folders=("Caltech101", "CALTECH")),
            Domain(name="LabelMe", type="real", images=2656, folders=("LabelMe", "LABELME")),
            Domain(name="SUN09", type="real", images=3282, folders=("SUN09", "SUN")),
            Domain(name="VOC2007", type="real", images=3376, folders=("VOC2007", "PASCAL")),
        ),
        classes=5,
        splits=("train", "crossval", "test"),
        layout="domains",
        containers=("VLCS",),
        tree="DIR/Caltech101/bird/*.jpg, … as DomainBed has it, or DIR/CALTECH/full/0/*.jpg with "
        "splits train, crossval and test beside full (LABELME, SUN and PASCAL alike)",
        licence="those of Caltech-101, LabelMe, SUN09 and PASCAL VOC 2007",
        citation="Fang, Xu, Rockmore: Unbiased Metric Learning: On the Utilization of Multiple "
        "Datasets and Web Images for Softening Bias. ICCV 2013.",
    ),
    DomainTask(
        name="domainnet",
        title="DomainNet",
        paper="domain_net",
        domains=(
            *_domains("artificial", clipart=48_129, infograph=51_605, painting=72_266),
            *_domains("artificial", quickdraw=172_500),
            *_domains("real", real=172_947),
            *_domains("artificial", sketch=69_128),
        ),
        classes=345,
        splits=("train", "test"),
        layout="domains",
        containers=("domain_net", "DomainNet"),
        tree="DIR/clipart/aircraft_carrier/clipart_001_000018.jpg, …; official splits: "
        "DIR/clipart_train.txt and DIR/clipart_test.txt (or in DIR/splits)",
        licence="research use, fair-use notice of its authors",
        citation="Peng, Bai, Xia, Huang, Saenko, Wang: Moment Matching for Multi-Source Domain "
        "Adaptation. ICCV 2019.",
    ),
    DomainTask(
        name="officehome",
        title="Office-Home",
        paper="office_home",
        domains=(
            *_domains("artificial", Art=2427, Clipart=4365),
            *_domains("real", Product=4439),
            Domain(
                name="Real_World",
                type="real",
                images=4357,
                folders=("Real World", "Real_World", "RealWorld"),
            ),
        ),
        classes=65,
        layout="domains",
        containers=("office_home", "OfficeHome", "OfficeHomeDataset_10072016"),
        tree="DIR/Art/Alarm_Clock/00001.jpg, DIR/Clipart/…, DIR/Product/…, DIR/Real World/…",
        licence="non-commercial research and teaching",
        citation="Venkateswara, Eusebio, Chakraborty, Panchanathan: Deep Hashing Network for "
        "Unsupervised Domain Adaptation. CVPR 2017.",
    ),
    DomainTask(
        name="sviro",
        title="SVIRO",
        paper="sviro",
        domains=tuple(
            Domain(name=car, type="artificial", images=None, folders=(car,)) for car in _CARS
        ),
        classes=7,
        layout="domains",
        containers=("sviro", "SVIRO_DOMAINBED"),
        tree="DIR/aclass/0/*.png … DIR/aclass/6/*.png, and the nine other cars alike "
        "(the grey-scale rectangles that are released as SVIRO_DOMAINBED)",
        licence="CC BY-NC-SA 4.0",
        citation="Dias Da Cruz, Wasenmüller, Beise, Stifter, Stricker: SVIRO: Synthetic Vehicle "
        "Interior Rear Seat Occupancy Dataset and Benchmark. WACV 2020.",
    ),
    DomainTask(
        name="terraincognita",
        title="Terra Incognita",
        paper="terra_incognita",
        domains=_domains(
            "real", location_100=4741, location_38=9736, location_43=3970, location_46=5883
        ),
        classes=10,
        layout="domains",
        containers=("terra_incognita",),
        tree="DIR/location_100/bird/*.jpg, DIR/location_38/…, DIR/location_43/…, "
        "DIR/location_46/… as DomainBed prepares Caltech Camera Traps",
        licence="CDLA-Permissive 1.0",
        citation="Beery, Van Horn, Perona: Recognition in Terra Incognita. ECCV 2018.",
    ),
    DomainTask(
        name="camelyon17",
        title="Camelyon17-WILDS",
        paper="wilds-camelyon17",
        domains=_wilds(33_560, 85_054),
        classes=2,
        splits=("train", "id_val", "val", "test"),
        predefined=True,
        layout="wilds",
        containers=("camelyon17_v1.0",),
        tree="DIR/metadata.csv and DIR/patches/patient_004_node_4/patch_patient_004_node_4_x_…png "
        "(camelyon17_v1.0); ID is the split id_val, the only ID one",
        licence="CC0",
        citation=_KOH + "Bándi, Geessink, Manson, et al.: From Detection of Individual Metastases "
        "to Classification of Lymph Node Status at the Patient Level. IEEE TMI 2018.",
    ),
    DomainTask(
        name="fmow",
        title="FMoW-WILDS",
        paper="wilds-fmow",
        domains=_wilds(11_327, 22_108),
        classes=62,
        splits=("train", "id_val", "id_test", "val", "test"),
        predefined=True,
        layout="wilds",
        containers=("fmow_v1.1",),
        tree="DIR/rgb_metadata.csv, DIR/country_code_mapping.csv and DIR/images/rgb_img_0.png, … "
        "(fmow_v1.1)",
        licence="FMoW Challenge Public License",
        citation=_KOH + "Christie, Fendley, Wilson, Mukherjee: Functional Map of the World. "
        "CVPR 2018.",
    ),
    DomainTask(
        name="iwildcam",
        title="iWildCam2020-WILDS",
        paper="wilds-iwildcam",
        domains=_wilds(8154, 42_791),
        classes=182,
        splits=("train", "id_val", "id_test", "val", "test"),
        predefined=True,
        layout="wilds",
        containers=("iwildcam_v2.0",),
        tree="DIR/metadata.csv and DIR/train/*.jpg (iwildcam_v2.0; all splits' images lie in "
        "train)",
        licence="CDLA-Permissive 1.0",
        citation=_KOH + "Beery, Cole, Gjoka: The iWildCam 2020 Competition Dataset. 2020.",
    ),
    DomainTask(
        name="rxrx1",
        title="RxRx1-WILDS",
        paper="wilds-rxrx1",
        domains=_wilds(40_612, 34_432),
        classes=1139,
        splits=("train", "id_test", "val", "test"),
        predefined=True,
        layout="wilds",
        containers=("rxrx1_v1.0",),
        tree="DIR/metadata.csv and DIR/images/HEPG2-01/Plate1/B02_s1.png, … (rxrx1_v1.0)",
        licence="CC BY-NC-SA 4.0",
        citation=_KOH + "Taylor, Earnshaw, Mabey, Victors, Yosinski: RxRx1: An Image Set for "
        "Cellular Morphological Variation Across Many Experimental Batches. 2019.",
    ),
)
"""wenzel2022's tasks in the order of Table S1."""

DIGITS = DomainTask(
    name="digits",
    title="Digits",
    paper="",
    domains=(
        Domain(name="usps", type="real", images=2007, digest="e5df79e6840408e8"),
        Domain(name="mnist", type="real", images=10_000, digest="6875842d3fb960a6"),
        Domain(name="sklearn", type="real", images=1797, digest="f14a07436451a9da"),
    ),
    classes=10,
    splits=("train", "test"),
    layout="digits",
    tree="usps, mnist: FILE.npz with arrays usps_test_images, usps_test_labels, mnist_test_images, "
    "… or DIR with such a digits.npz; mnist also DIR/t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte; sklearn: nothing, write digits/sklearn@ (it comes with scikit-learn)",
    licence="USPS: not stated; MNIST: CC BY-SA 3.0; UCI digits: CC BY 4.0",
    citation="Hull: A Database for Handwritten Text Recognition Research, 1994 (USPS); LeCun, "
    "Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition, 1998 "
    "(MNIST); Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI, 1998.",
)
