"""Runs in the Python that has verifiers: loads one environment, then answers requests, one JSON object a line.

    python driver.py ID ARGS_JSON

On stdout first `{"ready": {...}}` or `{"error": "..."}`; then for each request `{"id", ...}` on stdin a line
with its `id` and either `result` or `error`. Requests are `rows` (of a split) and `rollout`;
`cancel` ends one. It ends with its stdin. Uses nothing of Molt, and no Python newer than 3.10.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import traceback
from typing import Any, TextIO

HELD_OUT = 5
"""Of an environment without rows for evaluation, one row in this many is kept for it."""


class Driver:
    def __init__(self, env: Any, out: TextIO) -> None:
        self.env = env
        self._out = out
        self._running: dict[int, asyncio.Task[None]] = {}
        self._splits: dict[str, list[Any]] = {}

    def send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message, default=str) + "\n")
        self._out.flush()

    def receive(self, line: bytes) -> None:
        request = json.loads(line)
        if "cancel" in request:
            task = self._running.get(request["cancel"])
            if task is not None:
                task.cancel()
            return
        task = asyncio.ensure_future(self._answer(request))
        self._running[request["id"]] = task
        task.add_done_callback(lambda _task: self._running.pop(request["id"], None))

    async def _answer(self, request: dict[str, Any]) -> None:
        try:
            result = await getattr(self, "do_" + request["do"])(request)
        except asyncio.CancelledError:
            return
        # whatever an environment raises concerns this request only
        except Exception as problem:  # noqa: BLE001
            trace = traceback.extract_tb(problem.__traceback__)[-1]
            place = f"({trace.filename}:{trace.lineno})"
            self.send({"id": request["id"], "error": f"{type(problem).__name__}: {problem} {place}"})
            return
        self.send({"id": request["id"], "result": result})

    async def do_rows(self, request: dict[str, Any]) -> dict[str, Any]:
        rows = await asyncio.to_thread(self._rows, request["split"])
        start, count = request["start"], request["count"]
        return {"rows": rows[start : start + count], "num_rows": len(rows)}

    def _rows(self, split: str) -> list[Any]:
        if split not in self._splits:
            has_own = self.env.eval_dataset is not None or getattr(self.env, "eval_dataset_source", None)
            if split == "eval" and has_own:
                rows = [dict(row) for row in self.env.get_eval_dataset()]
            else:
                rows = [dict(row) for row in self.env.get_dataset()]
                if not has_own:
                    rows = [row for n, row in enumerate(rows) if (n % HELD_OUT == 0) == (split == "eval")]
            self._splits[split] = rows
        return self._splits[split]

    async def do_rollout(self, request: dict[str, Any]) -> dict[str, Any]:
        from verifiers.clients import resolve_client
        from verifiers.types import ClientConfig

        variable = f"MOLT_VERIFIERS_KEY_{request['id']}"
        os.environ[variable] = request["api_key"]
        try:
            config = ClientConfig(
                client_type="openai_chat_completions", api_base_url=request["base_url"], api_key_var=variable,
                timeout=request["timeout_s"], max_retries=2,
            )  # fmt: skip
            client = resolve_client(config)
        finally:
            del os.environ[variable]
        try:
            # sampling is the gateway's to set
            output = await self.env.run_rollout(request["row"], client, request["model"], {})
        finally:
            await client.close()
        metrics = {k: v for k, v in (output.get("metrics") or {}).items() if isinstance(v, (int, float))}
        return {
            "reward": output.get("reward"),
            "truncated": bool(output.get("is_truncated"))
            or output.get("stop_condition") == "timeout_reached",
            "metrics": metrics,
            "failure": describe(output.get("error")),
        }


def describe(error: Any) -> str:
    """An error that the environment caught, in words; empty where there is none."""
    if isinstance(error, dict):
        error = error.get("error_chain_repr") or error.get("error") or error
    return "" if error is None else str(error)


def load(env_id: str, args: dict[str, Any]) -> tuple[Any, str]:
    """The environment, or why there is none."""
    try:
        import verifiers
    except ImportError as problem:
        return None, f"{sys.executable} has no verifiers: {problem}; install verifiers==0.1.14 there"
    version = getattr(verifiers, "__version__", "of unknown version")
    try:
        from verifiers import load_environment
        from verifiers.types import ClientConfig  # noqa: F401 - asked for, because older ones lack it
    except ImportError:
        wanted = "an environment of 0.1, as verifiers==0.1.14 has it"
        return (
            None,
            f"verifiers {version} has neither load_environment nor clients of its own; wanted {wanted}",
        )
    try:
        env = load_environment(env_id, **args)
    # of a stranger's package: anything
    except Exception as problem:  # noqa: BLE001
        cause = problem.__cause__
        because = f" ({type(cause).__name__}: {cause})" if cause is not None else ""
        return None, f"{type(problem).__name__}: {problem}{because}"
    if getattr(env, "requires_group_rollouts", False):
        return None, f"{env_id} grades a group of rollouts together, which is not supported"
    return env, ""


async def serve(driver: Driver) -> None:
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(driver.receive, line)
        os._exit(0)  # whoever asked is gone, and so is what runs here

    threading.Thread(target=read, daemon=True).start()
    await asyncio.Event().wait()


def main(env_id: str, args: str) -> None:
    # what packages print must not get between the answers
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    env, problem = load(env_id, json.loads(args))
    driver = Driver(env, out)
    if env is None:
        driver.send({"error": problem})
        return
    driver.send({"ready": {"python": sys.executable}})
    asyncio.run(serve(driver))


if __name__ == "__main__":
    main(*sys.argv[1:])
