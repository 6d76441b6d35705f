"""Bad combinations of the first-party algorithms: found before launch, with the flag, and with a way out that works."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from molt_core.api.findings import Finding
from molt_core.plan.check import examine
from molt_core.plan.plan import Plan, freeze
from molt_core.plugins.scan import Scan, scan

RUN = ("--model", "tiny", "--env", "arithmetic", "--eval-prompts", "0")


def errors(*argv: str, plugins: Scan | None = None) -> list[Finding]:
    examined = examine([*RUN, *argv], plugins or scan())
    return [finding for finding in examined.findings if finding.level == "error"]


BAD = {
    "one rollout for each prompt, grpo": (
        "--estimator grpo --group-size 1", "M301", "--group-size", "--estimator grpo --group-size 8",
    ),
    "one rollout for each prompt, dr_grpo": (
        "--estimator dr_grpo --group-size 1", "M301", "--group-size", "--estimator flash_reinforce --group-size 1",
    ),
    "one rollout for each prompt, rloo": (
        "--estimator rloo --group-size 1", "M301", "--group-size", "--estimator reinforce++ --group-size 1",
    ),
    "one rollout for each prompt, reinforce++-baseline": (
        "--estimator reinforce++-baseline --group-size 1", "M301", "--group-size",
        "--estimator reinforce++-baseline --group-size 8",
    ),
    "dual clip of 1": ("--loss.dual-clip 1", "M122", "--loss.dual-clip", "--loss.dual-clip 3"),
    "clip below 0": ("--loss.clip-low 1", "M122", "--loss.clip-low", "--loss.clip-low 0.2"),
    "dual clip of gspo": ("--loss gspo --loss.dual-clip 3", "M121", "--loss.dual-clip", "--loss gspo"),
    "cap below 1": ("--loss cispo --loss.cap 0.5", "M122", "--loss.cap", "--loss cispo --loss.cap 2"),
    "a band that falls": (
        "--correction importance --correction.threshold 5 --correction.threshold 0.5", "M122",
        "--correction.threshold 0.5",
        "--correction importance --correction.threshold 0.5 --correction.threshold 5",
    ),
    "three thresholds": (
        "--correction importance --correction.threshold 1 --correction.threshold 2 --correction.threshold 3", "M122",
        "--correction.threshold 0.5",
        "--correction importance --correction.threshold 2",
    ),
    "clip of a rollout's ratio": (
        "--correction importance --correction.level seq --correction.mode clip", "LOSS2", "--correction.mode",
        "--correction importance --correction.level seq --correction.mode mask",
    ),
    "truncation of a distance": (
        "--correction importance --correction.gate tv --correction.mode trunc --correction.threshold 0.1", "LOSS2",
        "--correction.gate",
        "--correction importance --correction.level token --correction.gate ratio --correction.mode trunc",
    ),
    "geometric mean of a distance": (
        "--correction importance --correction.level geo --correction.gate binary_kl --correction.threshold 0.005",
        "LOSS2", "--correction.level",
        "--correction importance --correction.level seq --correction.gate binary_kl --correction.threshold 0.005",
    ),
    "a distance with the bounds of a ratio": (
        "--correction importance --correction.gate binary_kl", "LOSS2", "--correction.gate",
        "--correction importance --correction.gate binary_kl --correction.threshold 0.005",
    ),
    "a total variation that nothing reaches": (
        "--correction importance --correction.gate tv --correction.threshold 2", "LOSS2", "--correction.threshold",
        "--correction importance --correction.gate tv --correction.threshold 0.1",
    ),
    "a ratio that nothing reaches": (
        "--correction importance --correction.threshold 0", "LOSS2", "--correction.threshold",
        "--correction importance --correction.threshold 0.5 --correction.threshold 5",
    ),
    "score centering of a rollout's weights": (
        "--correction score-centering --correction.level seq", "M122", "--correction.level",
        "--correction score-centering --correction.level token",
    ),
    "score centering by a distance": (
        "--correction score-centering --correction.gate tv", "M121", "--correction.gate",
        "--correction score-centering --correction.level token",
    ),
    "score centering over no tokens": (
        "--correction score-centering --correction.top-k 0", "M122", "--correction.top-k",
        "--correction score-centering --correction.top-k 1",
    ),
    "a mode for score centering without weights": (
        "--correction score-centering --correction.mode clip", "LOSS2", "--correction.mode",
        "--correction score-centering --correction.mode clip --correction.level token",
    ),
    "score centering of ratios that nothing reaches": (
        "--correction score-centering --correction.level token --correction.threshold 0", "LOSS2",
        "--correction.threshold", "--correction score-centering --correction.level token",
    ),
    "score centering of greedy replies": (
        "--correction score-centering --temperature 0", "M302", "--temperature",
        "--correction score-centering --temperature 0.5",
    ),
    "top-k distillation without a teacher": (
        "--loss topk_reverse_kl", "M202", "default", "--loss topk_reverse_kl --reference org/teacher",
    ),
    "a correction of top-k distillation": (
        "--loss topk_reverse_kl --reference org/teacher --correction importance", "M201", "molt-plugin-losses",
        "--loss topk_reverse_kl --reference org/teacher",
    ),
    "top-k distillation beside a critic": (
        "--loss topk_reverse_kl --reference org/teacher --estimator gae", "LOSS5", "'gae'",
        "--loss topk_reverse_kl --reference org/teacher --estimator on_policy_distill",
    ),
    "top-k distillation beside rewards that are compared": (
        "--loss topk_reverse_kl --reference org/teacher --estimator grpo", "LOSS5", "'grpo'",
        "--loss ppo --estimator grpo",
    ),
    "top-k distillation beside returns of tokens": (
        "--loss topk_reverse_kl --reference org/teacher --estimator reinforce++ --estimator.gamma 0.9", "LOSS5",
        "'reinforce++'", "--loss topk_reverse_kl --reference org/teacher --estimator reinforce++",
    ),
    "k1 against the sampler": (
        "--loss.kl-coef 0.1 --loss.kl-form k1 --loss.kl-reference sampler", "LOSS1", "--loss.kl-form",
        "--loss.kl-coef 0.1 --loss.kl-form k3 --loss.kl-reference sampler",
    ),
    "steering from 0": (
        "--loss.kl-target 0.1", "LOSS3", "--loss.kl-target", "--loss.kl-target 0.1 --loss.kl-coef 0.001",
    ),
    "steering a penalty from 0": (
        "--estimator.kl-target 0.1", "ADV1", "--estimator.kl-target",
        "--estimator.kl-target 0.1 --estimator.kl-coef 0.001",
    ),
    "gspo beside a correction": (
        "--loss gspo --correction importance", "LOSS4", "'importance'", "--loss ppo --correction importance",
    ),
    "a teacher that is not named": (
        "--estimator on_policy_distill", "M202", "default", "--estimator on_policy_distill --reference org/teacher",
    ),
    "a critic that is not there": (
        "--estimator gae --trainer.critic-model nothing", "FSDP2", "--trainer.critic-model",
        "--estimator gae --trainer.critic-lr 1e-4",
    ),
    "a filter without groups": (
        "--filter dynamic --group-size 1", "M202", "--group-size", "--filter dynamic --group-size 8",
    ),
    "a filter that keeps nothing": (
        "--filter dynamic --filter.low 0.9 --filter.high 0.1", "M122", "--filter.low",
        "--filter dynamic --filter.low 0.1 --filter.high 0.9",
    ),
    "both penalties on long replies": (
        "--shaper penalties --shaper.overlong-buffer 16 --shaper.stop-coef 0.5", "M122",
        "--shaper.overlong-buffer", "--shaper penalties --shaper.stop-coef 0.5",
    ),
    "penalties beside an estimator that sees no rewards": (
        "--shaper penalties --shaper.stop-coef 0.5 --estimator on_policy_distill --reference org/teacher", "SHAPE1",
        "'on_policy_distill'", "--filter varied --estimator on_policy_distill --reference org/teacher",
    ),
    "penalties beside a loss that sees no rewards": (
        "--shaper penalties --loss topk_reverse_kl --reference org/teacher", "SHAPE1", "'topk_reverse_kl'",
        "--loss topk_reverse_kl --reference org/teacher",
    ),
    "an unknown estimator": ("--estimator grpoo", "M101", "grpoo", "--estimator grpo"),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "code", "named", "way_out"), BAD.values(), ids=BAD)
def test_is_refused_by_name_and_the_way_out_works(
    argv: str, code: str, named: str, way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (finding,) = errors(*argv.split())
    assert finding.code == code
    said = " ".join([finding.message, *(source.origin for source in finding.because)])
    assert named in said
    assert finding.fix or "--" in finding.message, "a way out"
    assert errors(*way_out.split()) == []


@pytest.mark.parametrize("correction", ["importance", "score-centering"])
def test_a_correction_without_log_probs_of_sampling_is_refused(correction: str, stand_ins: Scan) -> None:
    mute = next(one for one in stand_ins.candidates if (one.slot, one.name) == ("engines", "transformers"))
    others = (one for one in scan().candidates if (one.slot, one.name) != (mute.slot, mute.name))
    plugins = evolve(scan(), candidates=tuple(sorted([*others, mute])))
    argv = ("--correction", correction, "--engine", "transformers", "--engine.attention", "x")
    found = errors(*argv, plugins=plugins)
    assert {finding.code for finding in found} == {"M202"}
    assert any(f"correction '{correction}' needs 'sampled-logprobs'" in finding.message for finding in found)


def test_a_loss_without_the_term_of_score_centering_is_refused() -> None:
    found = errors(
        "--correction", "score-centering", "--loss", "topk_reverse_kl", "--reference", "org/teacher"
    )
    assert any("needs 'centering-term'" in finding.message for finding in found)


def test_a_run_records_as_many_likely_tokens_as_its_plugins_want() -> None:
    def recorded(*argv: str) -> int:
        view = examine([*RUN, *argv], scan()).view
        assert freeze(view).top_logprobs == view.top_logprobs
        return Plan.from_json(freeze(view).to_json()).top_logprobs

    assert recorded() == recorded("--correction", "importance") == 0
    assert recorded("--correction", "score-centering") == 20
    assert recorded("--loss", "topk_reverse_kl", "--loss.top-k", "64") == 64
    both = ("--correction", "score-centering", "--correction.top-k", "5", "--loss", "topk_reverse_kl")
    assert recorded(*both) == 20, "as many as the one that wants most"


def test_options_of_a_critic_without_one_are_a_warning() -> None:
    findings = examine([*RUN, "--estimator", "grpo", "--trainer.critic-lr", "1e-4"], scan()).findings
    assert [(finding.level, finding.code) for finding in findings] == [("warning", "FSDP1")]
    assert findings[0].because[0].origin == "--trainer.critic-lr"


def test_a_bound_on_passes_that_the_critic_does_not_make_is_a_warning() -> None:
    argv = (*RUN, "--estimator", "gae", "--trainer.critic-value-clip", "0.1")
    findings = examine(argv, scan()).findings
    assert [(finding.level, finding.code) for finding in findings] == [("warning", "FSDP4")]
    assert examine([*argv, *findings[0].fix.split()], scan()).findings == ()


def recipes() -> dict[str, str]:
    """Name to flags, of docs/algorithms.md; a line that begins with a flag goes on with the recipe above it."""
    text = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for line in text.partition("Some whole recipes:")[2].partition("##")[0].splitlines():
        name, dashes, flags = line.strip().partition("--")
        if dashes:
            name = name.strip() or list(found)[-1]
            found[name] = f"{found.get(name, '')} --{flags}"
    return found


@pytest.mark.parametrize("name", ["GRPO", "Dr. GRPO", "DAPO", "GSPO", "CISPO", "PPO", "FlashREINFORCE"])
def test_recipes_of_the_documentation_are_sound(name: str) -> None:
    assert errors(*recipes()[name].split()) == []
