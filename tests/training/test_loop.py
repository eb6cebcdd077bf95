"""The loop: the same weights whatever prepares the batches and wherever it was interrupted."""

import hashlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet
from shiftbed.training.augment import make_augmentation
from shiftbed.training.loop import Run, checkpoint_steps, make_optimiser, make_schedule, train
from shiftbed.training.objective import CrossEntropy, Hook, MeanSquares, make_hook, make_objective
from shiftbed.training.prepare import whole
from shiftbed.training.runs import RunFolder
from shiftbed.training.stream import Stream
from tests.training.minimal import digits, small_net

SGD = {"name": "SGD", "lr": 0.05, "momentum": 0.9}
COSINE = {"name": "CosineAnnealingLR", "warmup": 3}


def digest(network: nn.Module) -> str:
    whole = hashlib.sha256()
    for tensor in network.state_dict().values():
        whole.update(tensor.numpy().tobytes())
    return whole.hexdigest()


def images(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    x, y, _, _ = digits()
    pixels = (x[:n, 0].numpy() * 255).round().astype(np.uint8)
    return pixels[..., None], y[:n].numpy()


def a_run(
    steps: int = 12,
    seed: int = 0,
    schedule=COSINE,
    optimiser=SGD,
    hooks=(),
    objective=None,
    workers: int = 0,
    augmentation: str = "none",
) -> Run:
    pixels, labels = images()
    network = nn.Sequential(small_net(seed), nn.Dropout(0.2))
    torch.manual_seed(seed)
    made = make_optimiser(optimiser, network.parameters())
    data = whole(TestSet(pixels, labels))
    held = torch.from_numpy(pixels[data.rows])
    return Run(
        network=network,
        objective=objective or CrossEntropy(),
        optimiser=made,
        schedule=make_schedule(schedule, made, steps=steps, epochs=3),
        stream=Stream(
            data.labels,
            batch_size=64,
            seed=seed,
            held=held,
            data=data,
            augmentation=make_augmentation(augmentation, seed=seed),
            workers=workers,
        ),
        steps=steps,
        hooks=hooks,
    )


def trained(**options) -> nn.Module:
    run = a_run(**options)
    run.begin()
    train(run, [run.steps], lambda run: None)
    return run.network


class TestAgainstTorch:
    def test_the_same_weights_as_the_bare_loop(self):
        """Order, dropout, momentum, warm-up and cosine: nothing happens but what torch does."""
        run = a_run()
        network = nn.Sequential(small_net(0), nn.Dropout(0.2)).train()
        torch.manual_seed(0)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
        rise = torch.optim.lr_scheduler.LinearLR(optimiser, start_factor=0.25, total_iters=3)
        fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 9)
        schedule = torch.optim.lr_scheduler.SequentialLR(optimiser, [rise, fall], [3])
        held, labels = run.stream.held, run.stream.labels
        rows = [rows for epoch in range(3) for rows in run.stream.order(epoch)][:12]
        for at in map(torch.from_numpy, rows):
            x = held[at].permute(0, 3, 1, 2).float() / 255
            loss = functional.cross_entropy(network(x), labels[at])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        assert digest(trained()) == digest(network)

    def test_mse_is_torchs_on_one_hot(self):
        logits = torch.randn(5, 4)
        labels = torch.tensor([0, 1, 2, 3, 0])
        from shiftbed.training.objective import TrainingBatch

        batch = TrainingBatch(pixels=logits, labels=labels, rows=np.arange(5))
        expected = ((logits - torch.eye(4)[labels]) ** 2).mean()
        assert MeanSquares().loss(nn.Identity(), batch) == pytest.approx(float(expected))

    def test_training_works(self):
        network = trained(steps=60, schedule={"name": "constant"}).eval()
        x, y, _, _ = digits()
        right = (network(x[300:]).argmax(1) == y[300:]).double().mean()
        assert right > 0.85


class TestDeterminism:
    def test_seeds(self):
        assert digest(trained(seed=1)) == digest(trained(seed=1)) != digest(trained(seed=2))

    def test_one_worker_two_workers_and_none(self):
        """Augmented, so that workers draw random numbers."""
        found = {digest(trained(augmentation="crop-flip", workers=w)) for w in (0, 1, 2)}
        assert len(found) == 1

    def test_augmentation_changes_with_the_epoch_and_the_seed(self):
        assert digest(trained(augmentation="crop-flip")) != digest(trained())

    def test_an_epoch_has_every_example_once(self):
        stream = a_run().stream
        for epoch in (0, 1):
            rows = np.concatenate(stream.order(epoch))
            assert sorted(rows) == list(range(300))
        assert not np.array_equal(stream.order(0)[0], stream.order(1)[0])

    @pytest.mark.parametrize(("n", "sizes"), [(128, [64, 64]), (129, [64, 65]), (130, [64, 64, 2])])
    def test_a_last_batch_of_one_joins_the_one_before(self, n, sizes):
        stream = a_run().stream
        stream.keep(np.arange(n))
        assert [len(rows) for rows in stream.order(0)] == sizes
        assert stream.steps_per_epoch == len(sizes)


class Counting(Hook):
    """Counts what it is told, and leaves out half of the examples after the first epoch."""

    def __init__(self) -> None:
        self.steps = 0
        self.epochs: list[int] = []

    def after_step(self, run: Run) -> None:
        self.steps += 1

    def after_epoch(self, run: Run) -> None:
        self.epochs.append(run.step)
        run.stream.keep(np.arange(150))

    def state(self):
        return {"steps": self.steps, "epochs": self.epochs}

    def load_state(self, state) -> None:
        self.steps, self.epochs = state["steps"], list(state["epochs"])


class TestGoingOn:
    @pytest.mark.parametrize("stop", [1, 4, 5, 7, 11])
    @pytest.mark.parametrize("optimiser", [SGD, {"name": "Adam", "lr": 0.01, "betas": [0.9, 0.99]}])
    def test_a_run_that_was_cut_ends_with_the_same_weights(self, tmp_path, stop, optimiser):
        """In the middle of an epoch and at its end; through a file read as weights only."""
        options = {"optimiser": optimiser, "augmentation": "flip"}
        whole = a_run(hooks=[Counting()], **options)
        whole.begin()
        train(whole, [12], lambda run: None)
        folder = RunFolder(tmp_path, "a")
        first = a_run(hooks=[Counting()], **options)
        first.begin()

        def cut(run: Run) -> None:
            folder.write_state(run.state())
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(first, [stop], cut)
        torch.rand(7)  # whoever draws in between does not matter
        second = a_run(hooks=[Counting()], seed=0, **options)
        second.begin(folder.state())
        assert second.step == stop
        train(second, [12], lambda run: None)
        assert digest(second.network) == digest(whole.network)
        assert second.hooks[0].state() == whole.hooks[0].state()
        assert second.hooks[0].steps == 12
        assert second.hooks[0].epochs == [5, 8, 11]  # 300 examples, then 150

    def test_a_damaged_state_is_refused(self, tmp_path):
        folder = RunFolder(tmp_path, "a")
        folder.write_state({"step": 1})
        path = tmp_path / "a" / "last.pt"
        path.write_bytes(path.read_bytes()[:200])
        with pytest.raises(InputError, match="remove it to start again"):
            folder.state()

    def test_a_state_may_hold_nothing_that_runs(self, tmp_path):
        folder = RunFolder(tmp_path, "a")
        (tmp_path / "a").mkdir()
        torch.save({"step": print}, tmp_path / "a" / "last.pt")
        with pytest.raises(InputError, match="refused"):
            folder.state()


class TestNames:
    def test_checkpoints(self):
        assert checkpoint_steps({"unit": "epoch", "at": []}, 30, 10) == [30]
        assert checkpoint_steps({"unit": "step", "every": 7, "at": [0]}, 20, 10) == [0, 7, 14, 20]

    def test_optimisers_and_schedules_are_torchs(self):
        parameters = [nn.Parameter(torch.zeros(2))]
        made = make_optimiser({"name": "AdamW", "lr": 0.1}, parameters)
        assert isinstance(made, torch.optim.AdamW)
        with pytest.raises(
            InputError, match="unknown optimiser 'Adma'; did you mean 'Adamax' or 'Adam'"
        ):
            make_optimiser({"name": "Adma"}, parameters)
        with pytest.raises(InputError, match=r"optimiser 'SGD'.*momentun"):
            make_optimiser({"name": "SGD", "lr": 0.1, "momentun": 0.9}, parameters)
        with pytest.raises(InputError, match="unknown schedule 'Cosine'"):
            make_schedule({"name": "Cosine"}, made, steps=3, epochs=1)
        with pytest.raises(InputError, match=r"schedule 'StepLR'.*step_size"):
            make_schedule({"name": "StepLR"}, made, steps=3, epochs=1)

    def test_a_schedule_by_epoch(self):
        parameters = [nn.Parameter(torch.zeros(2))]
        made = make_optimiser({"name": "SGD", "lr": 1.0}, parameters)
        table = {"name": "MultiStepLR", "milestones": [1, 2], "per": "epoch"}
        schedule = make_schedule(table, made, steps=30, epochs=3)
        rates = []
        for _ in range(3):
            for _ in range(10):
                made.step()
                schedule.after("step")
            rates.append(made.param_groups[0]["lr"])
            schedule.after("epoch")
        assert rates == pytest.approx([1.0, 0.1, 0.01])

    def test_objectives_and_hooks(self):
        with pytest.raises(InputError, match="did you mean 'cross-entropy'"):
            make_objective({"name": "cross-entropie"})
        with pytest.raises(InputError, match=r"objective 'cross-entropy'.*smoothing"):
            make_objective({"name": "cross-entropy", "smoothing": 0.1})
        with pytest.raises(InputError, match="unknown hook 'prun'"):
            make_hook("prun", {})

    def test_a_loss_that_is_not_finite_stops_the_run(self):
        run = a_run(optimiser={"name": "SGD", "lr": 1e30}, schedule={"name": "constant"})
        run.begin()
        with pytest.raises(InputError, match="the loss is not finite up to step 12"):
            train(run, [12], lambda run: run.mean_loss())
