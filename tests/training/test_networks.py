"""Networks to train: heads of the right size, and starts that are what they say."""

import numpy as np
import pytest
import torch
from torch import nn

from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve
from shiftbed.training import networks
from shiftbed.training.networks import make_network
from tests.training import own_weights

SPEC = "timm:resnet10t?size=32"


def state(network):
    return network.module.network.state_dict()


def same(one, two, but=()):
    return all(torch.equal(one[k], two[k]) for k in one if not k.startswith(tuple(but)))


def test_random_starts_are_seeded():
    a, b, c = (make_network(SPEC, 5, seed=seed) for seed in (3, 3, 4))
    assert same(state(a), state(b))
    assert not same(state(a), state(c))
    assert all(p.requires_grad for p in a.module.parameters())


def test_a_python_network_starts_as_it_says(tmp_path):
    own_weights.place(tmp_path)
    fixed = "\ndef fixed():\n    made = net()\n    nn.init.ones_(made[1].weight)\n"
    fixed += "    nn.init.zeros_(made[1].bias)\n    made[3].weight.data.zero_()\n"
    fixed += "    made[3].bias.data.zero_()\n    return made\n"
    (tmp_path / "own.py").write_text(own_weights.NET + fixed)
    line = f"python:{tmp_path / 'own.py'}:"
    one, again, other = (make_network(f"{line}net()", 2, seed=seed) for seed in (3, 3, 4))
    assert same(state(one), state(again))
    assert not same(state(one), state(other))
    assert [one.start, make_network(f"{line}fixed()", 2).start] == ["random", "pretrained"]
    for name, sign in (("right", 1.0), ("wrong", -1.0)):
        read = make_network(f"{line}net()", 2, f"file:{name}.pt", base=tmp_path)
        assert same(state(read), own_weights.weights(sign))
        assert read.start == "file"
    with pytest.raises(InputError, match=r"4 missing \(1.weight.*1 not in the arch.*\(other"):
        make_network(f"{line}net()", 2, "file:strange.pt", base=tmp_path)


def test_a_file_gives_its_weights_and_a_new_head(tmp_path):
    old = make_network("timm:resnet10t?size=32", 7, seed=1)
    torch.save(state(old), tmp_path / "old.pt")
    new = make_network(SPEC, 5, "file:old.pt", base=tmp_path)
    assert new.heads[0].out_features == 5
    assert same(state(new), state(old), but=["fc."])
    kept = make_network(SPEC, 7, "file:old.pt", base=tmp_path)
    assert same(state(kept), state(old))


def test_a_runs_weights_with_its_own_number_of_classes(tmp_path):
    old = make_network(SPEC, 7, seed=1)
    torch.save(state(old), tmp_path / "old.pt")
    new = make_network(SPEC, 5, "run:x", weights=tmp_path / "old.pt", old_classes=7)
    assert same(state(new), state(old), but=["fc."])
    assert new.heads[0].out_features == new.classes == 5


def test_the_head_of_other_networks_is_their_last_linear_layer():
    network = make_network("torchvision:resnet18?size=32", 4)
    assert network.heads[0] is network.module.network.fc
    network.freeze_all_but_heads()
    free = [name for name, p in network.module.named_parameters() if p.requires_grad]
    assert free == ["network.fc.weight", "network.fc.bias"]


def test_weights_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        make_network(SPEC, 5, "file:none.pt", base=tmp_path)
    with pytest.raises(InputError, match="unknown kind of model to train 'sklearn'"):
        make_network("sklearn:model.skops", 5)


PUBLISHED = {
    "conv8": 5_275_840,  # weights, as tabulated for Conv8 by work on supermasks
    "resnet18": 11_173_962,
    "vgg16": 14_728_266,
    "resnet20": 269_722,  # He et al. (2016), Table 6: 0.27M
    "resnet32": 464_154,  # 0.46M
    "resnet44": 658_586,  # 0.66M
    "resnet56": 853_018,  # 0.85M
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_number_of_parameters_is_the_published_one(name: str) -> None:
    with torch.device("meta"):
        network = networks.build(name)
    assert sum(p.numel() for p in network.parameters()) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["conv8", "resnet18", "vgg16", "resnet8", "resnet14"])
def test_classes_channels_and_a_gradient_everywhere(name: str) -> None:
    network = networks.build(name, classes=7, channels=1)
    logits = network(torch.rand(2, 1, 32, 32))
    assert logits.shape == (2, 7)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
    heads = [m for m in network.modules() if isinstance(m, nn.Linear)]
    assert heads[-1].out_features == 7


def test_depth_counts_layers_with_weights() -> None:
    """6n+2 layers, as the name says."""
    for depth in (8, 14, 20):
        network = networks.build(f"resnet{depth}")
        layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        assert len(layers) == depth


def test_shortcut_without_parameters_is_option_a() -> None:
    x = torch.arange(32.0).view(1, 2, 4, 4)
    y = networks.Padded(2, 3)(x)
    assert y.shape == (1, 5, 2, 2)
    assert torch.equal(y[:, :2], x[:, :, ::2, ::2])
    assert not y[:, 2:].any()


def test_a_line_names_a_net_and_its_seed_fixes_it() -> None:
    one = resolve("nets:resnet8?seed=3&num_classes=4")
    again = resolve("nets:resnet8?seed=3&num_classes=4")
    other = resolve("nets:resnet8?seed=4&num_classes=4")
    assert one.id == "nets:resnet8?num_classes=4&seed=3"
    x = np.random.default_rng(0).random((2, 3, 32, 32), dtype=np.float32)
    assert np.array_equal(one.logits(x), again.logits(x))
    assert not np.array_equal(one.logits(x), other.logits(x))


def test_grey_images_of_another_size() -> None:
    model = resolve("nets:resnet8?size=8&mode=L")
    assert model.preprocessing.channels == 1
    assert model.logits(np.zeros((3, 1, 8, 8), np.float32)).shape == (3, 10)


def test_weights_from_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(1)
    network = networks.build("resnet8", classes=5).eval()
    file = tmp_path / "net.pt"
    torch.save(network.state_dict(), file)
    model = resolve(f"nets:resnet8?weights={file}&mean=0&std=1")
    assert model.classes == 5
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        np.testing.assert_allclose(model.logits(x.numpy()), network(x).numpy(), atol=1e-5)
    with pytest.raises(InputError, match="does not fit"):
        resolve(f"nets:resnet14?weights={file}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nets:resnet19", "did you mean"),
        ("nets:resnet8?depth=3", "depth"),
    ],
)
def test_what_is_unknown_is_said(line: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(line)
    with pytest.raises(InputError, match="at least 1"):
        networks.build("conv8", classes=0)


def test_a_head_is_new_kept_or_refused(tmp_path):
    torch.manual_seed(1)
    network = networks.build("resnet8", classes=5)
    torch.save(network.state_dict(), tmp_path / "net.pt")
    given = {"start": "file:net.pt", "base": tmp_path, "seed": 3}
    kept, new = (
        networks.make_network("nets:resnet8", 5, head=head, **given) for head in ("keep", "new")
    )
    assert torch.equal(kept.heads[0].weight, network.fc.weight)
    assert not torch.equal(new.heads[0].weight, network.fc.weight)
    assert torch.equal(new.module.network.conv1.weight, network.conv1.weight)
    assert torch.equal(new.old_heads[0].weight, network.fc.weight)
    again = networks.make_network("nets:resnet8", 5, head="new", **given)
    assert torch.equal(new.heads[0].weight, again.heads[0].weight)
    with pytest.raises(InputError, match="head 'keep': nets:resnet8 has 5 outputs"):
        networks.make_network("nets:resnet8", 4, head="keep", **given)
