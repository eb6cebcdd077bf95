import numpy as np
import pytest

import shiftbed as sb


def test_difference_is_the_difference(imagenet):
    line = imagenet.fit("imagenet-v2", bootstrap=0)
    rho = dict(zip(imagenet.model_names, imagenet.judge(line).effective, strict=True))
    gap = imagenet.difference(line, "resnet50", "vgg16")
    assert gap.effective == pytest.approx(rho["resnet50"] - rho["vgg16"])
    back = imagenet.difference(line, "vgg16", "resnet50")
    assert (back.low, back.high) == pytest.approx((-gap.high, -gap.low))
    assert back.p_value == pytest.approx(gap.p_value)
    assert not gap.paired


def test_a_model_does_not_differ_from_itself(imagenet):
    line = imagenet.fit("imagenet-a", bootstrap=0)
    gap = imagenet.difference(line, "vgg16", "vgg16")
    assert gap.effective == 0
    assert gap.p_value == pytest.approx(1.0)


def test_models_that_were_not_evaluated_are_named(imagenet):
    line = imagenet.fit("imagenet-v2", bootstrap=0)
    missing = imagenet.model_names[
        int(np.flatnonzero(np.isnan(imagenet.accuracy(line.ood_setting)))[0])
    ]
    with pytest.raises(sb.InputError, match="was not evaluated on 'imagenet-v2'"):
        imagenet.difference(line, "resnet50", missing)
