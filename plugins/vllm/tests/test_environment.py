from __future__ import annotations

import os

import pytest
from molt_plugin_vllm.environment import applied, engine_environment


def test_a_gpu_build_may_compile_and_binds_as_vllm_likes() -> None:
    gpu, cpu = engine_environment(4, cpu=False), engine_environment(4, cpu=True)
    assert cpu.keys() - gpu.keys() == {
        "TORCHDYNAMO_DISABLE", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CPU_OMP_THREADS_BIND",
    }  # fmt: skip
    assert gpu["OMP_NUM_THREADS"] == "4"


def test_compiling_on_cpu_keeps_dynamo() -> None:
    assert "TORCHDYNAMO_DISABLE" not in engine_environment(1, cpu=True, eager=False)


def test_what_the_user_set_for_vllm_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    with applied(engine_environment(1, cpu=True)):
        assert os.environ["VLLM_LOGGING_LEVEL"] == "INFO"


def test_threads_and_dynamo_are_put_back_for_others_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    with applied(engine_environment(1, cpu=True)):
        assert os.environ["OMP_NUM_THREADS"] == "1"
        assert os.environ["TORCHDYNAMO_DISABLE"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "8"
    assert "TORCHDYNAMO_DISABLE" not in os.environ
