"""Probes: how a model behaves along paths between images (fridovich2022), and its Jacobian.

A probe is measured into a store, path by path; ``README.md`` beside this says how and why.
"""

from shiftbed.evaluation.probes.heatmap import heat_map
from shiftbed.evaluation.probes.running import probe_model
from shiftbed.evaluation.probes.settings import Probe, default_pairs, default_probe
from shiftbed.evaluation.probes.spectra import spectra_of
from shiftbed.evaluation.probes.viewer import path_strip

__all__ = [
    "Probe",
    "default_pairs",
    "default_probe",
    "heat_map",
    "path_strip",
    "probe_model",
    "spectra_of",
]
