"""Runners: where tasks are executed. Each takes tasks and yields what is done.

A runner is a function ``(tasks, report) -> Iterator[Done]``; ``report`` hears of every part. A task
is anything that has a key and names the function that does it: a part of a cell, a training run. A
task whose worker dies is tried again, on another worker, up to three times in all; what it had
written stays, and is written again to the same bytes. On a Ray cluster only tasks and ``Done``
travel; predictions go from the workers to the store, which must therefore be a path or URL that
every node reaches.
"""

import multiprocessing as mp
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar, Protocol

from shiftbed.engine.plan import Done
from shiftbed.errors import InputError

TRIES = 3
Report = Callable[[Done], None]


class Work(Protocol):
    """What a runner can run."""

    work: ClassVar[str]
    """``MODULE:NAME`` of a function ``(task, report) -> Done``."""

    @property
    def key(self) -> tuple[str, str]: ...


def in_process(tasks: Iterable[Work], report: Report) -> Iterator[Done]:
    """One after the other, in this process."""
    for task in tasks:
        yield attempt(task, report)


def attempt(task: Work, report: Report) -> Done:
    """Do a task; an error becomes part of the answer, with its last line."""
    module, _, name = task.work.partition(":")
    try:
        done: Done = getattr(import_module(module), name)(task, report)
        return done
    except InputError as error:
        return Done(key=task.key, error=str(error))
    except Exception as error:  # a model can raise anything; the rest of the run goes on
        last = traceback.format_exception_only(error)[-1].strip()
        return Done(key=task.key, error=" ".join(last.split()))


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: Work | None = None
    tries: int = 0


def in_processes(
    tasks: Iterable[Work], report: Report, *, workers: int = 2, threads: int | None = None
) -> Iterator[Done]:
    """On worker processes of this machine, each with its share of the threads."""
    context = mp.get_context("spawn")
    todo = deque((task, 0) for task in tasks)
    total = len(todo)
    crew = [_hire(context, threads) for _ in range(min(workers, total))]
    finished = 0
    try:
        for worker in crew:
            _assign(worker, todo)
        while finished < total:
            ready = wait([w.pipe for w in crew] + [w.process.sentinel for w in crew])
            for worker in list(crew):
                if worker.pipe not in ready and worker.process.sentinel not in ready:
                    continue
                done = _hear(worker, report)
                if done is _DEAD:
                    crew.remove(worker)
                    if worker.task is not None:
                        if worker.tries + 1 >= TRIES:
                            finished += 1
                            why = f"its worker died {TRIES} times"
                            yield Done(key=worker.task.key, error=why)
                        else:
                            todo.appendleft((worker.task, worker.tries + 1))
                    if todo or finished < total:
                        replacement = _hire(context, threads)
                        crew.append(replacement)
                        _assign(replacement, todo)
                elif isinstance(done, Done):
                    finished += 1
                    worker.task = None
                    _assign(worker, todo)
                    yield done
    finally:
        for worker in crew:
            worker.pipe.close()
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()


_DEAD = object()


def _hire(context: Any, threads: int | None) -> _Worker:
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, threads), daemon=True)
    process.start()
    there.close()
    return _Worker(process=process, pipe=here)


def _assign(worker: _Worker, todo: deque[tuple[Work, int]]) -> None:
    if todo:
        worker.task, worker.tries = todo.popleft()
        with suppress(OSError):  # it may be dead; then its sentinel says so next
            worker.pipe.send(worker.task)


def _hear(worker: _Worker, report: Report) -> object:
    """What a worker says: parts go to ``report``; returns a finished task's Done, or _DEAD."""
    while True:
        try:
            if not worker.pipe.poll():
                return _DEAD if not worker.process.is_alive() else None
            last, done = worker.pipe.recv()
        except (EOFError, OSError):
            return _DEAD
        if last:
            return done
        report(done)


def _work(pipe: Connection, threads: int | None) -> None:
    """A worker process: receives tasks until the pipe closes."""
    if threads is not None:
        import os

        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)
        import torch

        torch.set_num_threads(threads)
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        done = attempt(task, lambda part: pipe.send((False, part)))
        try:
            pipe.send((True, done))
        except OSError:  # whoever asked has gone; what is written stays
            return


def on_ray(
    tasks: Iterable[Work],
    report: Report,
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
        raise InputError("--runner ray needs ray: pip install 'shiftbed[ray]'") from None
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
    report: Report,
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
        parts: list[Done] = []
        return attempt(task, parts.append), parts
