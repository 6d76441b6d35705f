"""Help shows the core's flags and those of the chosen plugins, even when the run itself is wrong."""

from __future__ import annotations

from pathlib import Path

from molt_core.config.help import help_text
from molt_core.plugins.scan import Scan, scan


def test_core_flags_come_with_range_help_and_default(stand_ins: Scan) -> None:
    text = help_text(["--help"], stand_ins)
    assert "--group-size int >= 1" in text
    assert "[8]" in text
    assert "--partial / --no-partial" in text


def test_defaults_are_shown_as_words_and_not_as_python() -> None:
    text = " ".join(help_text([], scan()).split())
    assert "one node after the other [engines, workers]" in text
    assert "that of the policy [not set]" in text
    assert "()" not in text
    assert "--executor.spread engines|ranks|workers ..." in text
    assert "A flag with ... is given once for each value." in text


def test_only_flags_of_chosen_plugins_are_shown(stand_ins: Scan) -> None:
    assert "--estimator.kl-coef" not in help_text([], stand_ins)
    assert "--estimator.kl-coef float >= 0" in help_text(["--estimator", "grpo"], stand_ins)
    Path("run.toml").write_text('hooks = ["tensorboard"]\n')
    assert "--hook.tensorboard.every int >= 1" in help_text(["run.toml"], stand_ins)


def test_mistakes_do_not_keep_help_from_being_shown(stand_ins: Scan) -> None:
    assert "--steps int" in help_text(["gone.toml", "--estimator", "wreck", "--lr", "x"], stand_ins)
