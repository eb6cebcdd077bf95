"""``fit --choose-ids``: which ID settings predict an OOD setting."""

import json

import pytest

from tests.cli.in_process import shiftbed


class TestChoosingIdSettings:
    IDS = ("--id", "ImageNet 1k", "--id", "ImageNet-R", "--id", "ImageNet Sketch")
    FIT = ("fit", "-t", "openclip", *IDS, "--ood", "ObjectNet", "--fit-on", "all", "--choose-ids")

    def test_json(self) -> None:
        done = shiftbed(*self.FIT, "--json", cwd=".")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["n"] == 121
        assert len(found["subsets"]) == 7
        assert found["best"] == found["subsets"][0]["id_settings"]
        assert "ImageNet-R" in found["chosen"]
        assert found["collinearity"]["vif"]["ImageNet 1k"] > 10
        assert any("nearly collinear" in w or "VIF" in w for w in found["collinearity"]["warnings"])
        assert len(found["partial_residuals"]) == 3 * 121
        assert len(found["fit"]["weights"]) == 3
        assert found["ridge"]["effective_weights"][0] == pytest.approx(3)
        for one in found["subsets"]:
            assert one["loo_mae_low"] < one["loo_mae"] < one["loo_mae_high"]

    def test_tables(self) -> None:
        done = shiftbed(*self.FIT, cwd=".")
        assert done.returncode == 0
        for text in ("Which ID settings predict ObjectNet?", "Ridge:", "VIF", "chosen", "Warning:"):
            assert text in done.stdout

    def test_one_id_setting_is_not_enough(self) -> None:
        done = shiftbed("fit", "--shift", "imagenet-v2", "--choose-ids", cwd=".")
        assert done.returncode == 2
        assert "needs two or more" in done.stderr
