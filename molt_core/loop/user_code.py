"""Calls of foreign code in a worker: off the event loop, within a deadline, its errors the rollout's own.

In go functions of environments, graders and agents; out come their results, checked. Whatever
they do becomes `Excluded`; only a lost engine (RunError) goes through, because it concerns the run.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from molt_core.api.environment import Score
from molt_core.errors import RunError
from molt_core.experience import Outcome

UNWIND_S: Final = 20.0
"""For foreign code to end after it was cancelled (an agent ends its subprocesses then)."""


class Excluded(Exception):
    """This rollout does not train; carries outcome and reason, the cause as its `__cause__`."""

    def __init__(self, outcome: Outcome, reason: str, detail: str) -> None:
        self.outcome = outcome
        self.reason = reason
        self.detail = detail
        super().__init__(detail)


def failed(reason: str, detail: str) -> Excluded:
    return Excluded(Outcome.FAILED, reason, detail)


async def user_code(
    reason: str, function: Callable[..., Any], *args: object, timeout_s: float | None = None
) -> Any:
    """Call a plugin's or user's function, blocking or async.

    Raises:
        Excluded: it raised, or gave no result within `timeout_s`.
        RunError: an engine is gone.
    """
    calling = asyncio.create_task(_call(function, *args))
    # looked at, so that asyncio does not complain of one that was left behind
    calling.add_done_callback(lambda call: call.cancelled() or call.exception())
    try:
        done, _ = await asyncio.wait({calling}, timeout=timeout_s)
    finally:
        if not calling.done():
            calling.cancel()
            # it may refuse to end; the rollout does not wait for it for ever
            await asyncio.wait({calling}, timeout=UNWIND_S)
    if not done:
        raise failed("timeout", f"no result of {_name(function)} within {timeout_s:g} s (env_timeout_s)")
    try:
        return calling.result()
    except RunError:
        raise
    # isolation point: user code may raise anything, and it concerns this rollout alone
    except Exception as error:
        raise failed(reason, f"{type(error).__name__}: {error} {_place(error)}".rstrip()) from error


async def _call(function: Callable[..., Any], *args: object) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    result = await _in_thread(function, *args)
    return await result if isinstance(result, Awaitable) else result


async def _in_thread(function: Callable[..., Any], *args: object) -> Any:
    """Run blocking code on a thread of its own.

    Not on a pool's: code that hangs would keep its thread from the others, and the process from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not done.done():
            set_outcome(outcome)

    def run() -> None:
        try:
            outcome = (done.set_result, context.run(function, *args))
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            # asyncio can't carry a StopIteration, and SystemExit would end the loop
            ordinary = isinstance(error, Exception) and not isinstance(error, StopIteration)
            outcome = (done.set_exception, error if ordinary else RuntimeError(f"raised {error!r}"))
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=run, name=_name(function), daemon=True).start()
    return await done


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _place(error: Exception) -> str:
    """`(file:line)` of the innermost frame of the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace else ""


def score_of(graded: object, who: str = "the grader", reason: str = "reward_error") -> Score:
    """Check a reward. None, NaN and infinite abstain; another type is an error.

    Raises:
        Excluded: there is no reward.
    """
    score = graded if isinstance(graded, Score) else Score(reward=_number(graded, who, reason))
    reward = _number(score.reward, who, reason)
    if reward is None:
        raise Excluded(Outcome.ABSTAINED, "abstained", f"{who} returned None")
    if not math.isfinite(reward):
        raise Excluded(Outcome.ABSTAINED, "reward_not_finite", f"{who} returned {reward}")
    return Score(reward=reward, info=numbers_of(score.info, who, reason))


def numbers_of(info: Mapping[str, Any], who: str, reason: str) -> dict[str, float]:
    """Numbers worth a metric, as plain floats."""
    if not isinstance(info, Mapping):
        raise failed(reason, f"the info of {who} is {info!r}, wanted numbers by name")
    checked = {str(key): _number(value, f"{who} in info {key!r}", reason) for key, value in info.items()}
    return {key: value for key, value in checked.items() if value is not None}


def _number(value: object, who: str, reason: str) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)  # type: ignore[arg-type]  # numpy and torch scalars have __float__
    except (TypeError, ValueError) as error:
        wanted = "a number, a Score or None"
        raise failed(
            reason, f"{who} returned {value!r} of type {type(value).__name__}, wanted {wanted}"
        ) from error
