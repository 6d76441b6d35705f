from __future__ import annotations

import subprocess
import sys

import pytest
from molt_plugin_vllm.spec import VllmOptions, parse_args


def test_arguments_are_json() -> None:
    assert parse_args(("block_size=32", 'quantization="fp8"')) == {"block_size": 32, "quantization": "fp8"}


@pytest.mark.parametrize(
    ("arg", "wanted"),
    [
        ("block_size", "name=value"),
        ("block_size=x", "JSON"),
        ("=1", "name=value"),
        ("seed=1", "must not set seed"),
    ],
)
def test_wrong_arguments_are_refused_as_options(arg: str, wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        VllmOptions(args=(arg,))


def test_the_spec_imports_nothing_heavy() -> None:
    code = "import sys, molt_plugin_vllm.spec as s; print({'torch', 'vllm', 'numpy'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"
