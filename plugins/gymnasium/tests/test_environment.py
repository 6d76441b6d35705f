"""Real Gymnasium environments, turn by turn."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from molt_plugin_gymnasium.environment import GymnasiumText
from molt_plugin_gymnasium.spec import GYMNASIUM, GymnasiumOptions

from molt_core.api.environment import Reply
from molt_core.errors import ConfigError

ECHO = "text_environments:molt/Echo-v0"
LAKE = {
    "id": "FrozenLake-v1", "kwargs": '{"is_slippery": false}', "actions": ("left", "down", "right", "up"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def made(**options: object) -> GymnasiumText:
    return GymnasiumText(GymnasiumOptions(**options))


def say(text: str) -> Reply:
    return Reply(text=text, truncated=False, num_tokens=3)


def test_text_goes_both_ways_and_each_turn_has_its_reward() -> None:
    env = made(id=ECHO, kwargs='{"length": 4}')
    system, question = env.reset({"seed": 4})
    assert "molt/Echo-v0" in system["content"]
    word = question["content"].removeprefix("Reverse ")
    assert len(word) == 4

    wrong = env.step(say("zzz"))
    assert (wrong.reward, wrong.done, wrong.messages[0]["content"]) == (-0.25, False, "wrong")
    right = env.step(say(f" {word[::-1]}\n"))
    assert (right.reward, right.done, right.truncated) == (1.0, True, False)
    env.close()
    assert env._env.unwrapped.closed == 1


def test_a_reply_that_is_no_action_takes_no_step() -> None:
    env = made(id=ECHO, invalid_reward=-1.0, max_turns=2)
    env.reset({"seed": 0})
    first = env.step(say("I think it is XYZ!"))
    assert (first.reward, first.done, first.truncated) == (-1.0, False, False)
    assert "names no action" in first.messages[0]["content"]
    last = env.step(say("Again not."))
    assert last.truncated
    assert last.info == {"turns": 2.0, "invalid_actions": 2.0}


def test_limits_of_the_environment_and_of_the_option_truncate() -> None:
    own = made(id="text_environments:molt/Timed-v0")
    own.reset({"seed": 0})
    assert [own.step(say("zz")).truncated for _ in range(2)] == [False, True]
    ours = made(id=ECHO, max_turns=1)
    _, question = ours.reset({"seed": 0})
    done = ours.step(say(question["content"].removeprefix("Reverse ")[::-1]))
    assert (done.done, done.truncated) == (True, False), "what ended by itself was not cut off"


def test_frozen_lake_is_won_by_words() -> None:
    env = made(**LAKE)
    system, lake = env.reset({"seed": 1})
    assert "left, down, right, up" in system["content"]
    assert lake["content"].splitlines()[0] == "[S]FFF"
    steps = [
        env.step(say(f"I go {word}."))
        for word in ("down", "down", "right", "DOWN", "right", "not up but right")
    ]
    assert "\x1b" not in steps[0].messages[0]["content"]
    assert "[F]FFF" not in steps[0].messages[0]["content"]
    assert [step.reward for step in steps] == [0.0] * 5 + [1.0]
    assert [step.done for step in steps] == [False] * 5 + [True]
    env.close()


def test_the_last_whole_word_counts() -> None:
    env = made(**{**LAKE, "actions": ("go", "go down", "right", "up")})
    env.reset({"seed": 1})
    assert "That names no action" in env.step(say("upright")).messages[0]["content"]
    assert "(Down)" in env.step(say("right? no: go down")).messages[0]["content"]


def test_without_words_actions_are_numbers() -> None:
    env = made(id="FrozenLake-v1")
    system, _ = env.reset({"seed": 1})
    assert "0, 1, 2, 3" in system["content"]
    assert "(Right)" in env.step(say("2")).messages[0]["content"]


def test_the_same_seed_is_the_same_task_and_the_splits_are_apart() -> None:
    env = made(id=ECHO)
    train = [row["seed"] for row in itertools.islice(env.tasks("train", 0), 50)]
    other = [row["seed"] for row in itertools.islice(env.tasks("train", 1), 50)]
    held_out = [row["seed"] for row in itertools.islice(env.tasks("eval", 0), 50)]
    assert not {*train, *other} & {*held_out}
    assert train == [row["seed"] for row in itertools.islice(env.tasks("train", 0), 50)]
    assert train != other
    assert held_out == [row["seed"] for row in itertools.islice(env.tasks("eval", 7), 50)]
    assert made(id=ECHO).reset({"seed": train[0]}) == env.reset({"seed": train[0]})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"id": "text_environments:molt/Picture-v0"}, "wanted Text, or the render mode ansi"),
        ({"id": "CartPole-v1"}, "wanted Text, or the render mode ansi"),
        ({"id": "text_environments:molt/Arms-v0"}, "wanted Text or Discrete"),
        ({"id": "FrozenLake-v9"}, "can't be made"),
        ({"id": "no_such_module:X-v0"}, "no_such_module"),
        ({"id": "FrozenLake-v1", "kwargs": '{"slippery": true}'}, "slippery"),
        ({"id": "FrozenLake-v1", "actions": ("left", "right")}, "wanted a word for each"),
        ({"id": "FrozenLake-v1", "actions": ("a", "b", "c", "A")}, "wanted a word for each"),
        ({"id": ECHO, "actions": ("left",)}, "means nothing"),
    ],
)
def test_what_can_not_be_played_in_text_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made(**options)


def test_kwargs_are_a_json_object() -> None:
    for text in ("[1]", "{", "left"):
        with pytest.raises(ValueError, match="JSON object"):
            GymnasiumOptions(id="x", kwargs=text)


def test_the_spec_is_light() -> None:
    import subprocess

    code = "import sys, molt_plugin_gymnasium.spec; sys.exit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert GYMNASIUM.multi_turn
    assert GYMNASIUM.makes_tasks
