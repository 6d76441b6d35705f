"""A Ray cluster of several nodes, simulated by raylets on this machine."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import psutil
import pytest

from tests.road.conftest import DIGITS, EMBEDDED, LONG

pytestmark = pytest.mark.real
SMALL = (*DIGITS, *EMBEDDED, "--executor", "ray")


def actors(node, name):
    """Processes of a node's actors; `ray::BlockingActor` is that of the trainer."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [each for each in raylet.children(recursive=True) if " ".join(each.cmdline()).startswith(name)]


@contextlib.contextmanager
def cluster_of(head_cpus, *node_cpus):
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": head_cpus, "include_dashboard": False}
    )
    try:
        for num_cpus in node_cpus:
            cluster.add_node(num_cpus=num_cpus)
        yield cluster
    finally:
        cluster.shutdown()


STARTS_ITS_OWN = """
import asyncio
from molt_core.api.run_options import RunOptions
from molt_core.launch.ray_token import ray_executor
from molt_core.launch.specs import RayOptions

async def main():
    executor = ray_executor(RayOptions(), RunOptions(model="none"))
    await executor.start(())
    import ray
    print(len(ray.nodes()), ray.get_runtime_context().gcs_address)
    await executor.stop()

asyncio.run(main())
"""


def test_a_cluster_that_is_too_small_is_refused_with_the_numbers_and_one_not_asked_for_is_not_joined(start):
    with cluster_of(2) as cluster:
        code, output = start("examples/tiny.toml", "--ray-address", cluster.address).wait()

        assert code == 3, output
        assert "has 2 CPUs; 1 engines, 1 trainer ranks and 1 workers need 3" in output

        told = subprocess.run(
            [sys.executable, "-c", STARTS_ITS_OWN], capture_output=True, text=True, check=True
        )
        num_nodes, address = told.stdout.split()[-2:]
        assert num_nodes == "1"
        assert address != cluster.address


def test_a_run_survives_the_death_of_a_node_and_uses_one_that_joins(start):
    with cluster_of(0, 3, 3) as cluster:
        run = start(
            *SMALL, *LONG, "--ray-address", cluster.address, "--engines", "2", "--workers", "2", "--max-staleness", "2",
        )  # fmt: skip
        run.wait_for_steps(3)
        (dying,) = (node for node in cluster.worker_nodes if not actors(node, "ray::BlockingActor"))
        lost = {actor.name() for actor in actors(dying, "ray::AsyncActor")}
        assert lost
        cluster.remove_node(dying, allow_graceful=False)
        # what is left has room for the trainer and two more
        run.wait_for_steps(len(run.steps()) + 5)
        cluster.add_node(num_cpus=3)
        run.wait_until(lambda: "is there, after" in run.output, "actor on the new node")
        run.wait_for_steps(len(run.steps()) + 5)
        run.interrupt()
        code, output = run.wait()

        assert code == 130, output
        assert output.count("is lost, started again in") >= len(lost)
        account = run.ledger()
        for unit in ("prompts", "rollouts", "tokens"):
            settled = account[unit]["trained"] + sum(account[unit]["dropped"].values())
            assert account[unit]["dispatched"] == settled
        # each prompt once, whatever became of its first samples
        assert account["prompts"]["trained"] == 2 * len(run.steps())
        assert max(step["staleness/max"] for step in run.steps()) <= 2
        left = [
            actor
            for node in cluster.worker_nodes
            for actor in actors(node, ("ray::BlockingActor", "ray::AsyncActor"))
        ]
        _, alive = psutil.wait_procs(left, timeout=10)
        assert (alive, len(cluster.worker_nodes)) == ([], 2), "the cluster goes on, without ours"
