import json

import numpy as np
import polars as pl
import pytest

from shiftbed.importing import import_results
from shiftbed.testbed import published

HEADER = "model,top1,top1_err,top5,top5_err,param_count,img_size,crop_pct,interpolation"
ID = (
    HEADER
    + """
eva_giant.clip_ft_in1k,88.880,11.120,98.680,1.320,"1,012.56",224,0.900,bicubic
resnet50.a1_in1k,80.376,19.624,94.586,5.414,25.56,288,1.000,bicubic
resnet50,76.130,23.870,92.862,7.138,25.56,224,0.875,bilinear
"""
)
OOD = (
    HEADER
    + """,top1_diff,top5_diff,rank_diff
resnet50.a1_in1k,35.120,64.880,50.000,50.000,25.56,288,1.000,bicubic,-45.256,-44.586,+1
eva_giant.clip_ft_in1k,60.430,39.570,80.000,20.000,"1,012.56",224,0.900,bicubic,-28.45,-18.68,0
"""
)
NAMES = {
    "results-imagenet.csv": "imagenet",
    "results-imagenet-real.csv": "imagenet_real",
    "results-imagenetv2-matched-frequency.csv": "imagenetv2_mf",
    "results-sketch.csv": "imagenet_sketch",
    "results-imagenet-a.csv": "imagenet_a",
    "results-imagenet-a-clean.csv": "imagenet_a_clean",
    "results-imagenet-r.csv": "imagenet_r",
    "results-imagenet-r-clean.csv": "imagenet_r_clean",
}


def test_timm(write):
    bed = import_results([write("results-imagenet.csv", ID), write("results-sketch.csv", OOD)])
    shipped = published("timm")
    assert bed.settings == ("imagenet", "imagenet_sketch")
    assert bed.model_names == [
        "eva_giant.clip_ft_in1k@224-0.9",
        "resnet50.a1_in1k@288-1",
        "resnet50@224-0.875",
    ]
    assert bed.accuracy("imagenet").tolist() == [88.88 / 100, 80.376 / 100, 76.13 / 100]
    assert bed.accuracy("imagenet_sketch")[:2].tolist() == [60.43 / 100, 35.12 / 100]
    assert bed.n.tolist() == [[50_000, 50_889], [50_000, 50_889], [50_000, 0]]
    assert bed.shifts == (shipped.shift("imagenet-sketch"),)
    assert bed.models.schema == shipped.models.drop("family").schema
    assert bed.models["param_count"].to_list() == [1012.56, 25.56, 25.56]
    assert bed.models["architecture"].to_list() == ["eva_giant", "resnet50", "resnet50"]
    assert bed.models["tag"].to_list() == ["clip_ft_in1k", "a1_in1k", ""]


def test_all_timm_files_give_the_published_settings_sizes_and_shifts(write):
    bed = import_results([write(name, ID) for name in NAMES])
    shipped = published("timm")
    assert set(bed.settings) == set(shipped.settings) == set(NAMES.values())
    assert {s.name: s for s in bed.shifts} == {s.name: s for s in shipped.shifts}
    for setting in bed.settings:
        assert bed.usual_size(setting) == shipped.usual_size(setting)


def test_a_class_twin_without_the_whole_set(write):
    files = [write("results-imagenet-a.csv", ID), write("results-imagenet-a-clean.csv", ID)]
    (shift,) = import_results(files).shifts
    assert shift.name == "imagenet-a"
    assert shift.full_source is None


def validated() -> dict[str, object]:
    return {
        "model": "resnet50.a1_in1k",
        "top1": 80.3762,
        "top1_err": 19.6238,
        "top5": 94.5,
        "top5_err": 5.5,
        "param_count": 25.56,
        "img_size": 288,
        "crop_pct": 1.0,
        "interpolation": "bicubic",
    }


@pytest.mark.parametrize("content", [validated(), [validated()]], ids=["object", "list"])
def test_what_validate_writes(write, refused, content):
    path = write("out.json", json.dumps(content, indent=4))
    refused(path, "does not say which test set", "setting_names", "'out.json'")
    bed = import_results([path], setting_names={"out.json": "imagenet"})
    assert bed.model_names == ["resnet50.a1_in1k@288-1"]
    assert bed.accuracy("imagenet").tolist() == [80.3762 / 100]
    assert bed.usual_size("imagenet") == 50_000
    other = import_results([path], setting_names={"out": "objectnet"}, sizes={"objectnet": 18_574})
    assert other.usual_size("objectnet") == 18_574


def test_what_validate_writes_joins_the_result_files(write):
    files = [write("results-imagenet.csv", ID), write("out.json", json.dumps(validated()))]
    bed = import_results(files, setting_names={"out": "imagenet_sketch"})
    assert bed.value[1].tolist() == [80.376 / 100, 80.3762 / 100]
    assert bed.models["crop_pct"].to_list() == [0.9, 1.0, 0.875]


def test_renamed_timm_settings_keep_sizes_and_shifts(write):
    files = [write("results-imagenet.csv", ID), write("results-sketch.csv", OOD)]
    bed = import_results(files, setting_names={"imagenet": "val", "results-sketch": "sketch"})
    assert bed.settings == ("val", "sketch")
    assert bed.usual_size("sketch") == 50_889
    assert bed.shifts[0].source == ("val",)
    assert bed.shifts[0].target == "sketch"


def test_sizes_override_what_is_known(write):
    bed = import_results([write("results-imagenet.csv", ID)], sizes={"imagenet": 5_000})
    assert bed.usual_size("imagenet") == 5_000


@pytest.mark.parametrize(
    ("change", "words", "options"),
    [
        (("80.376", "180.376"), ["line 3", "'top1'", "'180.376'", "percentage"], {}),
        (("288", ""), ["line 3", "'img_size'", "missing"], {}),
        (("1.000", "wide"), ["line 3", "'crop_pct'", "'wide'"], {}),
        (("resnet50.a1_in1k,", ","), ["line 3", "'model'", "missing"], {}),
        (("crop_pct", "crop"), ["no column 'crop_pct'"], {}),
        (("", ""), ["timm", "percent"], {"unit": "fraction"}),
    ],
)
def test_timm_files_that_are_refused(write, refused, change, words, options):
    refused(write("results-imagenet.csv", ID.replace(*change)), *words, **options)


def test_a_timm_model_twice(write, refused):
    files = [write("results-imagenet.csv", ID), write("more.csv", ID)]
    words = ["line 2", "'eva_giant.clip_ft_in1k@224-0.9'", "'imagenet'", "results-imagenet.csv"]
    refused(files, *words, setting_names={"more": "imagenet"})


CLIP = "name,pretrained,params (M),FLOPs (B),Average perf. on 38 datasets,"
CLIP += """ImageNet 1k,ImageNet v2,FMoW
ViT-L-14,openai,427.62,175.33,030282.63,0.7554,0.6983,0.2229
ViT-L-14,laion2b_s32b_b82k,427.62,175.33,0.6219,0.7525,0.6780,0.0000
"""


def test_open_clip(write):
    bed = import_results([write("openclip_results.csv", CLIP)])
    shipped = published("openclip")
    assert bed.model_names == ["ViT-L-14/openai", "ViT-L-14/laion2b_s32b_b82k"]
    assert bed.settings == ("ImageNet 1k", "ImageNet v2", "FMoW")
    assert bed.value.tolist() == [[0.7554, 0.6983, 0.2229], [0.7525, 0.6780, 0.0]]
    assert bed.n.tolist() == [[50_000, 10_000, 0]] * 2
    assert bed.metrics == {"FMoW": "worst-region accuracy"}
    assert bed.shifts == (shipped.shift("imagenet-v2"),)
    assert bed.line == "zero-shot line"
    assert bed.models.schema == shipped.models.drop("family").schema


def test_open_clip_without_costs(write):
    text = "name,pretrained,ImageNet 1k\nRN50,openai,0.598\n"
    bed = import_results([write("a.csv", text)])
    assert bed.model_names == ["RN50/openai"]


@pytest.mark.parametrize(
    ("change", "words", "options"),
    [
        (("0.6983", "69.83"), ["line 2", "'ImageNet v2'", "'69.83'"], {}),
        ((",openai", ","), ["line 2", "'pretrained'", "missing"], {}),
        (("", ""), ["open_clip", "fraction"], {"unit": "percent"}),
    ],
)
def test_open_clip_files_that_are_refused(write, refused, change, words, options):
    refused(write("a.csv", CLIP.replace(*change)), *words, **options)


def test_the_published_tables_come_back(figures):
    bed = import_results([figures / "openclip.csv"])
    shipped = published("openclip")
    assert bed.models.equals(shipped.models.drop("family"))
    assert np.array_equal(bed.value, shipped.value, equal_nan=True)
    assert np.array_equal(bed.n, shipped.n)
    assert bed.shifts == shipped.shifts
    assert bed.metrics == shipped.metrics
    merged = import_results([figures / "timm.csv"], unit="percent")
    shipped = published("timm")
    assert merged.model_names == shipped.model_names
    assert merged.settings == shipped.settings
    assert np.allclose(merged.value, shipped.value, rtol=1e-15, equal_nan=True)


def test_timm_files_made_of_the_published_table(figures, tmp_path):
    wide = pl.read_csv(figures / "timm.csv")
    files = []
    for name, setting in NAMES.items():
        top1 = pl.col(setting)
        wide.filter(top1.is_not_null()).select(
            "model", top1=top1, top1_err=100 - top1, param_count="param_count",
            img_size="img_size", crop_pct="crop_pct",
        ).write_csv(tmp_path / name)  # fmt: skip
        files.append(tmp_path / name)
    bed, shipped = import_results(files), published("timm")
    order = [bed.model_index(name) for name in shipped.model_names]
    columns = [bed.setting_index(setting) for setting in shipped.settings]
    value = bed.value[np.ix_(order, columns)]
    assert np.allclose(value, shipped.value, rtol=1e-15, equal_nan=True)
    assert np.array_equal(bed.n[np.ix_(order, columns)], shipped.n)
    derived = ["name", "architecture", "tag", "img_size", "crop_pct", "param_count"]
    assert bed.models[order].select(derived).equals(shipped.models.select(derived))
