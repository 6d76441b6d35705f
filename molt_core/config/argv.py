"""The command line to settings, before it is known which plugins' flags exist.

    molt run [FILE.toml ...] [--name VALUE | --name=VALUE | --flag | --no-flag ...]

argparse is not used: it stops at the first mistake, abbreviates, and must know every flag
beforehand, while a plugin's flags are known only after flags have chosen the plugin.
A word after a plugin's flag is its value; so files go before the flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from molt_core.api.findings import Finding, error
from molt_core.api.run_options import RunOptions
from molt_core.config.settings import SWITCHES, Setting, normal_key
from molt_core.config.structure import fields_of

_CORE: Final = fields_of(RunOptions)
CORE_KEYS: Final = tuple(attribute.name for attribute in _CORE)
_NO_VALUE: Final = frozenset(SWITCHES) | {attribute.name for attribute in _CORE if attribute.type is bool}
_SHORT: Final = {"-h": "--help"}


@frozen
class CommandLine:
    files: tuple[str, ...]
    settings: tuple[Setting, ...]
    """In the order of their first mention; layer 0, to be moved behind the files."""
    switches: frozenset[str]
    findings: tuple[Finding, ...]


def read_argv(argv: Sequence[str]) -> CommandLine:
    """Split the words after the command's name."""
    files: list[str] = []
    given: dict[str, Setting] = {}
    switches: set[str] = set()
    findings: list[Finding] = []
    words = [_SHORT.get(word, word) for word in argv]
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, text = word[2:].partition("=")
            key, bare = _key_and_bare(name, has_text=bool(equals))
            value: str | bool = text if equals else bare
            # an unknown flag takes the next word too: it may be a plugin's, and no flag follows it
            if value is True and key not in _NO_VALUE and words and not words[0].startswith("--"):
                value = words.pop(0)
            if key not in SWITCHES:
                earlier = given[key].values if key in given else ()
                given[key] = Setting(key, (*earlier, value), f"--{name}", from_flag=True, layer=0)
            elif value is True:
                switches.add(key)
            else:
                findings.append(error("M122", f"{word}: takes no value", fix=f"write --{name}"))
        elif word.startswith("-"):
            message = f"{word}: there is no such flag; all but -h begin with --"
            findings.append(error("M121", message, fix="molt run --help lists all"))
        else:
            files.append(word)
    return CommandLine(tuple(files), tuple(given.values()), frozenset(switches), tuple(findings))


def _key_and_bare(name: str, *, has_text: bool) -> tuple[str, bool]:
    """Key, and what the flag means when no text comes with it: True, or False for `--no-...`."""
    key = normal_key(name)
    if name.startswith("no-") and not has_text and key not in CORE_KEYS:
        return normal_key(name.removeprefix("no-")), False
    return key, True
