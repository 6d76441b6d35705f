"""Dispatch and exit codes of the command."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from molt_core.api.findings import error
from molt_core.cli.main import COMMANDS, main
from molt_core.errors import ConfigError, PreflightError, RunError


@pytest.fixture
def command(monkeypatch):
    """Make `molt run` call a function of the test."""

    def install(function):
        module = types.ModuleType("molt_core.cli.run")
        module.main = function
        monkeypatch.setitem(sys.modules, "molt_core.cli.run", module)

    return install


def raising(exception):
    def run(_argv):
        raise exception

    return run


def test_a_command_gets_the_words_after_its_name_and_gives_the_exit_code(command):
    seen = []
    command(lambda argv: seen.append(argv) or 3)
    assert main(["run", "a.toml", "--steps", "5", "--help"]) == 3
    assert seen == [["a.toml", "--steps", "5", "--help"]]


@pytest.mark.parametrize(
    ("exception", "code"),
    [
        (ConfigError([error("M999", "temperature is 0, wanted more", fix="--temperature 1")]), 2),
        (PreflightError("8 GB wanted, 4 GB free"), 3),
        (RunError("engine-0 died"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_no_traceback(command, capsys, exception, code):
    command(raising(exception))
    assert main(["run"]) == code
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert code == 130 or str(exception).splitlines()[0] in printed


def test_a_fault_of_ours_keeps_its_traceback(command):
    command(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["run"])


def test_help_lists_every_command_with_its_summary(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert [name for name, one in COMMANDS.items() if name not in printed or one.summary not in printed] == []


def test_no_words_show_help(capsys):
    assert main([]) == 0
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["chekc"], "molt check"),
        (["rn", "--steps", "4"], "molt run"),
        (["plugins", "lst"], "molt plugins list"),
    ],
)
def test_an_unknown_command_is_a_configuration_error_with_the_nearest(capsys, typed, meant):
    assert main(typed) == 2
    assert f"did you mean `{meant}`?" in capsys.readouterr().err


def test_a_reader_that_has_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "molt_core.cli.main", "plugins", "list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
