"""Running a testbed: models × settings → predictions in a store, continued where it stopped."""

from shiftbed.engine.run import Summary, plan, run
from shiftbed.engine.spec import ModelSpec, RunSpec, SettingSpec, TestSetSpec, read_spec

__all__ = [
    "ModelSpec",
    "RunSpec",
    "SettingSpec",
    "Summary",
    "TestSetSpec",
    "plan",
    "read_spec",
    "run",
]
