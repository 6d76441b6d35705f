"""A Ray cluster of several nodes, simulated by raylets on this machine."""

from __future__ import annotations

import contextlib

import psutil
import pytest

from tests.road.conftest import DIGITS, EMBEDDED

pytestmark = pytest.mark.real
SMALL = (*DIGITS, *EMBEDDED, "--executor", "ray")


def actors(node, name):
    """Processes of a node's actors; `ray::_Actor` is that of the trainer."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [
        each for each in raylet.children(recursive=True) if " ".join(each.cmdline()).startswith(f"{name}.")
    ]


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


def test_a_run_survives_the_death_of_a_node_with_engine_worker_and_finished_rollouts(start):
    with cluster_of(0, 3, 3) as cluster:
        run = start(
            *SMALL, "--ray-address", cluster.address, "--engines", "2", "--workers", "2", "--max-staleness", "2",
            "--steps", "40", "--eval-prompts", "0",
        )  # fmt: skip
        run.wait_for_steps(3)
        for node in list(cluster.worker_nodes):
            if not actors(node, "ray::_Actor"):
                assert actors(node, "ray::_AsyncActor")
                cluster.remove_node(node, allow_graceful=False)
        code, output = run.wait()

        assert code == 0, output
        assert len(cluster.worker_nodes) == 1
        assert "is lost, started again in" in output
        account = run.ledger()
        for unit in account.keys() & {"prompts", "rollouts", "tokens"}:
            assert account[unit]["dispatched"] == account[unit]["trained"] + sum(
                account[unit]["dropped"].values()
            )
        # each prompt once, whatever became of its first samples
        assert account["prompts"]["trained"] == 40 * 2
        assert max(step["staleness/max"] for step in run.steps()) <= 2
        assert run.left_behind() == []
