"""What a user sees of a third-party package and of a broken one, through the command `molt`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

IMPORTS = """
import sys
from molt_core.cli.main import main
code = main(sys.argv[1:])
print(sorted(name for name in sys.modules if name.startswith("molt_plugin")), file=sys.stderr)
raise SystemExit(code)
"""


def test_list_shows_both_packages_and_imports_neither(strangers_env):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, "plugins", "list", "--json"],
        env=strangers_env, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    rows = {(row["slot"], row["name"]): row for row in json.loads(done.stdout)}
    assert rows["estimators", "acme-rank"]["dist"] == "molt-plugin-acme"
    assert rows["envs", "acme-parity"]["version"] == "1.2.0"
    assert rows["estimators", "broken-baseline"]["state"] == "installed"
    assert done.stderr.strip() == "[]"


def test_a_stranger_does_not_change_what_a_bare_first_party_name_means(molt):
    rows = json.loads(molt("plugins", "list", "--slot", "estimators", "--json").stdout)
    owner = {row["name"]: (row["dist"], row["state"]) for row in rows}
    assert owner["grpo"] == ("molt-plugin-estimators", "installed")
    assert owner["molt-plugin-broken/grpo"] == ("molt-plugin-broken", "shadowed")


def test_details_show_summaries_and_what_is_broken_and_succeed(molt):
    done = molt("plugins", "list", "--details")
    assert done.returncode == 0
    assert "centred rank of the reward" in done.stdout
    assert "cannot import name 'RewardTable'" in done.stdout


def test_info_shows_options_with_defaults_and_limits(molt):
    done = molt("plugins", "info", "acme-rank")
    assert done.returncode == 0
    _, flag, meaning = done.stdout.partition("--estimator.scale float > 0 ")
    assert flag
    assert "[1.0]" in meaning
    assert "molt-plugin-acme 1.2.0" in done.stdout


@pytest.mark.parametrize("name", ["envs/acme-parity", "env/acme-parity", "molt-plugin-acme/acme-parity"])
def test_info_takes_a_slot_or_a_distribution_before_the_name(molt, name):
    assert molt("plugins", "info", name).stdout.startswith("acme-parity: ")


def test_choosing_the_broken_one_names_its_distribution_version_value_and_reason(molt):
    done = molt("plugins", "info", "broken-baseline")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    words = ["estimator", "broken-baseline", "molt-plugin-broken 0.4.1", "molt_plugin_broken.spec:BASELINE"]
    words += ["ImportError: cannot import name 'RewardTable'", "slot estimators"]
    assert [word for word in words if word not in done.stderr] == []


def test_a_misspelt_name_of_a_stranger_gets_the_nearest(molt):
    done = molt("plugins", "info", "estimators/acme-rnk")
    assert done.returncode == 2
    assert "did you mean 'acme-rank'?" in done.stderr


BUILD = """
import itertools, json
import numpy as np
from molt_core.api.environment import Reply
from molt_core.api.estimator import RewardBatch
from molt_core.plugins.factory import import_object
from molt_core.plugins.load import load_spec
from molt_core.plugins.resolve import resolve
from molt_core.plugins.scan import scan

def build(slot, name):
    spec = load_spec(resolve(scan(), slot, name))
    return import_object(spec.factory)(spec.options())
"""

RANK = """
rewards = np.array([0.0, 9.0, 1.0, 5.0, 5.0, 7.0])
batch = RewardBatch(rewards=rewards, groups=np.array([0, 0, 0, 1, 1, 2]), num_tokens=np.ones(6, np.int64))
print(build("estimators", "acme-rank").advantages(batch).tolist())
"""

PARITY = """
parity = build("envs", "acme-parity")
def numbers(split):
    return {row["number"] for row in itertools.islice(parity.tasks(split, 3), 200)}
def score(text):
    return parity.score({"number": 4}, Reply(text=text, truncated=False, num_tokens=2))
shared = numbers("train") & numbers("eval")
print(json.dumps([len(shared), score("Yes."), score("no"), score("No, wait: yes"), score("")]))
"""


def test_the_estimator_of_a_stranger_ranks_rewards_within_each_prompt(strangers_env):
    assert _printed(BUILD + RANK, strangers_env) == [-1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_the_environment_of_a_stranger_makes_tasks_and_grades_replies(strangers_env):
    assert _printed(BUILD + PARITY, strangers_env) == [0, 1.0, 0.0, 1.0, 0.0]


def _printed(code: str, env: dict[str, str]) -> list[float]:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)
