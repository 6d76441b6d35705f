"""What code in the sandbox may do and what it may not; every test starts the real process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from molt_plugin_envs import sandbox_child
from molt_plugin_envs.python_sandbox import Output, run_python
from molt_plugin_envs.spec import PythonToolOptions

pytestmark = pytest.mark.skipif(bool(sandbox_child.gap()), reason=sandbox_child.gap() or "confined")


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    assert not list(tmp_path.glob("molt-python-*")), "the folder of a call stays behind"


def run(code: str, **options: object) -> Output:
    return asyncio.run(run_python(code, PythonToolOptions(**options)))


def test_what_is_printed_comes_back_in_order_from_both_streams() -> None:
    code = "import sys\nprint('a', flush=True)\nprint('b', file=sys.stderr, flush=True)\nprint('c')"
    assert run(code) == Output("a\nb\nc", False)


def test_it_has_the_standard_library_and_a_folder_of_its_own() -> None:
    code = "import math, json, fractions\nopen('f', 'w').write('x')\nprint(math.gcd(4, 6), open('f').read())"
    assert run(code) == Output("2 x", False)


def test_an_error_is_shown_without_our_own_frames() -> None:
    output = run("def f():\n    return 1 / 0\nf()")
    assert output.failed
    assert output.text.splitlines() == [
        "Traceback (most recent call last):",
        '  File "<python>", line 3, in <module>',
        '  File "<python>", line 2, in f',
        "ZeroDivisionError: division by zero",
    ]
    assert "SyntaxError" in run("print('a'").text
    assert run("import sys; sys.exit(3)") == Output("", True)


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import os; os.fork()",
        "import subprocess; subprocess.run('true')",
        "import os; os.execv('/bin/true', ['true'])",
        "import threading; threading.Thread(target=print).start()",
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.kill(-1, 9)",
        "import os; os.listdir('/')",
        "import os; os.chmod('.', 0o777)",
        "open('/etc/passwd')",
        "open(f'/proc/{__import__(\"os\").getppid()}/environ')",
        f"open({__file__!r})",
        f"open({os.__file__!r}, 'a')",
        "open('/tmp/molt-was-here', 'w')",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (999, 999))",
    ],
)
def test_it_may_not(code: str) -> None:
    output = run(code)
    assert output.failed, output.text
    assert output.text.splitlines()[-1].startswith(("PermissionError", "RuntimeError", "ValueError"))
    assert not os.path.exists("/tmp/molt-was-here")


def test_it_sees_none_of_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_KEY", "s3cret")
    output = run("import os; print(sorted(os.environ), os.environ)")
    assert "s3cret" not in output.text
    assert not output.failed


@pytest.mark.parametrize(
    ("code", "options", "reason"),
    [
        ("import time; time.sleep(60)", {"timeout_s": 0.5}, "took longer than 0.5 s"),
        ("while True: pass", {"cpu_s": 1}, "used more CPU than 1 s"),
        ("while True: print('y' * 1000)", {"max_output": 50}, "printed more than 50 characters"),
    ],
)
def test_what_goes_on_for_ever_is_stopped_and_told_why(
    code: str, options: dict[str, object], reason: str
) -> None:
    output = run(code, **options)
    assert output.failed
    assert output.text.endswith(f"[stopped: {reason}]")
    assert len(output.text) < 200


@pytest.mark.parametrize(
    ("code", "options", "words"),
    [
        ("x = 'a' * 10**9", {"memory_mb": 128}, "MemoryError"),
        ("open('f', 'w').write('a' * 2**21)", {"file_mb": 1}, "File too large"),
    ],
)
def test_memory_and_files_have_limits(code: str, options: dict[str, object], words: str) -> None:
    assert words in run(code, **options).text


def test_cancelling_ends_the_process_and_the_loop_never_waits(tmp_path: Path) -> None:
    async def main() -> None:
        running = asyncio.create_task(
            run_python("open('pid', 'w').close()\nwhile True: pass", PythonToolOptions())
        )
        while not list(tmp_path.glob("molt-python-*/pid")):
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    before = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() <= before
    # the working directory of a process that still ran would be under our folder
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            assert not os.readlink(link).startswith(str(tmp_path))
        except OSError:
            continue


def test_unconfined_it_may_do_what_the_user_may_and_what_it_leaves_running_is_killed(tmp_path: Path) -> None:
    code = "import subprocess, sys\nprocess = subprocess.Popen(['sleep', '60'])\nprint(process.pid)"
    output = run(code, unconfined=True)
    assert not output.failed
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and is_running(int(output.text)):
        time.sleep(0.01)
    assert not is_running(int(output.text))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_it_ends_with_the_worker_that_started_it_however_that_ends() -> None:
    code = (
        "import asyncio; from molt_plugin_envs.python_sandbox import run_python; "
        "from molt_plugin_envs.spec import PythonToolOptions; "
        "asyncio.run(run_python('import time; time.sleep(300)', PythonToolOptions(timeout_s=300)))"
    )
    worker = psutil.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 30
        while not (children := worker.children()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)  # for the child to have confined itself
    finally:
        worker.kill()
        worker.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
