"""Whether every node of a Ray cluster has what this process has. One small task on each node tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from molt_core.errors import PreflightError
from molt_core.plugins.fingerprint import differences, fingerprint

MOST_NODES = 4
"""Named for one difference."""


def check_nodes(packages: Sequence[str], timeout_s: float) -> None:
    """Compare the fingerprints of `packages` on all nodes with those of this process.

    Raises:
        PreflightError: they differ, or can't be had; with node, package, what is there and what is wanted.
    """
    wanted = fingerprint(packages)
    task = ray.remote(fingerprint)
    answers = {}
    for node in ray.nodes():
        if node["Alive"]:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reference = task.options(num_cpus=0, max_retries=0, scheduling_strategy=here).remote(packages)
            answers[reference] = f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"
    ray.wait(list(answers), num_returns=len(answers), timeout=timeout_s)
    wrong: dict[str, list[str]] = defaultdict(list)
    for reference, node in answers.items():
        try:
            # answered by now, or too late
            for difference in differences(ray.get(reference, timeout=0), wanted):
                wrong[difference].append(node)
        except GetTimeoutError:
            wrong[f"gave no answer within {timeout_s:g} s"].append(node)
        except RayError as error:
            wrong[f"its Python can't say: {_last_line(error)}"].append(node)
    if wrong:
        lines = "".join(f"\n    {_named(nodes)}: {difference}" for difference, nodes in wrong.items())
        raise PreflightError(
            f"nodes of the Ray cluster differ from this process; install the same on all of them:{lines}"
        )


def _named(nodes: Sequence[str]) -> str:
    more = len(nodes) - MOST_NODES
    return ", ".join(nodes[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")


def _last_line(error: BaseException) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), repr(error))
