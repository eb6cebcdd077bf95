"""A study from Python, start to end: evaluate, score, place, compare, draw, probe, report."""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shiftbed as sb

digits = load_digits()
images, labels = np.uint8(digits.images * 15.9375), digits.target
x, y = torch.tensor(images[:, None] / 255).float(), torch.tensor(labels)
nets = []
for width in (8, 64):  # two networks, trained in a second
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net((x[:1000] - 0.3) / 0.4), y[:1000]).backward()
        optimiser.step()
    nets.append(sb.model(net, name=f"width-{width}", size=8, mean=(0.3,), std=(0.4,)))
val = sb.TestSet(images[1000:1400], labels[1000:1400], name="val")  # arrays
loader = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=64)  # a loader
new = sb.TestSet.from_loader(loader, name="new")
shifts = {"corruptions": ["contrast:2", "gaussian_noise:2"], "attacks": ["pgd-linf:8/255"]}
found = sb.evaluate(nets, [val, new], **shifts)
print(found.score("top1", "nll"))
narrow = dict(found.frame.filter(model="width-8").select("setting", "value").rows())
bed = sb.published("imagenet-testbed-2020")  # digits on its line: only to show how it is done
placed = sb.place(bed, {"val": narrow["val"]}, {"imagenet-v2": narrow["new"]})
print(placed, sb.compare("resnet50", "resnet50_augmix", bed, shift="imagenet-v2"), sep="\n")
print(sb.probe(nets[0], val, probes=["jacobian"], pairs=50, normalisation="model"))
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5))
placed.plot(ax=left)
sb.plot(bed, "objectnet", ax=right)
figure.savefig("notebook.png")
print(sb.report([bed, found.store], "notebook.html"))
