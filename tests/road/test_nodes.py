"""A node of a cluster that has another version of a plugin is refused before anything starts."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.road.conftest import DIGITS, EMBEDDED


@pytest.mark.real
def test_a_node_with_another_plugin_is_refused_by_name_with_both_versions(start, tmp_path):
    from ray.cluster_utils import Cluster

    # what comes first on that node's path
    info = tmp_path / "other" / "molt_plugin_losses-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: molt-plugin-losses\nVersion: 9.9\n")
    (info / "entry_points.txt").write_text("[molt_core.losses]\nppo = molt_plugin_losses.spec:PPO\n")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        other = cluster.add_node(num_cpus=2, env_vars={"PYTHONPATH": str(info.parent)})
        run = start(*DIGITS, *EMBEDDED, "--executor", "ray", "--ray-address", cluster.address)
        code, output = run.wait()

        assert code == 3, output
        assert "nodes of the Ray cluster differ from this process" in output
        (line,) = [line.strip() for line in output.splitlines() if line.strip().startswith("node ")]
        assert f"({other.node_id[:8]}): molt-plugin-losses is 9.9 (sources " in line
        assert f", wanted {version('molt-plugin-losses')} (sources " in line
        assert run.steps() == []
        assert run.left_behind() == []
    finally:
        cluster.shutdown()
