"""Models, test sets and perturbations in; per-example predictions out. The half that knows torch."""
