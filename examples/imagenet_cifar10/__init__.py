"""ImageNet weights fine-tuned on CIFAR-10: how effective robustness comes and goes."""
