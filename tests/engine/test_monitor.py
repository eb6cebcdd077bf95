"""Monitoring training elsewhere: a plain loop, Lightning, and the Transformers trainer."""

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision

torch = pytest.importorskip("torch")
ensure_torchvision()

SEEN = {"size": 8, "mean": (0.5,) * 3, "std": (0.5,) * 3}


@pytest.fixture(scope="module")
def sets():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 60)
    images = rng.integers(0, 100, (60, 8, 8, 3)).astype(np.uint8)
    images[labels == 1] += 100
    new = np.clip(images.astype(int) + 60, 0, 255).astype(np.uint8)
    return sb.TestSet(images, labels, name="val"), sb.TestSet(new, labels, name="new")


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))


def batch(test_set):
    x = np.stack([np.asarray(test_set.load(i)) for i in range(len(test_set))])
    pixels = torch.from_numpy(x.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    return (pixels - 0.5) / 0.5, torch.from_numpy(np.asarray(test_set.labels))


def test_a_plain_loop(sets, tmp_path):
    heard = []
    watch = sb.Monitor(
        list(sets), tmp_path / "kept", "imagenet-v2", log=lambda s, n: heard.append((n, s)), **SEEN
    )
    module, (x, y) = net().train(), batch(sets[0])
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    for step in range(3):
        watch(module, step)
        assert module.training
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    history = watch.history
    assert [step for step, _ in heard] == [0, 1, 2]
    assert set(heard[0][1]) == {"val", "new", "new ρ"}
    frame = history.frame.filter(setting="new")
    bed = sb.published("imagenet-testbed-2020")
    for row in frame.iter_rows(named=True):
        same = history.frame.filter(setting="val", step=row["step"])["value"][0]
        placed = sb.place(
            bed,
            {"val": (round(same * 60), 60)},
            {"imagenet-v2": (round(row["value"] * 60), 60)},
        ).frame.row(0, named=True)
        assert row["effective"] == placed["effective"]
        assert (row["rho_low"], row["rho_high"]) == (placed["low"], placed["high"])
    stored = sb.open_testbed(str(tmp_path / "kept"))
    assert stored.models["step"].to_list() == [0, 1, 2]
    assert stored.models["run"].to_list() == ["run"] * 3
    assert "ρ" in str(history)
    ax = history.plot()
    assert len(ax.lines[0].get_xdata()) == 3


@pytest.mark.filterwarnings("ignore::FutureWarning")  # its own
def test_lightning(sets):
    lightning = pytest.importorskip("lightning")

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch, _):
            self.log("loss", torch.nn.functional.cross_entropy(self(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    watch = sb.Monitor(list(sets), None, "imagenet-v2", **SEEN)
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(*batch(sets[0])), batch_size=20
    )
    trainer = lightning.Trainer(
        max_epochs=2,
        callbacks=[watch.lightning()],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), data, data)
    assert sorted(set(watch.history.frame["step"])) == [3, 6]
    assert float(trainer.callback_metrics["val"]) == watch.rows[-2]["value"]


def test_transformers(sets, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
        num_labels=2,
    )
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config)
    x, y = batch(sets[0])
    data = [{"pixel_values": a, "labels": b} for a, b in zip(x, y, strict=True)]
    watch = sb.Monitor(list(sets), None, "imagenet-v2", **SEEN)
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path),
            num_train_epochs=2,
            per_device_train_batch_size=30,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=data,
        callbacks=[watch.transformers()],
    )
    trainer.train()
    assert sorted(set(watch.history.frame["step"])) == [2, 4]
    with torch.inference_mode():
        right = float((model.eval()(pixel_values=x).logits.argmax(1) == y).float().mean())
    assert watch.rows[-2]["value"] == pytest.approx(right)


def test_a_shift_needs_two_test_sets(sets):
    with pytest.raises(InputError, match="needs an ID and an OOD test set"):
        sb.Monitor([sets[0]], None, "imagenet-v2", **SEEN)
