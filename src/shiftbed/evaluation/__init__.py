"""Models, test sets and perturbations in; predictions per example out. This half knows torch."""
