"""A Ray cluster of several nodes, simulated by raylets on this machine."""

from __future__ import annotations

import contextlib

import psutil
import pytest

from tests.road.conftest import DIGITS, EMBEDDED, LONG

pytestmark = pytest.mark.real
SMALL = (*DIGITS, *EMBEDDED, "--executor", "ray")


def actors(node, name):
    """Processes of a node's actors; `ray::_Actor` is that of the trainer."""
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


def test_a_run_uses_a_cluster_of_two_nodes_and_leaves_it_running(start):
    with cluster_of(2, 2) as cluster:
        run = start("examples/tiny.toml", "--ray-address", cluster.address, "--steps", "2", "--lr", "1e-3")
        code, output = run.wait()

        assert code == 0, output
        assert len(run.steps()) == 2
        assert run.left_behind() == []
        assert len(cluster.list_all_nodes()) == 2


def test_a_cluster_that_is_too_small_is_refused_with_the_numbers(start):
    with cluster_of(2) as cluster:
        code, output = start("examples/tiny.toml", "--ray-address", cluster.address).wait()

        assert code == 3, output
        assert "has 2 CPUs; 1 engines, 1 trainer ranks and 1 workers need 3" in output


def test_a_cluster_that_was_not_asked_for_is_not_joined(start):
    with cluster_of(1):
        code, output = start(*SMALL, "--steps", "1", "--eval-prompts", "0").wait()
        assert code == 0, output


def test_a_run_survives_the_death_of_a_node_and_uses_one_that_joins(start):
    with cluster_of(0, 3, 3) as cluster:
        run = start(
            *SMALL, *LONG, "--ray-address", cluster.address, "--engines", "2", "--workers", "2", "--max-staleness", "2",
        )  # fmt: skip
        run.wait_for_steps(3)
        (dying,) = (node for node in cluster.worker_nodes if not actors(node, "ray::_Actor"))
        lost = {actor.name() for actor in actors(dying, "ray::_AsyncActor")}
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
