"""Probes of 24 CIFAR-10 models trained here, and which of them tells accuracy under corruption."""
