"""The Ray runner: a cluster when one machine is not enough.

Only tasks and ``Done`` travel through Ray; predictions go from the workers to the store, which
must therefore be a path or URL that every node reaches.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shiftbed.engine.jobs import Done
from shiftbed.engine.runners import TRIES, Work
from shiftbed.errors import InputError


def on_ray(
    tasks: Iterable[Work],
    report: Callable[[Done], None],
    *,
    workers: int | None = None,
    address: str | None = None,
    threads: int = 1,
    gpus: float = 0,
) -> Iterator[Done]:
    """On a Ray cluster at ``address`` (``auto`` for a running one), or a local one made here."""
    try:
        import ray
    except ImportError:
        raise InputError("--runner ray needs Ray: install shiftbed[ray]") from None
    api: Any = ray
    mine = not api.is_initialized()
    if mine:
        _connect(api, address)
    try:
        count = workers or max(1, int(api.cluster_resources().get("CPU", 1)) // threads)
        yield from _drive(api, deque((task, 0) for task in tasks), report, count, threads, gpus)
    finally:
        if mine:
            api.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    try:
        if address:
            ray.init(address=address, log_to_driver=False, logging_level="error")
        else:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    except ConnectionError as error:
        raise InputError(f"no Ray cluster at {address!r}: {error}") from None


def _drive(
    ray: Any,
    todo: deque[tuple[Work, int]],
    report: Callable[[Done], None],
    count: int,
    threads: int,
    gpus: float,
) -> Iterator[Done]:
    """Keep every actor busy; an actor that died is replaced and its task tried again."""
    actor = ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=0)(_Actor)
    busy: dict[Any, tuple[Any, Work, int]] = {}

    def start(worker: Any) -> None:
        task, tries = todo.popleft()
        busy[worker.run.remote(task)] = (worker, task, tries)

    for _ in range(min(count, len(todo))):
        start(actor.remote(threads))
    while busy:
        (ready,), _ = ray.wait(list(busy), num_returns=1)
        worker, task, tries = busy.pop(ready)
        try:
            done, parts = ray.get(ready)
        except ray.exceptions.RayError as error:
            if tries + 1 >= TRIES:
                why = type(error).__name__
                yield Done(key=task.key, error=f"its worker died {TRIES} times ({why})")
            else:
                todo.appendleft((task, tries + 1))
            worker = actor.remote(threads) if todo else None
        else:
            for part in parts:
                report(part)
            yield done
        if todo and worker is not None:
            start(worker)


class _Actor:
    """A worker of the cluster, with its models kept open between tasks."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)

    def run(self, task: Work) -> tuple[Done, list[Done]]:
        from shiftbed.engine.runners import attempt

        parts: list[Done] = []
        return attempt(task, parts.append), parts
