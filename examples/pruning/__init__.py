"""Six ways to prune a small network to 80 % sparsity, beside its dense twin."""
