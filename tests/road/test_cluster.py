"""A Ray cluster of two nodes, simulated by two raylets on this machine."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.real


def test_a_run_uses_a_cluster_of_two_nodes_and_leaves_it_running(start):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=2)
        run = start("examples/tiny.toml", "--ray-address", cluster.address, "--steps", "2", "--lr", "1e-3")
        code, output = run.wait()

        assert code == 0, output
        assert len(run.steps()) == 2
        assert run.left_behind() == []
        assert len(cluster.list_all_nodes()) == 2
    finally:
        cluster.shutdown()


def test_a_cluster_that_is_too_small_is_refused_with_the_numbers(start):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        code, output = start("examples/tiny.toml", "--ray-address", cluster.address).wait()

        assert code == 3, output
        assert "has 2 CPUs; 1 engines, 1 trainer ranks and 1 workers need 3" in output
    finally:
        cluster.shutdown()
