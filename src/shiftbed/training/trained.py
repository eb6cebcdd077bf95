"""``run:FOLDER[?step=N]``: a checkpoint of a finished run as a model, the last if none is named.

FOLDER is RUNS/ID, as ``shiftbed train`` leaves it. The model is called RUN@STEP, as in the store:
probes and further settings land beside what is known of it.

    shiftbed probe run:runs/1a2b3c4d5e6f test/mnist.npz --store store
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.errors import InputError
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.models.spec import Spec
from shiftbed.training.checkpoint import RunFolder
from shiftbed.training.execute import finished_model, kept_file
from shiftbed.training.recipe import Job
from shiftbed.training.task import TrainTask, model_name

if TYPE_CHECKING:
    from shiftbed.evaluation.models.spec import Request


def load(request: "Request") -> Model:
    """The model of a run's folder."""
    if request.precision != "float32" or request.preprocessing:
        raise InputError(
            f"{request.spec.text} is run as it was trained: no other precision or size"
        )
    task, step, done = _read(request.spec, request.device)
    if not kept_file(task, step).is_file():
        raise InputError(f"{task.folder.path}: the weights after step {step} were not kept")
    return finished_model(task, step, done)


def name_of(text: str) -> str:
    """What the store calls the checkpoint that a line names: RUN@STEP."""
    task, step, _ = _read(Spec.parse(text))
    return model_name(task.job, step)


def _read(spec: Spec, device: str = "cpu") -> tuple[TrainTask, int, dict[str, Any]]:
    """The run, the step that is wanted, and what done.json says."""
    for key in spec.query:
        if key != "step":
            raise InputError(f"{spec.text}: only ?step=N may follow, got {key!r}")
    path = Path(spec.name)
    folder = RunFolder(path.parent, path.name)
    try:
        about, done = folder.read("job"), folder.read("done")
    except ValueError as error:
        raise InputError(f"{path}: its JSON cannot be read: {error}") from None
    if not isinstance(about, dict) or not isinstance(done, dict):
        what = "is not finished" if about else "is no run that shiftbed train made"
        raise InputError(f"{path} {what}: expected job.json and done.json in it")
    base, own = about.pop("base", None), about.pop("id", None)
    if base is None:
        raise InputError(f"{path}: its job.json is of an older version; train it again")
    wanted, stops = spec.query.get("step"), [int(one) for one in done["stops"]]
    if wanted is not None and wanted not in map(str, stops):
        known = ", ".join(map(str, stops))
        raise InputError(f"{path} has no checkpoint after step {wanted}; there are {known}")
    task = TrainTask(
        job=Job(arguments=about),
        recipe="",
        base=str(path / base),
        store="",
        runs=str(path.parent),
        data={},
        settings=(),
        options={"device": device},
    )
    if task.job.id != own or own != path.name:
        raise InputError(f"{path}: its job.json is that of another run ({task.job.id})")
    return task, stops[-1] if wanted is None else int(wanted), done
