"""Entry of the command `molt`: picks the command, imports its module and only that, shows errors.

A command module has `main(argv) -> exit code` and gets the words after the command's name.
Errors that a user can act on are printed without a traceback; any other is a fault of ours
and keeps it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NamedTuple

from molt_core import __version__
from molt_core.errors import ConfigError, Interrupted, MoltError


class Command(NamedTuple):
    """A command of the table below."""

    module: str
    usage: str
    summary: str


COMMANDS: Final = {
    "run": Command("run", "[FILE.toml ...] [--flags]", "train a model"),
    "resume": Command("resume", "RUN [--flags]", "go on where a run was ended or killed"),
    "replay": Command("replay", "RUN [--steps A-B]", "train recorded batches again, and compare"),
    "eval": Command("eval", "[FILE.toml ...] [--flags]", "grade a model or checkpoint; needs no trainer"),
    "report": Command("report", "RUN", "what a run learned, took and lost"),
    "check": Command("check", "[FILE.toml ...] [--flags]", "say what is wrong with a run; starts nothing"),
    "plugins list": Command(
        "plugins_list", "[--slot SLOT] [--json] [--details]", "what is installed, by slot"
    ),
    "plugins info": Command("plugins_info", "NAME", "what one plugin does, and its options"),
}
"""In the order in which help shows them; modules are those of this package."""

USAGE: Final = "usage: molt COMMAND ..."
ABOUT: Final = "Reinforcement learning for language models, in which the agent is an ordinary program."
EPILOG: Final = """\
a first run:       molt run examples/quickstart.toml
its options:       molt run --help
before a long run: molt check my.toml --steps 500
after a kill:      molt resume runs/NAME
after it:          molt eval my.toml --model runs/NAME --eval-samples 4 --eval-temperature 1

exit codes: 0 done, 2 configuration, 3 environment, 4 the run failed, 130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code of the process."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, where a closed pipe can still be told from a fault
        return code
    except MoltError as error:
        _show(error)
        return error.exit_code
    except KeyboardInterrupt:
        return Interrupted.exit_code
    except BrokenPipeError:
        # the reader (`| head`) has enough; without this Python complains again when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(words: list[str]) -> int:
    for num_words in (2, 1):
        command = COMMANDS.get(" ".join(words[:num_words]))
        if command and len(words) >= num_words:
            module = import_module(f"molt_core.cli.{command.module}")
            return int(module.main(words[num_words:]))
    return _no_command(words)


def _no_command(words: list[str]) -> int:
    """`molt`, `molt --help`, `molt --version`, `molt plugins`, and what is no command."""
    group = words[0] if words else ""
    inside = {name: command for name, command in COMMANDS.items() if name.startswith(f"{group} ")}
    if inside and set(words[1:]) <= {"-h", "--help"}:
        print(
            f"usage: molt {group} COMMAND ...\n\n{_listed(inside)}\n\nmolt {group} COMMAND --help says more"
        )
        return 0
    if group == "--version":
        print(f"molt-core {__version__}")
    elif group in ("", "-h", "--help"):
        print(f"{USAGE}\n\n{ABOUT}\n\n{_listed(COMMANDS)}\n\n{EPILOG}")
    else:
        print(f"{USAGE}\nmolt: error: {_unknown_command(words)}", file=sys.stderr)
        return ConfigError.exit_code
    return 0


def _listed(commands: dict[str, Command]) -> str:
    lines = [(f"{name} {command.usage}", command.summary) for name, command in commands.items()]
    width = max(len(left) for left, _ in lines) + 2
    return "commands:\n" + "\n".join(f"  {left:<{width}}{summary}" for left, summary in lines)


def _unknown_command(words: list[str]) -> str:
    from molt_core.plugins.names import nearest

    typed = " ".join([word for word in words if not word.startswith("-")][:2]) or words[0]
    close = nearest(typed, COMMANDS) or nearest(typed.split()[0], COMMANDS)
    hint = f"did you mean `molt {close}`?" if close else "`molt --help` lists the commands"
    return f"there is no command {typed!r}; {hint}"


def _show(error: MoltError) -> None:
    if isinstance(error, ConfigError):
        from molt_core.plan.show import show_findings

        print(show_findings(error.findings), file=sys.stderr)
    else:
        print(f"error: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
