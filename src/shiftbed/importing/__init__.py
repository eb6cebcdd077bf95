"""From the files people have to a testbed.

Tables (CSV, TSV, Parquet, JSON, JSON Lines) come in four layouts: ``wide`` with a row per model,
``long`` with a row per model and setting, the result files of ``timm`` and those of ``open_clip``.
``predictions`` are .npz files with what each model said of each image. Which column is what is
guessed from usual names and said in the testbed's notes; numbers are never guessed: what could mean
two things is refused in one line that says where it is and what to do.
"""

from shiftbed.importing.predictions import ModelResults, read_predictions
from shiftbed.importing.results import (
    LAYOUTS,
    SavedTestbed,
    import_results,
    save_testbed,
)

__all__ = [
    "LAYOUTS",
    "ModelResults",
    "SavedTestbed",
    "import_results",
    "read_predictions",
    "save_testbed",
]
