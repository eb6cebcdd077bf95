"""Evaluating models on test sets: one engine, its plans as values, and where tasks run."""
