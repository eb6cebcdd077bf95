"""The runner for a Ray cluster: an actor per worker, tasks to actors that are there.

Only tasks and ``Done`` travel; predictions go from the workers to the store, which must be a path
or URL that every node reaches, and so must test sets, weights and code. An actor gets a task once
it is alive, so that one for which there is no processor keeps nobody waiting. A task that fails on
one node is tried on another: where that succeeds, the first one lacks something and gets no more.
Tasks are asked for as workers become free, so that other runs can share them.
"""

import math
import os
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from shiftbed.engine.plan import Done
from shiftbed.engine.runners import TRIES, Report, Work, attempt
from shiftbed.errors import InputError

PATIENCE = 180.0
"""Seconds that a run waits for a cluster on which no worker is alive: to begin, they load torch."""
ELSEWHERE = 60.0
"""Seconds that a failure waits for a worker on another node to be alive."""
ANSWER = 5.0
"""Seconds within which a cluster must answer."""


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
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError("--runner ray needs ray: pip install 'shiftbed[ray]'") from None
    api: Any = ray
    mine = not api.is_initialized()
    _hush()
    if mine:
        _connect(api, address)
    try:
        there = api.cluster_resources()
        count = workers or max(1, int(there.get("CPU", 1)) // threads)
        share = gpu_share(count, there.get("GPU", 0)) if gpus else 0.0
        yield from _Crew(api, iter(tasks), report, count, threads, share).run()
    finally:
        if mine:
            api.shutdown()


def _hush() -> None:
    """Keep the last lines of a dead node's log out of what we print; Ray has no option for it."""
    module: Any = import_module("ray._private.worker")
    module.print_to_stdstream = lambda *_, **__: None


def gpu_share(workers: int, gpus: float) -> float:
    """The fraction of a GPU that each worker asks for, so that all of them find room.

    >>> gpu_share(2, 4), gpu_share(3, 2), gpu_share(4, 1)
    (1.0, 0.5, 0.25)
    """
    if not gpus:
        raise InputError("the Ray cluster has no GPU; give device = 'cpu'")
    return 1 / math.ceil(workers / gpus)


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
            _must_answer(host.strip("[]"), int(port))
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError) as error:
        raise InputError(f"no Ray cluster at {address!r}: {error}") from None


def _must_answer(host: str, port: int) -> None:
    """Ray waits for minutes for what does not speak its protocol (gRPC, so HTTP/2): ask first."""
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    with socket.create_connection((host, port), timeout=ANSWER) as there:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return
        there.sendall(hello)
        said = there.recv(9)
    if len(said) < 4 or said[3] != 4:  # the first thing a server says is its settings
        raise OSError(f"what listens on port {port} is no Ray cluster")


def _known() -> str | None:
    """The address that ``ray start`` left on this machine."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    for file in (Path(folder, "ray", "ray_current_cluster"), Path("/tmp/ray/ray_current_cluster")):
        if file.is_file():
            return file.read_text(encoding="utf-8").strip() or None
    return None


@dataclass(eq=False)
class _Job:
    """A task, how often its worker died, and where and how it has failed."""

    task: Work
    deaths: int = 0
    failed_on: str | None = None
    failure: Done | None = None
    until: float = 0.0
    """When waiting for a worker on another node ends, by the clock."""


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
        self, ray: Any, tasks: Iterator[Work], report: Report, count: int, threads: int, gpus: float
    ) -> None:
        self.ray, self.report, self.threads, self.count = ray, report, threads, count
        self.tasks = tasks
        self.todo: deque[_Job] = deque()
        """Tasks that were asked for, or are to be tried again."""
        self.kind = ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=0)(_Actor)
        self.calls: dict[Any, _Worker] = {}
        """Calls that are under way: a greeting, or a task."""
        self.idle: list[_Worker] = []
        self.bad: set[str] = set()
        """Nodes that lack something."""
        self.stillborn = 0
        self.why = f"no worker of the Ray cluster was alive for {PATIENCE:g} s"

    def run(self) -> Iterator[Done]:
        self._ask(self.count)
        for _ in range(len(self.todo)):
            self._hire()
        seen = time.monotonic()
        try:
            while self._more() or any(one.job for one in self.calls.values()):
                self._assign()
                yield from self._hopeless()
                ready = self._wait()
                if ready or any(one.node for one in self.workers):
                    seen = time.monotonic()
                elif not self.calls or time.monotonic() - seen > PATIENCE:
                    while self._more():
                        yield Done(key=self.todo.popleft().task.key, error=self.why)
                    return
                for call in ready:
                    yield from self._heard(call)
        finally:
            for one in self.workers:
                self.ray.kill(one.actor)

    @property
    def workers(self) -> list[_Worker]:
        return [*self.calls.values(), *self.idle]

    def _ask(self, count: int) -> None:
        self.todo.extend(_Job(task) for task in islice(self.tasks, count))

    def _more(self) -> bool:
        """Whether there is a task for whoever is free next."""
        if not self.todo:
            self._ask(1)
        return bool(self.todo)

    def _wait(self) -> list[Any]:
        if self.calls:
            ready, _ = self.ray.wait(list(self.calls), num_returns=1, timeout=1.0)
            return list(ready)
        return []

    def _hire(self) -> None:
        actor = self.kind.remote(self.threads, os.getcwd())
        self.calls[actor.node.remote()] = _Worker(actor=actor)

    def _assign(self) -> None:
        """A task to every worker that is free; one that failed elsewhere goes to another node.

        A worker whose own task failed tries those of other nodes only, until it is known why.
        """
        for worker in list(self.idle):
            if worker.waits_for is None and all(one.failed_on for one in self.todo):
                self._ask(1)
            can = [one for one in self.todo if one.failed_on != worker.node]
            found = next((one for one in can if one.failed_on or not worker.waits_for), None)
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
            yield from self._died(worker, error)
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
        if done.error and job.failed_on is None and not done.not_applicable:  # perhaps the node's
            job.failed_on, job.failure = worker.node, done
            job.until = time.monotonic() + ELSEWHERE
            worker.waits_for = job
            self.todo.appendleft(job)
            return
        if job.failed_on is not None and not done.error:
            self._leave_out(job.failed_on, job)
        self._release(job)
        if not done.error:  # nobody waits while the results are recorded
            self._assign()
        for part in parts:
            self.report(part)
        yield done

    def _died(self, worker: _Worker, error: Exception) -> Iterator[Done]:
        job, why = worker.job, type(error).__name__
        if job is not None:
            job.deaths += 1
            if job.deaths >= TRIES:
                self._release(job)
                yield Done(key=job.task.key, error=f"its worker died {TRIES} times ({why})")
            else:
                self.todo.appendleft(job)
        elif worker.node is None:
            self.stillborn += 1
            self.why = f"no worker could begin on the Ray cluster: {_cause(error)}"
        if self._more() and self.stillborn < TRIES * self.count:
            self._hire()

    def _hopeless(self) -> Iterator[Done]:
        """Failures that nobody on another node can try again, now or within a minute."""
        for job in [one for one in self.todo if one.failure is not None]:
            if job.failure is not None and not self._elsewhere(job):
                self.todo.remove(job)
                self._release(job)
                yield job.failure

    def _elsewhere(self, job: _Job) -> bool:
        """Whether a worker on another node is alive, or may soon be."""
        unfit = {job.failed_on, *self.bad}
        if any(one.node not in (None, *unfit) for one in self.workers):
            return True
        coming = any(one.node is None for one in self.workers)
        if not coming or time.monotonic() > job.until:
            return False
        return any(
            one["Alive"] and one["Resources"].get("CPU", 0) >= self.threads
            for one in self.ray.nodes()
            if one["NodeID"] not in unfit
        )

    def _release(self, job: _Job) -> None:
        for one in self.workers:
            if one.waits_for is job:
                one.waits_for = None

    def _leave_out(self, node: str, job: _Job) -> None:
        """No more tasks for a node where one failed that succeeded on another."""
        self.bad.add(node)
        why = "" if job.failure is None else f": {job.failure.error}"
        note = f"a node of the cluster could not do this and is left out ({node[:8]}){why}"
        self.report(Done(key=job.task.key, notes=(note,)))
        for one in [one for one in self.idle if one.node == node]:
            self.idle.remove(one)
            self.ray.kill(one.actor)


def _cause(error: Exception) -> str:
    """The last line of what a worker said before it died, without its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "Error" in line.partition(":")[0]]
    return (said or lines or [type(error).__name__])[-1]


class _Actor:
    """A worker of the cluster, with its models kept open between tasks."""

    def __init__(self, threads: int, folder: str) -> None:
        import torch

        torch.set_num_threads(threads)
        with suppress(OSError):  # relative paths are the driver's, where there is such a folder
            os.chdir(folder)

    def node(self) -> str:
        import ray

        api: Any = ray
        return str(api.get_runtime_context().get_node_id())

    def run(self, task: Work) -> tuple[Done, list[Done]]:
        parts: list[Done] = []
        return attempt(task, parts.append), parts
