"""A Ray cluster of two nodes on this machine that share nothing but the network.

Each has one processor, and a cache of its own. Python processes of a
node cannot open files of another, nor of whoever starts the run: an audit hook refuses it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

QUIET = {"log_to_driver": False, "logging_level": "error"}
PATIENT = {"RAY_worker_register_timeout_seconds": "600", "RAY_worker_niceness": "0"}
"""A busy machine is slow, not dead; Ray's workers would yield to everything else on it."""
APART = """
import os, sys

def refuse(event, values, others=os.environ["NOT_HERE"].split(os.pathsep)):
    if event in ("open", "os.listdir", "os.scandir", "os.chdir") and isinstance(values[0], str):
        for one in others:
            if f"{os.path.abspath(values[0])}{os.sep}".startswith(one + os.sep):
                raise FileNotFoundError(2, "no such file on this node", values[0])

sys.addaudithook(refuse)
"""


@dataclass(frozen=True, kw_only=True)
class TwoNodes:
    """A cluster: its address, the folder of each node, and how the second one dies."""

    cluster: Any
    second: Any
    folders: tuple[Path, Path]

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def kill(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)

    def fetched(self, node: int) -> list[Path]:
        """What a node has fetched into its own cache."""
        return [one for one in (self.folders[node] / "cache").rglob("*") if one.is_file()]


@contextmanager
def two_nodes(
    folder: Path, *not_here: Path, lacks: tuple[Path, ...] = (), gpus: int = 0
) -> Iterator[TwoNodes]:
    """Two nodes below ``folder``; none can read ``not_here``, and the second one not ``lacks``."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    folders = folder / "node-1", folder / "node-2"
    given = []
    for own, other, more in zip(folders, reversed(folders), ((), lacks), strict=True):
        (own / "code").mkdir(parents=True)
        (own / "code" / "sitecustomize.py").write_text(APART)
        given.append(
            {
                "XDG_CACHE_HOME": str(own),  # their home has Ray's own token
                "SHIFTBED_CACHE": str(own / "cache"),
                "PYTHONPATH": f"{own / 'code'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                **PATIENT,
                "NOT_HERE": os.pathsep.join(str(one) for one in (other, *not_here, *more)),
            }
        )
    head = {"num_cpus": 1, "include_dashboard": False, "env_vars": given[0], "num_gpus": gpus}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(num_cpus=1, env_vars=given[1], num_gpus=gpus)
        yield TwoNodes(cluster=cluster, second=second, folders=folders)
    finally:
        cluster.shutdown()
