"""Runners: where tasks are executed. Each takes tasks and yields what is done.

A runner is a function ``(tasks, report) -> Iterator[Done]``; ``report`` hears of every part. A task
is anything that has a key and names the function that does it: a part of a cell, a training run. A
task whose worker dies is tried again, on another worker, up to three times in all; what it had
written stays, and is written again to the same bytes. ``on_ray.py`` has the cluster's.
"""

import multiprocessing as mp
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar, Protocol

from shiftbed.engine.plan import Done
from shiftbed.errors import InputError
from shiftbed.evaluation.memory import reused_memory

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
    with reused_memory():
        for task in tasks:
            yield attempt(task, report)


def attempt(task: Work, report: Report) -> Done:
    """Do a task; an error becomes part of the answer, with its last line."""
    module, _, name = task.work.partition(":")
    try:
        with reused_memory():
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
    todo = _Todo(tasks)
    crew = [_hire(context, threads) for _ in range(workers) if todo]
    try:
        for worker in crew:
            _assign(worker, todo)
        while any(worker.task is not None for worker in crew):
            ready = wait([w.pipe for w in crew] + [w.process.sentinel for w in crew])
            for worker in list(crew):
                if worker.pipe not in ready and worker.process.sentinel not in ready:
                    continue
                done = _hear(worker, report)
                if done is _DEAD:
                    crew.remove(worker)
                    if worker.task is not None:
                        if worker.tries + 1 >= TRIES:
                            why = f"its worker died {TRIES} times"
                            yield Done(key=worker.task.key, error=why)
                        else:
                            todo.again(worker.task, worker.tries + 1)
                    if todo:
                        replacement = _hire(context, threads)
                        crew.append(replacement)
                        _assign(replacement, todo)
                elif isinstance(done, Done):
                    worker.task = None
                    if not done.error:  # nobody waits while the results are recorded
                        _assign(worker, todo)
                    yield done
                    if done.error:  # which may say that others are hopeless too
                        _assign(worker, todo)
    finally:
        for worker in crew:
            worker.pipe.close()
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()


class _Todo:
    """Tasks as they are asked for, and those to be tried again before all others."""

    def __init__(self, tasks: Iterable[Work]) -> None:
        self.tasks = iter(tasks)
        self.first: deque[tuple[Work, int]] = deque()

    def __bool__(self) -> bool:
        if not self.first:
            self.first.extend((task, 0) for task in islice(self.tasks, 1))
        return bool(self.first)

    def again(self, task: Work, tries: int) -> None:
        self.first.appendleft((task, tries))

    def take(self) -> tuple[Work, int]:
        return self.first.popleft()


_DEAD = object()


def _hire(context: Any, threads: int | None) -> _Worker:
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, threads), daemon=True)
    with _without_interrupts():
        process.start()
    there.close()
    return _Worker(process=process, pipe=here)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started here leave Ctrl-C, which all of a terminal's processes get, to this one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _assign(worker: _Worker, todo: _Todo) -> None:
    if todo:
        worker.task, worker.tries = todo.take()
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if threads is not None:
        import os

        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)
        import torch

        torch.set_num_threads(threads)
    with reused_memory():
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
