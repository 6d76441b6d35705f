"""Recipes are complete, and placeholders mean one thing each."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from molt_plugin_agents.recipe import NAMES, fill, load_recipe

VALUES = {
    "prompt": "do {it}", "base_url": "http://h/s/x/v1", "anthropic_base_url": "http://h/s/x", "api_key": "k",
    "model": "policy", "home": "/h", "workspace": "/w",
}  # fmt: skip


def test_the_harnesses_that_were_measured_have_a_recipe() -> None:
    assert set(NAMES) == {"plain", "claude-code", "codex", "opencode", "qwen-code", "mini-swe-agent"}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_tells_the_harness_where_the_policy_is(name: str) -> None:
    recipe = load_recipe(name)
    said = [*recipe.env.values(), *recipe.files.values()]
    filled = " ".join(fill(one, VALUES) for one in said)
    assert "http://h/s/x" in filled
    assert re.search(r"\bk\b", filled)
    if name != "plain":
        assert "{prompt}" in recipe.argv
        assert recipe.install
        assert recipe.prompt_tokens
    for path, content in recipe.files.items():
        assert fill(path, VALUES).startswith("/h/")
        if path.endswith(".toml"):
            assert (
                tomllib.loads(fill(content, VALUES))["model_providers"]["molt"]["base_url"]
                == VALUES["base_url"]
            )
        else:
            provider = json.loads(fill(content, VALUES))["provider"]["molt"]
            assert provider["options"] == {"baseURL": VALUES["base_url"], "apiKey": "k"}
            assert list(provider["models"]) == ["policy"]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{model}", "policy"),
        ('{"a": {"{model}": {}}}', '{"a": {"policy": {}}}'),
        ("{{model}}", "{model}"),
        ("{prompt}", "do {it}"),
        ("{} {a b} {1}", "{} {a b} {1}"),
    ],
)
def test_fill(text: str, filled: str) -> None:
    assert fill(text, VALUES) == filled


def test_an_unknown_placeholder_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"\{modle\} is neither a column of the task nor one of .*model"):
        fill("-m {modle}", VALUES)


@given(st.text(), st.text())
def test_a_value_is_put_in_as_it_is(before: str, value: str) -> None:
    if "{" not in before and "}" not in before:
        assert fill(before + " {model}", {"model": value}) == f"{before} {value}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("argv = 'tool'", "argv is 'tool', wanted a list"),
        ("arg = ['tool']", "arg is not part of a recipe"),
        ("argv = [", "can't be read as a recipe"),
    ],
)
def test_a_users_recipe_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        load_recipe(str(path))
