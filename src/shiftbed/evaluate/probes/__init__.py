"""Probes: how a model behaves along paths between images (fridovich2022), and its Jacobian.

A probe is measured into a store, path by path; ``README.md`` beside this says how and why.
"""

from shiftbed.evaluate.probes.heatmap import heat_map
from shiftbed.evaluate.probes.running import probe_model
from shiftbed.evaluate.probes.settings import Probe, default_pairs, default_probe
from shiftbed.evaluate.probes.spectra import spectra_of
from shiftbed.evaluate.probes.viewer import path_strip

__all__ = [
    "Probe",
    "default_pairs",
    "default_probe",
    "heat_map",
    "path_strip",
    "probe_model",
    "spectra_of",
]
