"""Probes: how a model behaves along paths between images (fridovich2022), and its Jacobian.

A probe is measured into a store, path by path; ``README.md`` beside this says how and why.
"""

from shiftbed.evaluation.probes.fourier import Spectrum, heat_map, spectra_of
from shiftbed.evaluation.probes.measure import Report, probe_model
from shiftbed.evaluation.probes.probe import Probe, default_probe
from shiftbed.evaluation.probes.strip import path_strip

__all__ = [
    "Probe",
    "Report",
    "Spectrum",
    "default_probe",
    "heat_map",
    "path_strip",
    "probe_model",
    "spectra_of",
]
