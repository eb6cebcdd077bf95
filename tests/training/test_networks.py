"""Networks to train: heads of the right size, and starts that are what they say."""

import pytest
import torch

from shiftbed.errors import InputError
from shiftbed.training.networks import make_network

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
