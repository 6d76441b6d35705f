"""What a harness finds when it starts, what is made of its end, and what is left afterwards."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from molt_plugin_agents.command import CommandAgent
from molt_plugin_agents.spec import CommandOptions

from molt_core.api.agent import AgentTask, Result

LOOK = """
import json, os, pathlib, sys
files = {str(path): path.read_text() for path in pathlib.Path().rglob("*") if path.is_file()}
seen = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "files": files, "stdin": sys.stdin.read()}
print(json.dumps(seen))
"""


@frozen
class Session:
    """A session's addresses; the commands of these tests don't call them."""

    base_url: str = "http://127.0.0.1:9/s/x/v1"
    anthropic_base_url: str = "http://127.0.0.1:9/s/x"
    api_key: str = "key"
    model: str = "policy"
    num_samples: int = 1


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir()), "a folder is left behind"


def run(
    code: str, *words: str, row: Mapping[str, Any] | None = None, timeout_s: float = 60.0, num_samples: int = 1,
    **options: Any,
) -> tuple[Result, dict[str, str]]:  # fmt: skip
    """Result, and the files of the workspace as a grader would find them."""
    task = AgentTask(
        task_id="train/000001",
        row=row or {},
        messages=({"role": "user", "content": "say {hi}"},),
        timeout_s=timeout_s,
    )
    agent = CommandAgent(CommandOptions(**{"argv": (sys.executable, "-c", code, *words), **options}))
    try:
        result = asyncio.run(agent.run(task, Session(num_samples=num_samples)))  # type: ignore[arg-type]
        assert result.workspace is not None
        return result, {path.name: path.read_text() for path in result.workspace.iterdir() if path.is_file()}
    finally:
        agent.close()


def look(*words: str, **given: Any) -> dict[str, Any]:
    text = run(LOOK, *words, **given)[0].text
    assert text is not None
    return json.loads(text)  # type: ignore[no-any-return]


def test_placeholders_are_filled_with_the_task_the_session_and_its_folders(temporary: Path) -> None:
    seen = look("{prompt}", "{base_url}", "{n}", "{{n}}", "{task_id}", "{workspace}", row={"n": {"a": 1}})
    workspace = seen["argv"].pop()
    assert seen["argv"] == ["say {hi}", "http://127.0.0.1:9/s/x/v1", '{"a": 1}', "{n}", "train/000001"]
    assert workspace == seen["cwd"]
    assert Path(workspace).parent == temporary


def test_its_environment_is_small_and_holds_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("MINE", "passed on")
    env = look(env=("URL={base_url}", "MINE"))["env"]
    assert (env["URL"], env["MINE"], env["OPENAI_API_KEY"]) == (
        "http://127.0.0.1:9/s/x/v1",
        "passed on",
        "key",
    )
    assert "secret" not in env.values()
    assert env["HOME"] != str(Path.home())
    assert env["TMPDIR"].startswith(env["HOME"])


def test_the_prompt_may_come_on_stdin() -> None:
    assert look(stdin="{prompt}\n")["stdin"] == "say {hi}\n"
    assert look()["stdin"] == ""


def test_its_workspace_is_a_copy_of_a_folder_that_a_column_may_name_and_the_rows_own_files(
    tmp_path: Path,
) -> None:
    (tmp_path / "repo" / "src").mkdir(parents=True)
    (tmp_path / "repo" / "src" / "a.py").write_text("a")
    (tmp_path / "repo" / "b").write_text("old")
    row = {"name": "repo", "files": {"b": "new", "c/d.json": {"e": 1}}}
    seen = look(workspace=str(tmp_path / "{name}"), row=row)
    assert seen["files"] == {"src/a.py": "a", "b": "new", "c/d.json": '{"e": 1}'}
    assert (tmp_path / "repo" / "b").read_text() == "old"


@pytest.mark.parametrize("files", [{"../x": "1"}, {"/etc/x": "1"}, ["x"]])
def test_files_outside_the_workspace_are_refused(files: Any) -> None:
    with pytest.raises(ValueError, match="column files"):
        run("", row={"files": files})


def test_the_workspace_is_left_for_the_grader() -> None:
    result, files = run("open('made', 'w').write('x'); print('done\\n')")
    assert files == {"made": "x"}
    assert (result.text, result.reward, result.truncated) == ("done", None, False)


@pytest.mark.parametrize(
    ("answer", "text"),
    [("stdout", "out"), ("reply", None), ("a.txt", "file"), ("{home}/b.txt", "home"), ("none", "")],
)
def test_the_answer_is_its_output_the_last_reply_or_a_file(answer: str, text: str | None) -> None:
    code = "import os, pathlib; print('out'); pathlib.Path('a.txt').write_text('file')\n"
    code += "pathlib.Path(os.environ['HOME'], 'b.txt').write_text('home')"
    assert run(code, answer=answer)[0].text == text


def test_an_exit_code_is_graded_or_fails_as_the_option_says() -> None:
    code = "import sys; print('partly'); print('because', file=sys.stderr); sys.exit(3)"
    graded, _ = run(code)
    assert (graded.text, graded.info["command_failed"]) == ("partly", 1.0)
    with pytest.raises(RuntimeError, match=r"ended with exit code 3; its stderr ended: because"):
        run(code, on_exit_code="fail")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed by signal 9; it printed nothing"),
        (
            "import sys; print('sh: tool: not found'); sys.exit(127)",
            "exit code 127; its stdout ended: sh: tool",
        ),
    ],
)
def test_what_never_ran_or_was_killed_fails_whatever_the_option(
    code: str, words: str, temporary: Path
) -> None:
    with pytest.raises(RuntimeError, match=words):
        run(code)


@pytest.mark.parametrize("code", ["print('no key')", "import sys; sys.exit('no key')"])
def test_one_that_never_asked_the_policy_fails_with_what_it_said(code: str) -> None:
    with pytest.raises(
        RuntimeError, match=r"never asked the policy, and ended with .; its std(out|err) ended: no key"
    ):
        run(code, num_samples=0)


def test_one_that_reached_its_deadline_is_truncated_and_graded() -> None:
    result, _ = run("import time; print('so far', flush=True); time.sleep(60)", timeout_s=2.5, grace_s=0.1)
    assert (result.text, result.truncated, result.info["command_timed_out"]) == ("so far", True, 1.0)


def test_what_can_not_be_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="'/no/such' could not be started: No such file"):
        run("", argv=("/no/such", "x"))
