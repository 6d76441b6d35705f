"""A local cluster refuses whoever does not have its token."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

RUN = """
import asyncio, os, subprocess, sys
from molt_core.api.run_options import RunOptions
from molt_core.launch.ray_token import ray_executor
from molt_core.launch.specs import RayOptions

async def main():
    executor = ray_executor(RayOptions(), RunOptions(model="none"))
    await executor.start()
    import ray
    address = ray.get_runtime_context().gcs_address
    strangers = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # or it would ask again for twenty seconds
    strangers |= {"RAY_gcs_server_request_timeout_seconds": "2", "RAY_NUM_REDIS_GET_RETRIES": "1"}
    joined = subprocess.run(
        [sys.executable, "-c", f"import ray; ray.init(address={address!r}, log_to_driver=False)"],
        env=strangers, capture_output=True, text=True,
    )
    print("stranger", joined.returncode, "token" in joined.stderr.lower())
    print("own", len(ray.nodes()))
    await executor.stop()

asyncio.run(main())
"""


@pytest.mark.real
def test_a_stranger_without_the_token_is_refused() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True)
    assert "own 1" in done.stdout, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("stranger")]
    assert line == "stranger 1 True"


def test_variables_that_the_user_set_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from molt_core.api.run_options import RunOptions
    from molt_core.launch.ray_token import ray_executor
    from molt_core.launch.specs import RayOptions

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray_executor(RayOptions(), RunOptions(model="none"))
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN" not in os.environ
