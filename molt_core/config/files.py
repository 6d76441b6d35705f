"""TOML files to settings, each with the line it stands on.

tomllib reports no positions, so the lines of keys are found by a scan of the text that knows
tables, dotted keys and multi-line strings. A key inside an inline table gets the line of the
table. Relative paths in a file are relative to the working directory, as those in flags.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from molt_core.api.findings import Finding, error
from molt_core.config.settings import DEFAULT, HOOK_FLAG, SLOT_OF_FLAG, Setting, normal_key

USE: Final = "use"
_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_KEY: Final = re.compile(rf"\s*((?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*)\s*=")


@frozen
class FileSettings:
    settings: tuple[Setting, ...] = ()
    findings: tuple[Finding, ...] = ()


def read_file(name: str, layer: int) -> FileSettings:
    """Settings of one file; what is wrong with the file as a whole comes back as findings."""
    try:
        text = Path(name).read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except FileNotFoundError:
        return _broken(
            "M124", f"there is no configuration file {name!r}", fix="words without -- are TOML files"
        )
    except (OSError, UnicodeDecodeError) as problem:
        return _broken("M124", f"{name} can't be read: {problem}")
    except tomllib.TOMLDecodeError as problem:
        return _broken("M125", f"{name} is not valid TOML: {problem}")
    defaults = {number for number, line in enumerate(text.split("\n"), 1) if line.endswith(f"# {DEFAULT}")}
    reader = _Reader(name, layer, key_lines(text), defaults)
    settings = tuple(reader.top(table))
    return FileSettings(settings, tuple(reader.findings))


def _broken(code: str, message: str, fix: str = "") -> FileSettings:
    return FileSettings(findings=(error(code, message, fix=fix),))


@frozen
class _Reader:
    name: str
    layer: int
    lines: Mapping[tuple[str, ...], int]
    defaults: Set[int]
    """Lines of what nobody asked for, in a saved configuration."""
    findings: list[Finding] = field(factory=list)

    def top(self, table: Mapping[str, Any]) -> Iterator[Setting]:
        for key, value in table.items():
            flag = normal_key(key)
            if key == "hooks":
                yield self.setting(HOOK_FLAG, tuple(value) if isinstance(value, list) else (value,), key)
            elif flag == HOOK_FLAG and isinstance(value, dict):
                for hook, knobs in value.items():
                    yield from self.hook(key, hook, knobs)
            elif flag in SLOT_OF_FLAG and isinstance(value, dict):
                for knob, inner in value.items():
                    yield self.setting(flag if knob == USE else f"{flag}.{knob}", (inner,), key, knob)
            elif isinstance(value, dict):
                fix = "tables are " + ", ".join(f"[{name}]" for name in SLOT_OF_FLAG)
                message = f"{self.origin(key)}: [{key}] is no table of the configuration"
                self.findings.append(error("M121", message, fix=fix))
            else:
                yield self.setting(key, (value,), key)

    def hook(self, key: str, hook: str, knobs: Any) -> Iterator[Setting]:
        if not isinstance(knobs, dict):
            message = f"{self.origin(key, hook)}: {key}.{hook} must be a table of options, got {knobs!r}"
            self.findings.append(error("M122", message, fix=f'hooks = ["{hook}"] turns the hook on'))
            return
        for knob, inner in knobs.items():
            yield self.setting(f"{HOOK_FLAG}.{hook}.{knob}", (inner,), key, hook, knob)

    def setting(self, key: str, values: tuple[Any, ...], *path: str) -> Setting:
        return Setting(
            normal_key(key), values, self.origin(*path), from_flag=False, layer=self.layer,
            is_default=self.lines.get(path) in self.defaults,
        )  # fmt: skip

    def origin(self, *path: str) -> str:
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path else self.name


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Line, from 1, of each key and table header of a valid TOML text, by full path."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    open_quotes = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not open_quotes:
            if header := _HEADER.match(line):
                table = _parts(header[1])
                lines.setdefault(table, number)
            elif key := _KEY.match(line):
                path = (*table, *_parts(key[1]))
                for length in range(len(table) + 1, len(path) + 1):
                    lines.setdefault(path[:length], number)
        for quotes in re.findall(r'"""|\'\'\'', line):
            open_quotes = "" if quotes == open_quotes else open_quotes or quotes
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
