"""Recipes: what a harness needs to talk to the policy, as one TOML file each.

argv = ["tool", "--task", "{prompt}"]    default command
answer = "stdout"                        what is graded, see the option of that name
install = "npm install -g tool"          for the message when it is missing
prompt_tokens = 9100                     of its first request, about

[env]                                    variables
OPENAI_BASE_URL = "{base_url}"
[files]                                  paths, and what is written there before it starts
"{home}/.toolrc" = "key = {api_key}"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from attrs import asdict, field, frozen

FOLDER: Final = Path(__file__).with_name("recipes")
NAMES: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
PLACEHOLDER: Final = re.compile(r"\{(\{?)([A-Za-z_][A-Za-z0-9_]*)(\}?)\}")


@frozen(kw_only=True)
class Recipe:
    argv: tuple[str, ...] = field(default=(), converter=tuple)
    answer: str = "stdout"
    install: str = ""
    prompt_tokens: int = 0
    env: Mapping[str, str] = field(factory=dict)
    files: Mapping[str, str] = field(factory=dict)


def load_recipe(name: str) -> Recipe:
    """A recipe of ours by name, or a user's by the path of its file.

    Raises:
        ValueError: it can't be read, or holds what no recipe has.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as wrong:
        raise ValueError(f"can't be read as a recipe: {wrong}") from wrong
    kinds = {one: type(value) for one, value in asdict(Recipe()).items()} | {"argv": list}
    for key, value in table.items():
        if key not in kinds:
            raise ValueError(f"{path}: {key} is not part of a recipe; these are: {', '.join(kinds)}")
        if not isinstance(value, kinds[key]):
            raise ValueError(f"{path}: {key} is {value!r}, wanted a {kinds[key].__name__}")
    return Recipe(**table)


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Replace `{name}` by its value; `{{name}}` stands for `{name}` itself.

    Raises:
        ValueError: there is no such value.
    """

    def value(found: re.Match[str]) -> str:
        opening, name, closing = found.groups()
        if opening and closing:
            return f"{{{name}}}"
        if name not in values:
            raise ValueError(
                f"{{{name}}} is neither a column of the task nor one of {', '.join(sorted(values))}"
            )
        return f"{opening}{values[name]}{closing}"

    return PLACEHOLDER.sub(value, text)
