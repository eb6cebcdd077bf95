"""Factors of a study as finished tables."""

import numpy as np
import polars as pl

from shiftbed.analysis.factors import Factors


def loading_table(found: Factors) -> pl.DataFrame:
    """A row per metric and factor: loading with its interval, communality, Heywood cases."""
    p, k = found.loadings.shape
    rows = {
        "metric": np.repeat(np.array(found.columns), k),
        "factor": np.tile(np.arange(1, k + 1), p),
        "loading": found.loadings.ravel(),
        "low": found.low.ravel(),
        "high": found.high.ravel(),
        "communality": np.repeat(found.communality, k),
        "communality_low": np.repeat(found.communality_low, k),
        "communality_high": np.repeat(found.communality_high, k),
        "uniqueness": np.repeat(found.uniqueness, k),
        "heywood": np.repeat(found.heywood, k),
        "variance": np.tile(found.variance, p),
        "variance_low": np.tile(found.variance_low, p),
        "variance_high": np.tile(found.variance_high, p),
        "n": np.full(p * k, found.n),
    }
    return pl.DataFrame(rows, nan_to_null=True)


def eigenvalue_table(found: Factors) -> pl.DataFrame:
    """A row per eigenvalue of the correlations: its interval, and what chance would give."""
    return pl.DataFrame(
        {
            "rank": np.arange(1, len(found.columns) + 1),
            "eigenvalue": found.eigenvalues,
            "low": found.eigenvalues_low,
            "high": found.eigenvalues_high,
            "chance": found.chance,
            "share": found.eigenvalues / len(found.columns),
            "kept": np.arange(len(found.columns)) < found.k,
            "n": np.full(len(found.columns), found.n),
        },
        nan_to_null=True,
    )
