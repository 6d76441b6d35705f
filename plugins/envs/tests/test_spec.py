"""The specs say what the core must know, and load nothing that is heavy."""

from __future__ import annotations

import subprocess
import sys

from molt_plugin_envs.spec import ARITHMETIC, PYTHON_TOOL, VERIFY

from molt_core.api.columns import ANSWER, PROMPT
from molt_core.plugins.factory import import_object

ONE_TURN, TURNS = ("tasks", "prompt", "score"), ("tasks", "reset", "step", "close")
SPECS = ((ARITHMETIC, ONE_TURN), (VERIFY, ONE_TURN), (PYTHON_TOOL, TURNS))


def test_factories_make_environments_from_default_options() -> None:
    for spec, methods in SPECS:
        environment = import_object(spec.factory)(spec.options())
        assert all(callable(getattr(environment, name)) for name in methods)


def test_arithmetic_stands_for_data_and_verify_needs_it() -> None:
    assert ARITHMETIC.makes_tasks
    assert not VERIFY.makes_tasks
    assert VERIFY.columns == (PROMPT, ANSWER)
    assert list(import_object(VERIFY.factory)(VERIFY.options()).tasks("eval", 0)) == []


def test_the_python_tool_takes_several_turns_and_makes_tasks_where_there_is_no_data() -> None:
    assert PYTHON_TOOL.multi_turn
    assert PYTHON_TOOL.makes_tasks
    assert PYTHON_TOOL.columns == (PROMPT, ANSWER)


def test_the_spec_is_light() -> None:
    program = (
        "import sys, molt_plugin_envs.spec; "
        "print([name for name in ('numpy', 'torch', 'molt_plugin_envs.verify') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
