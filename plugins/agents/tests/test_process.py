"""Programs end when they should, and nothing of them is left; every test starts real processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from molt_plugin_agents.process import Finished, end_orphans, run_process

PYTHON = [sys.executable, "-c"]


def run(tmp_path: Path, code: str, **given: object) -> Finished:
    return asyncio.run(start(tmp_path, code, **given))


async def start(tmp_path: Path, code: str, **given: object) -> Finished:
    options = {"stdin": "", "timeout_s": 30.0, "grace_s": 5.0, "max_output": 1000, "env": {}, **given}
    return await run_process([*PYTHON, code], cwd=tmp_path, **options)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    """Whether a process that was killed is really gone; its reaping is the kernel's and init's matter."""
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


def test_it_gets_its_stdin_folder_and_variables_and_nothing_else_of_ours(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.stdin.read(), os.getcwd(), 'PATH' in os.environ, os.environ['A'])"
    assert run(tmp_path, code, stdin="héllo", env={"A": "b"}).stdout == f"héllo {tmp_path} False b\n"


def test_without_stdin_it_reads_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_one_that_does_not_read_its_stdin_is_no_trouble(tmp_path: Path) -> None:
    assert run(tmp_path, "print(1)", stdin="x" * 10**6).stdout == "1\n"


def test_of_much_output_the_end_is_kept(tmp_path: Path) -> None:
    finished = run(tmp_path, "import sys\nprint('a' * 10**6 + 'b')\nsys.exit(3)", max_output=10)
    assert (finished.stdout, finished.exit_code, finished.timed_out) == ("aaaaaaaab\n", 3, False)


def test_at_the_deadline_it_may_end_by_itself(tmp_path: Path) -> None:
    code = "import signal, sys, time\n"
    code += "signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)))\n"
    code += "print('up', flush=True)\ntime.sleep(60)"
    finished = run(tmp_path, code, timeout_s=1.0)
    assert finished.timed_out
    assert finished.stdout.endswith("bye\n")
    assert finished.exit_code == 0


def test_one_that_ignores_the_deadline_is_killed_with_its_children(tmp_path: Path) -> None:
    code = "import os, signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    code += "print(child.pid, flush=True)\ntime.sleep(60)"
    finished = run(tmp_path, code, timeout_s=1.0, grace_s=0.2)
    assert (finished.timed_out, finished.exit_code) == (True, -9)
    assert gone(int(finished.stdout))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds its own by /proc")
def test_a_daemon_that_outlives_it_is_killed_though_it_left_the_group_and_holds_the_pipe(
    tmp_path: Path,
) -> None:
    code = "import subprocess, sys\n"
    code += "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
    code += "print(child.pid)"
    finished = run(tmp_path, code)
    assert (finished.timed_out, finished.exit_code) == (False, 0)
    assert gone(int(finished.stdout))


def test_cancelling_kills_it_and_waits(tmp_path: Path) -> None:
    async def main() -> None:
        code = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nos.rename('pid', 'ready')\ntime.sleep(60)"
        running = asyncio.create_task(start(tmp_path, code))
        while not (tmp_path / "ready").exists():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not is_alive(int((tmp_path / "ready").read_text()))

    asyncio.run(main())


def test_what_can_not_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(
            run_process(["/no/such"], cwd=tmp_path, env={}, stdin="", timeout_s=1, grace_s=1, max_output=9)
        )
    assert not any(os.scandir(tmp_path))


ABANDONS = """
import asyncio, pathlib, sys
sys.path.insert(0, {tests!r})
from test_process import start
asyncio.run(start(pathlib.Path({folder!r}), {code!r}))
"""
WRITES_ITS_PID_AND_STAYS = (
    "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(300)"
)


def test_what_a_killed_process_left_is_ended_by_the_next_one_and_what_a_living_one_runs_is_not(
    tmp_path: Path,
) -> None:
    def abandon(name: str) -> tuple[subprocess.Popen[bytes], int]:
        (folder := tmp_path / name).mkdir()
        code = ABANDONS.format(
            tests=str(Path(__file__).parent), folder=str(folder), code=WRITES_ITS_PID_AND_STAYS
        )
        owner = subprocess.Popen([*PYTHON, code])
        deadline = time.monotonic() + 60
        while not (folder / "pid").exists() or not (folder / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return owner, int((folder / "pid").read_text())

    (killed, orphan), (living, kept) = abandon("killed"), abandon("living")
    try:
        killed.kill()
        killed.wait()
        assert is_alive(orphan)
        end_orphans.__wrapped__()
        assert gone(orphan)
        assert is_alive(kept)
    finally:
        living.kill()
        living.wait()
        end_orphans.__wrapped__()
    assert gone(kept)
