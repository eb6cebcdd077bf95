"""The runner for a Ray cluster: an actor per worker, tasks to actors that are there.

Only tasks and ``Done`` travel; predictions go from the workers to the store, which must be a path
or URL that every node reaches, and so must test sets, weights and code. An actor gets a task once
it is alive, so that one for which there is no processor keeps nobody waiting. A task that fails on
one node is tried on another: where that succeeds, the first one lacks something and gets no more.
"""

import os
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftbed.engine.plan import Done
from shiftbed.engine.runners import TRIES, Report, Work, attempt
from shiftbed.errors import InputError

PATIENCE = 60.0
"""Seconds that a run waits for a cluster on which no worker is alive."""


def on_ray(
    tasks: Iterable[Work],
    report: Report,
    *,
    workers: int | None = None,
    address: str | None = None,
    threads: int = 1,
    gpus: bool = False,
) -> Iterator[Done]:
    """On the cluster at ``address`` (``auto``: the one this machine belongs to), or a local one.

    ``gpus``: workers share the GPUs there are, a fraction each.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its logs are in its own folder
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError("--runner ray needs ray: pip install 'shiftbed[ray]'") from None
    api: Any = ray
    mine = not api.is_initialized()
    if mine:
        _connect(api, address)
    try:
        there = api.cluster_resources()
        count = workers or max(1, int(there.get("CPU", 1)) // threads)
        share = min(1.0, there.get("GPU", 0) / count) if gpus else 0.0
        if gpus and not share:
            raise InputError("the Ray cluster has no GPU; give device = 'cpu'")
        yield from _Crew(api, list(tasks), report, count, threads, share).run()
    finally:
        if mine:
            api.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    """To a cluster that answers, or to one made here; never to one of which only a file is left."""
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if not address:
        ray.init(address="local", include_dashboard=False, **quiet)
        return
    place = address if address != "auto" else os.environ.get("RAY_ADDRESS") or _known()
    if place is None:
        raise InputError("no Ray cluster at 'auto': none runs on this machine (see 'ray start')")
    host, colon, port = place.removeprefix("ray://").rpartition(":")
    try:
        if colon and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError) as error:
        raise InputError(f"no Ray cluster at {address!r}: {error}") from None


def _known() -> str | None:
    """The address that ``ray start`` left on this machine."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    for file in (Path(folder, "ray", "ray_current_cluster"), Path("/tmp/ray/ray_current_cluster")):
        if file.is_file():
            return file.read_text(encoding="utf-8").strip() or None
    return None


@dataclass(eq=False)
class _Job:
    """A task, how often its worker died, and where it has failed."""

    task: Work
    deaths: int = 0
    failed_on: str | None = None


@dataclass(eq=False)
class _Worker:
    actor: Any
    node: str | None = None
    """None until it is alive."""
    job: _Job | None = None
    waits_for: _Job | None = None
    """A task that failed here and is being tried on another node."""


class _Crew:
    """The workers of a run, and what each is doing."""

    def __init__(
        self, ray: Any, tasks: list[Work], report: Report, count: int, threads: int, gpus: float
    ) -> None:
        self.ray, self.report, self.threads = ray, report, threads
        self.todo = deque(_Job(task) for task in tasks)
        self.count = min(count, len(tasks))
        self.kind = ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=0)(_Actor)
        self.calls: dict[Any, _Worker] = {}
        """Calls that are under way: a greeting, or a task."""
        self.idle: list[_Worker] = []
        self.bad: set[str] = set()
        """Nodes that lack something."""

    def run(self) -> Iterator[Done]:
        seen = time.monotonic()
        for _ in range(self.count):
            self._hire()
        try:
            while self.todo or any(one.job for one in self.calls.values()):
                self._assign()
                ready, _ = self.ray.wait(list(self.calls), num_returns=1, timeout=1.0)
                if ready or any(one.node for one in self.calls.values()):
                    seen = time.monotonic()
                elif time.monotonic() - seen > PATIENCE:
                    for job in self.todo:
                        why = f"no worker of the Ray cluster was alive for {PATIENCE:g} s"
                        yield Done(key=job.task.key, error=why)
                    return
                for call in ready:
                    yield from self._heard(call)
        finally:
            for one in {*self.calls.values(), *self.idle}:
                self.ray.kill(one.actor)

    def _hire(self) -> None:
        actor = self.kind.remote(self.threads, os.getcwd())
        self.calls[actor.node.remote()] = _Worker(actor=actor)

    def _assign(self) -> None:
        """A task to every worker that is free; one that failed elsewhere goes to another node."""
        for worker in list(self.idle):
            if worker.waits_for is not None:
                continue
            found = next((one for one in self.todo if one.failed_on != worker.node), None)
            if found is not None:
                self.todo.remove(found)
                self.idle.remove(worker)
                worker.job = found
                self.calls[worker.actor.run.remote(found.task)] = worker

    def _heard(self, call: Any) -> Iterator[Done]:
        worker = self.calls.pop(call)
        try:
            said = self.ray.get(call)
        except self.ray.exceptions.RayError as error:
            yield from self._died(worker, type(error).__name__)
            return
        if worker.job is None:
            worker.node = str(said)
            if worker.node in self.bad:
                self.ray.kill(worker.actor)
            else:
                self.idle.append(worker)
            return
        job, worker.job = worker.job, None
        self.idle.append(worker)
        done, parts = said
        if done.error and job.failed_on is None and self._others(worker):
            job.failed_on, worker.waits_for = worker.node, job
            self.todo.appendleft(job)
            return
        if job.failed_on is not None and not done.error:
            self._leave_out(job.failed_on, job)
        self._release(job)
        for part in parts:
            self.report(part)
        yield done

    def _died(self, worker: _Worker, why: str) -> Iterator[Done]:
        job = worker.job
        if job is not None:
            job.deaths += 1
            if job.deaths >= TRIES:
                self._release(job)
                yield Done(key=job.task.key, error=f"its worker died {TRIES} times ({why})")
            else:
                self.todo.appendleft(job)
        nodes = {one.node for one in (*self.calls.values(), *self.idle)}
        for waiting in self.todo:  # nobody else is left to try it
            if waiting.failed_on is not None and nodes <= {waiting.failed_on, None}:
                self._release(waiting)
                waiting.failed_on = None
        if self.todo:
            self._hire()

    def _others(self, worker: _Worker) -> bool:
        """Whether a worker on another node is alive."""
        nodes = {one.node for one in (*self.calls.values(), *self.idle)} - {None, *self.bad}
        return bool(nodes - {worker.node})

    def _release(self, job: _Job) -> None:
        for one in self.idle:
            if one.waits_for is job:
                one.waits_for = None

    def _leave_out(self, node: str, job: _Job) -> None:
        """No more tasks for a node where one failed that succeeded on another."""
        self.bad.add(node)
        note = f"a node of the cluster could not do this and is left out ({node[:8]})"
        self.report(Done(key=job.task.key, notes=(note,)))
        for one in [one for one in self.idle if one.node == node]:
            self.idle.remove(one)
            self.ray.kill(one.actor)


class _Actor:
    """A worker of the cluster, with its models kept open between tasks."""

    def __init__(self, threads: int, folder: str) -> None:
        import torch

        torch.set_num_threads(threads)
        if os.path.isdir(folder):  # relative paths are the driver's
            os.chdir(folder)

    def node(self) -> str:
        import ray

        api: Any = ray
        return str(api.get_runtime_context().get_node_id())

    def run(self, task: Work) -> tuple[Done, list[Done]]:
        parts: list[Done] = []
        return attempt(task, parts.append), parts
