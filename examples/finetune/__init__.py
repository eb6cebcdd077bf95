"""Fine-tuning trajectories, data mixes and a head on ImageNet weights, on real digits."""
