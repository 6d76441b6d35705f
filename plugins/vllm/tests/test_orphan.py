from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from molt_core.testing.tiny_model import TinyModel

PROGRAM = """
import asyncio, sys
from molt_core.api.engine import EngineContext
from molt_plugin_vllm import processes
from molt_plugin_vllm.engine import VllmEngine
from molt_plugin_vllm.spec import VllmOptions

async def main():
    engine = VllmEngine(VllmOptions(kv_cache_gib=0.1), EngineContext(
        model_folder=sys.argv[1], dtype="float32", max_length=64, max_concurrency=2, seed=0, index=0,
        num_threads=1, end_token_ids=()))
    await engine.start()
    print("pids", *[process.pid for process in processes.family(engine._llm)], flush=True)
    await asyncio.sleep(600)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.real
def test_engine_core_ends_itself_when_its_parent_is_killed(model: TinyModel) -> None:
    script = model.folder.parent / "program.py"
    script.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, script, model.folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as parent:
        assert parent.stdout is not None
        said = ""
        for said in parent.stdout:
            if said.startswith("pids "):
                break
        family = [psutil.Process(int(pid)) for pid in said.split()[1:]]
        parent.kill()
    assert family
    _gone, alive = psutil.wait_procs(family, timeout=30)
    for process in alive:
        process.kill()
    assert not alive
