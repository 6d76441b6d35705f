"""The tokenizer: words, values, negation, switches."""

from __future__ import annotations

from molt_core.config.argv import read_argv


def said(*argv: str) -> dict[str, tuple[object, ...]]:
    return {setting.key: setting.values for setting in read_argv(argv).settings}


def test_value_follows_or_is_joined_by_equals() -> None:
    assert said("--steps", "3", "--lr=1e-5") == {"steps": ("3",), "lr": ("1e-5",)}


def test_a_negative_number_is_a_value() -> None:
    assert said("--temperature", "-1") == {"temperature": ("-1",)}


def test_a_core_bool_takes_no_word_so_a_file_may_follow() -> None:
    line = read_argv(["--no-partial", "run.toml", "--partial"])
    assert line.files == ("run.toml",)
    assert line.settings[0].values == (False, True)


def test_a_plugin_flag_takes_the_next_word() -> None:
    assert said("--estimator.kl-coef", "0.1", "--hook.my_hook.every", "2") == {
        "estimator.kl_coef": ("0.1",),
        "hook.my-hook.every": ("2",),
    }


def test_bare_and_negated_plugin_flags() -> None:
    assert said("--estimator.whiten", "--no-estimator.centre") == {
        "estimator.whiten": (True,),
        "estimator.centre": (False,),
    }


def test_repeated_flags_keep_their_order() -> None:
    assert said("--hook", "a", "--hook=b") == {"hook": ("a", "b")}


def test_dashes_and_underscores_are_one() -> None:
    assert said("--group_size", "2", "--max-tokens", "4") == {"group_size": ("2",), "max_tokens": ("4",)}


def test_switches_are_told_apart_from_options() -> None:
    line = read_argv(["a.toml", "-h", "--print-config", "--dry-run", "b.toml"])
    assert line.switches == {"help", "print_config", "dry_run"}
    assert line.files == ("a.toml", "b.toml")


def test_single_dash_and_switch_with_value_are_reported() -> None:
    findings = read_argv(["-x", "--dry-run=yes", "--no-help"]).findings
    assert [finding.code for finding in findings] == ["M121", "M122", "M122"]
