"""From argv and files to a configuration: precedence, choices, and all errors at once."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from molt_core.config.parse import configure, draft
from molt_core.errors import ConfigError
from molt_core.plugins.scan import Scan

ENOUGH = ("--model", "tiny", "--data", "arithmetic")


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def codes(error: ConfigError) -> list[str]:
    return [finding.code for finding in error.findings]


def test_later_files_win_over_earlier_ones_and_flags_over_files(stand_ins: Scan) -> None:
    one = write("one.toml", 'model = "tiny"\nenv = "arithmetic"\nsteps = 1\nlr = 1\nseed = 1\n')
    two = write("two.toml", "steps = 2\nlr = 0.2\n")
    made = configure([one, two, "--lr", "0.3"], stand_ins)
    assert (made.run.seed, made.run.steps, made.run.lr) == (1, 2, 0.3)
    assert (made.origins["seed"], made.origins["steps"], made.origins["lr"]) == (
        "one.toml:5",
        "two.toml:1",
        "--lr",
    )


def test_slots_that_are_not_mentioned_hold_their_defaults(stand_ins: Scan) -> None:
    made = configure(ENOUGH, stand_ins)
    names = {slot: [part.spec.name for part in parts] for slot, parts in made.parts.items()}
    assert names == {
        "estimators": ["reinforce++"], "losses": ["ppo"], "envs": ["arithmetic"], "engines": ["vllm"],
        "trainers": ["fsdp"], "executors": ["ray"], "models": ["tiny"],
    }  # fmt: skip


def test_a_knob_reaches_the_chosen_plugin_from_flag_table_and_inline_table(stand_ins: Scan) -> None:
    file = write("run.toml", 'estimator = { use = "grpo", clip = 2 }\n[hook.tensorboard]\nevery = 3\n')
    made = configure([file, *ENOUGH, "--estimator.kl-coef", "0.1", "--hook", "tensorboard"], stand_ins)
    (estimator,) = made.parts["estimators"]
    (hook,) = made.parts["hooks"]
    assert (estimator.options.clip, estimator.options.kl_coef, hook.options.every) == (2.0, 0.1, 3)


def test_data_may_name_an_environment_that_makes_tasks(stand_ins: Scan) -> None:
    made = configure(["--model", "tiny", "--data", "arithmetic"], stand_ins)
    assert made.run.data is None
    assert made.origins["env"] == "--data arithmetic"


def test_data_that_is_a_file_stays_a_file_even_if_an_environment_has_its_name(stand_ins: Scan) -> None:
    write("arithmetic", "")
    made = configure(["--model", "tiny", "--data", "arithmetic", "--env", "verify"], stand_ins)
    assert made.run.data == "arithmetic"


def test_data_of_another_environment_is_refused(stand_ins: Scan) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(["--model", "tiny", "--data", "arithmetic", "--env", "verify"], stand_ins)
    assert codes(caught.value) == ["M127"]


def test_without_environment_the_nearest_name_of_data_is_offered(stand_ins: Scan) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(["--model", "tiny", "--data", "arithmetik"], stand_ins)
    (finding,) = caught.value.findings
    assert finding.code == "M130"
    assert finding.fix == "did you mean --data arithmetic?"


def test_a_folder_with_a_model_goes_before_a_packaged_model_of_its_name(stand_ins: Scan) -> None:
    Path("tiny").mkdir()
    assert "models" in configure(ENOUGH, stand_ins).parts
    write("tiny/config.json", "{}")
    assert "models" not in configure(ENOUGH, stand_ins).parts


def test_a_hub_id_is_no_packaged_model_and_a_near_miss_is_explained(stand_ins: Scan) -> None:
    assert "models" not in configure(["--model", "org/name", "--env", "arithmetic"], stand_ins).parts
    with pytest.raises(ConfigError, match="did you mean 'tiny'"):
        configure(["--model", "tinny", "--env", "arithmetic"], stand_ins)


def test_every_mistake_is_reported_at_once(stand_ins: Scan) -> None:
    file = write(
        "bad.toml", 'stepz = 3\nlr = "fast"\n[estimator]\nuse = "grpo"\nkl_coef = -1\nwhiten = true\n'
    )
    argv = [
        file, "gone.toml", "--group-size", "0", "--estimater", "x", "--engine", "vlm", "--engine.anything", "1",
        "--data", "arithmetic", "--hook.tensorboard.every", "2", "--loss.clip", "3",
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        configure(argv, stand_ins)
    text = "\n".join(f"{finding.message} | {finding.fix}" for finding in caught.value.findings)
    for words in (
        "bad.toml:1: stepz = 3: there is no such key | did you mean steps?",
        "bad.toml:2: lr = 'fast': must be a number",
        "bad.toml:5: estimator.kl_coef = -1: must be >= 0",
        "bad.toml:6: estimator.whiten = True: is an option of 'reinforce++', but 'grpo' is chosen",
        "no configuration file 'gone.toml'",
        "--group-size 0: must be >= 1",
        "--estimater x: there is no such flag | did you mean --estimator?",
        "no engine is named 'vlm'; did you mean 'vllm'?",
        "--hook.tensorboard.every 2: hook 'tensorboard' is not turned on",
        "--loss.clip 3: there is no such flag",
    ):
        assert words in text
    assert len(caught.value.findings) == 10, (
        "and nothing about knobs of a plugin that is not there, or what a lost file may hold"
    )


def test_a_broken_plugin_is_an_error_only_when_chosen(stand_ins: Scan) -> None:
    configure(ENOUGH, stand_ins)
    with pytest.raises(ConfigError, match=r"wreck-rl 0\.4"):
        configure([*ENOUGH, "--estimator", "wreck"], stand_ins)


def test_knobs_of_a_plugin_that_a_later_layer_replaced_are_left_out_with_a_note(stand_ins: Scan) -> None:
    file = write("run.toml", '[estimator]\nuse = "grpo"\nkl_coef = 0.5\n')
    (note,) = draft([file, *ENOUGH, "--estimator", "reinforce"], stand_ins).findings
    assert note.code == "M129"
    assert (
        note.message
        == "run.toml:3: estimator.kl_coef = 0.5: not used, --estimator reinforce replaces its plugin"
    )


def test_knobs_survive_when_a_later_layer_names_the_same_plugin_by_an_alias(stand_ins: Scan) -> None:
    file = write("run.toml", '[estimator]\nuse = "reinforce++"\nwhiten = false\n')
    made = draft([file, *ENOUGH, "--estimator", "reinforce"], stand_ins)
    assert made.configuration.parts["estimators"][0].options.whiten is False
    assert made.findings == ()


def test_hooks_of_a_later_layer_replace_those_of_an_earlier_one(stand_ins: Scan) -> None:
    first = write("first.toml", 'hooks = ["tensorboard"]\n[hook.tensorboard]\nevery = 3\n')
    made = draft([first, write("second.toml", "hooks = []\n"), *ENOUGH], stand_ins)
    assert "hooks" not in made.configuration.parts
    assert [note.code for note in made.findings] == ["M129"]


def test_choices_must_be_names(stand_ins: Scan) -> None:
    file = write("run.toml", "estimator = 3\nhooks = [1]\n")
    with pytest.raises(ConfigError) as caught:
        configure([file, *ENOUGH], stand_ins)
    assert codes(caught.value) == ["M126", "M126"]


def test_a_bare_choice_flag_needs_a_name(stand_ins: Scan) -> None:
    with pytest.raises(ConfigError) as caught:
        configure([*ENOUGH, "--estimator"], stand_ins)
    assert codes(caught.value) == ["M126"]


def test_switches_are_carried(stand_ins: Scan) -> None:
    assert configure([*ENOUGH, "--print-config", "--dry-run"], stand_ins).switches == {
        "print_config",
        "dry_run",
    }


def test_a_draft_says_which_values_are_stand_ins(stand_ins: Scan) -> None:
    made = draft(["--data", "arithmetic", "--steps", "x", "--estimator", "none"], stand_ins)
    assert {"model", "steps", "estimator"} <= made.broken
    assert made.configuration.run.steps == 100
    assert not made.complete


def test_data_that_names_a_known_environment_says_what_to_install(stand_ins: Scan) -> None:
    without = Scan(tuple(one for one in stand_ins.candidates if one.name != "arithmetic"))
    with pytest.raises(ConfigError) as caught:
        configure(ENOUGH, without)
    (finding,) = caught.value.findings
    assert (finding.code, finding.fix) == ("M102", "pip install molt-plugin-envs")


def test_a_model_that_is_no_text_is_one_finding(stand_ins: Scan) -> None:
    file = write("run.toml", "model = 3\n")
    with pytest.raises(ConfigError) as caught:
        configure([file, "--env", "arithmetic"], stand_ins)
    assert codes(caught.value) == ["M122"]


def test_two_hooks_of_one_name_are_refused_and_one_hook_twice_is_one(stand_ins: Scan) -> None:
    (board,) = [one for one in stand_ins.candidates if one.name == "tensorboard"]
    both = Scan((*stand_ins.candidates, attrs.evolve(board, dist="acme-rl")))
    with pytest.raises(ConfigError, match="molt-plugin-tracking/tensorboard and acme-rl/tensorboard"):
        configure([*ENOUGH, "--hook", "tensorboard", "--hook", "acme-rl/tensorboard"], both)
    made = configure([*ENOUGH, "--hook", "tensorboard", "--hook", "TensorBoard"], both)
    assert len(made.parts["hooks"]) == 1


def test_a_name_too_long_for_a_file_is_an_ordinary_error(stand_ins: Scan) -> None:
    with pytest.raises(ConfigError):
        configure(["--model", "m" * 5000, "--data", "d" * 5000], stand_ins)
