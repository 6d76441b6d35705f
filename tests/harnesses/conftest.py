"""The model of the suite: SmolLM2's tokenizer with a chat template that shows tools and thinking. No weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from molt_core.api.options import NoOptions
from molt_core.launch.model_process import cache_root

GATEWAY_TESTS: Final = Path(__file__).parent.parent.parent / "plugins/gateway/tests"
sys.path.insert(0, str(GATEWAY_TESTS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here starts processes."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("real")


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from molt_plugin_models.smollm2 import SmolLM2
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    PreTrainedTokenizerFast(
        tokenizer_file=str(SmolLM2(NoOptions()).prepare(cache_root()) / "tokenizer.json"),
        eos_token="<|im_end|>",
        chat_template=(GATEWAY_TESTS / "templates/chatml.jinja").read_text("utf-8"),
    ).save_pretrained(folder)
    return folder
