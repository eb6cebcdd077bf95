"""24 CIFAR-10 models trained, corrupted, attacked and probed: fridovich2022 in miniature."""
