"""Options to tables, flags and TOML, and back: nothing is lost."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from molt_core.api.options import option, options
from molt_core.api.run_options import RunOptions
from molt_core.config.argv import read_argv
from molt_core.config.parse import configure
from molt_core.config.settings import SLOT_OF_FLAG, flag_of
from molt_core.config.structure import fields_of, from_table, structure
from molt_core.config.tables import to_table, to_toml
from molt_core.plan.check import Examined, examine
from molt_core.plugins.scan import Scan, scan

ROOT = Path(__file__).resolve().parent.parent.parent


@options
class Everything:
    count: int = option(1, help="n")
    rate: float = option(0.5, help="x")
    on: bool = option(False, help="b")
    name: str = option("a", help="s")
    folder: Path = option(Path("p"), help="f")
    kind: Literal["x", "y", 3] = option("x", help="k")
    limit: int | None = option(None, help="l")
    top: float | None = option(1.0, help="t")
    names: tuple[str, ...] = option((), help="many")
    sizes: tuple[int, ...] = option((1,), help="many")


floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text()
everything = st.builds(
    Everything,
    count=st.integers(),
    rate=floats,
    on=st.booleans(),
    name=texts,
    folder=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).map(Path),
    kind=st.sampled_from(["x", "y", 3]),
    limit=st.none() | st.integers(),
    top=st.none() | floats,
    names=st.lists(texts).map(tuple),
    sizes=st.lists(st.integers()).map(tuple),
)


def as_flags(made: Any) -> list[str]:
    """argv that asks for these options; an empty tuple can't be said, so it must be the default."""
    argv = []
    for attribute in fields_of(type(made)):
        value = getattr(made, attribute.name)
        flag = flag_of(attribute.name)
        if isinstance(value, bool):
            argv.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, tuple):
            argv += [f"{flag}={item}" for item in value]
        else:
            argv.append(f"{flag}={'none' if value is None else value}")
    return argv


@given(everything)
def test_options_to_table_and_back(made: Everything) -> None:
    assert from_table(Everything, to_table(made)) == made


@given(everything)
def test_options_to_flags_and_back(made: Everything) -> None:
    made = attrs.evolve(made, sizes=made.sizes or (1,))
    read = read_argv(as_flags(made))
    again = structure(Everything, read.settings)
    assert (read.findings, again.findings) == ((), ())
    assert again.options == made
    assert as_flags(again.options) == as_flags(made)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    run_name=st.none() | texts.filter(lambda text: text != "none"),
    lr=st.floats(min_value=1e-300, allow_infinity=False),
    group_size=st.integers(min_value=1),
    stop=st.none() | floats,
    clip=st.none() | st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    args=st.lists(texts),
)
def test_configuration_to_toml_and_back(
    stand_ins: Scan, run_name: Any, lr: float, group_size: int, stop: Any, clip: Any, args: list[str]
) -> None:
    argv = ["--model", "tiny", "--data", "arithmetic", "--estimator", "grpo", "--hook", "tensorboard"]
    argv += [
        f"--lr={lr}",
        f"--group-size={group_size}",
        f"--estimator.clip={'none' if clip is None else clip}",
    ]
    argv += [f"--engine.args={arg}" for arg in args]
    argv += [f"--stop-at-reward={stop}"] if stop is not None else []
    argv += [f"--run-name={run_name}"] if run_name is not None else []
    made = configure(argv, stand_ins)
    Path("again.toml").write_text(to_toml(made), encoding="utf-8")
    again = configure(["again.toml"], stand_ins)
    assert (again.run, again.parts) == (made.run, made.parts)


def test_toml_says_where_each_value_comes_from(stand_ins: Scan) -> None:
    Path("run.toml").write_text('model = "tiny"\n[estimator]\nuse = "acme-rl/rank"\n')
    text = to_toml(configure(["run.toml", "--data", "arithmetic", "--lr", "1e-5"], stand_ins))
    assert 'model = "tiny"  # run.toml:1' in text
    assert "lr = 1e-05  # --lr" in text
    assert "steps = 100  # default" in text
    assert "# max_length: not set" in text
    assert '[env]\nuse = "arithmetic"  # --data arithmetic' in text
    assert '[estimator]\nuse = "acme-rl/rank"  # run.toml:3' in text
    assert tomllib.loads(text)["trainer"] == {"use": "fsdp"}


def test_every_run_option_is_written(stand_ins: Scan) -> None:
    text = to_toml(configure(["--model", "tiny", "--data", "arithmetic"], stand_ins))
    assert all(attribute.name in text for attribute in fields_of(RunOptions))


def test_options_of_a_packaged_model_are_not_lost(stand_ins: Scan) -> None:
    made = configure(["--model", "big", "--model.layers", "5", "--data", "arithmetic"], stand_ins)
    Path("again.toml").write_text(to_toml(made))
    again = configure(["again.toml"], stand_ins)
    assert (again.run, again.parts) == (made.run, made.parts)
    assert again.parts["models"][0].options.layers == 5


def test_a_saved_configuration_states_defaults_that_nobody_asked_for(stand_ins: Scan) -> None:
    made = configure(["--model", "tiny", "--data", "arithmetic", "--lr", "1e-5"], stand_ins)
    Path("again.toml").write_text(to_toml(made))
    again = configure(["again.toml", "--seed", "0"], stand_ins)

    assert again.origins["seed"] == "--seed", "said on top of it"
    assert again.origins["lr"].startswith("again.toml:")
    asked = {key for key in again.origins if key not in SLOT_OF_FLAG}
    assert asked == {"lr", "seed"}
    Path("third.toml").write_text(to_toml(again))
    assert "steps = 100  # default" in Path("third.toml").read_text()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.stem)
def test_a_saved_configuration_has_the_findings_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Path
) -> None:
    monkeypatch.chdir(ROOT)
    # without data to evaluate on, the default number of prompts is worth a warning, one that was asked for an error
    first = examine([str(example), "--eval-data", "none"], scan())
    (tmp_path / "config.toml").write_text(to_toml(first.configuration))

    def told(examined: Examined) -> set[tuple[str, str, str]]:
        return {(finding.level, finding.code, finding.message) for finding in examined.findings}

    assert told(examine([str(tmp_path / "config.toml")], scan())) == told(first)
