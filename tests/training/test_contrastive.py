"""Image–text training on digits and captions, zero-shot answers, and fine-tuning from it."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from shiftbed.errors import InputError
from shiftbed.training.contrastive import Contrastive, plain_classifier, zero_shot
from shiftbed.training.objective import CrossEntropy
from tests.training.digit_runs import NAMES, accuracy, digits, images, make_run, network, trained

TEMPLATES = ("a photo of the digit {}", "the number {} written by hand", "{}")
SMALL = {"width": 32, "text_width": 32, "text_layers": 1, "context_length": 12}


def make(steps: int = 50, **options):
    objective = Contrastive(templates=TEMPLATES, **{"class_names": NAMES} | SMALL | options)
    return make_run(objective, steps=steps, lr=0.003, made=network(10, seed=2))


@pytest.fixture(scope="module")
def run():
    made = make()
    trained(made)
    return made


def test_zero_shot_is_far_above_chance(run):
    """Chance is 10 %."""
    found = accuracy(run.objective.evaluated(run.network))
    assert found > 0.8


def test_prompts_that_were_never_trained_on_work_too(run):
    from shiftbed.training.contrastive import tokenizer

    cut = tokenizer(12)
    texts = [f"a photo of the number {name}" for name in NAMES]
    unseen = zero_shot(run.network, cut(texts).view(10, 1, -1))
    assert accuracy(unseen) > 0.6


def test_class_names_decide_the_answer(run):
    """With the prompts of two classes exchanged, exactly their answers are."""
    prompts = run.objective.prompts
    order = [1, 0, *range(2, 10)]
    turned = zero_shot(run.network, prompts[order])
    plain = run.objective.evaluated(run.network)
    x = torch.from_numpy(images()[0][1200:]).float().div(255)[:, None]
    with torch.inference_mode():
        torch.testing.assert_close(turned(x)[:, order], plain(x))


def test_the_plain_classifier_answers_as_zero_shot_does(run):
    zero = run.objective.evaluated(run.network).eval()
    plain = plain_classifier(run.network, run.objective.prompts).eval()
    x = torch.from_numpy(images()[0][1200:]).float().div(255)[:, None]
    with torch.inference_mode():
        a, b = zero(x), plain(x)
    assert b.shape == (597, 10)
    margin = a.topk(2, dim=1).values.diff(dim=1).abs()[:, 0]
    assert torch.equal(a.argmax(1)[margin > 1e-3], b.argmax(1)[margin > 1e-3])
    assert int((margin > 1e-3).sum()) > 590
    assert 0.2 < float(a.std() / b.std()) < 5  # logits of about the same size


def test_fine_tuning_starts_from_it(run):
    module = deepcopy(run.objective.written(run.network))
    head = next(m for m in reversed(list(module.modules())) if isinstance(m, torch.nn.Linear))
    before = accuracy(module)
    tuned = make_run(CrossEntropy(), made=(module, head), steps=40, lr=0.002)
    trained(tuned)
    assert accuracy(module) > max(0.9, before - 0.01)
    assert run.objective.outputs(10) == 10


def test_the_loss_is_symmetric_cross_entropy_over_pairs():
    made = make(steps=1)
    batch = next(iter(made.stream.epoch(0)))
    network = made.network.eval()
    with torch.inference_mode():
        tokens, which = made.objective.tokens(batch)
        image, text = network(batch.pixels), network.texts(tokens)[which]
        z = network.logit_scale.exp() * image @ text.T
        own = torch.arange(len(z))
        wanted = (
            torch.nn.functional.cross_entropy(z, own) + torch.nn.functional.cross_entropy(z.T, own)
        ) / 2
        found = made.objective.loss(network, batch)
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)
    assert float(torch.linalg.vector_norm(image, dim=1).mean()) == pytest.approx(1, abs=1e-5)


def test_captions_fit_the_labels_and_change_from_time_to_time():
    made = make(steps=1)
    objective = made.objective
    batch = next(iter(made.stream.epoch(0)))
    first, which = objective.tokens(batch)
    table = objective.prompts
    for label, tokens in zip(batch.labels.tolist(), first[which], strict=True):
        assert (table[label] == tokens).all(dim=1).any()
    objective.load_state({"calls": 5})
    second, other = objective.tokens(batch)
    assert not torch.equal(first[which], second[other])
    assert objective.state() == {"calls": 5}


def test_same_seed_same_weights():
    states = []
    for _ in range(2):
        made = make(steps=3)
        trained(made)
        states.append(made.network.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_captions_from_a_file(tmp_path):
    x = digits(slice(0, 300))
    lines = ["example,caption"]
    lines += [
        f"{example.partition('/')[2]},digit {NAMES[label]}"
        for example, label in zip(x.examples, x.labels.tolist(), strict=True)
    ]
    (tmp_path / "captions.csv").write_text("\n".join(lines))
    objective = Contrastive(
        templates=["digit {}"], class_names=NAMES, captions="captions.csv", **SMALL
    )
    made = make_run(objective, data=x, base=str(tmp_path), steps=1)
    batch = next(iter(made.stream.epoch(0)))
    tokens, which = objective.tokens(batch)
    assert torch.equal(tokens[which], objective.prompts[batch.labels, 0])
    assert len(tokens) == len(np.unique(batch.labels))
    (tmp_path / "captions.csv").write_text("\n".join(lines[:-1]))
    with pytest.raises(InputError, match="no caption for example"):
        make_run(objective, data=x, base=str(tmp_path), steps=1)


def test_every_class_needs_a_name():
    with pytest.raises(InputError, match="a name for each of the 10 classes, got 2"):
        make(class_names=("zero", "one"))
