"""How much one session may ask for. Pure counting; the caller brings the time."""

from __future__ import annotations

from attrs import define

from molt_plugin_gateway.exchange import BadRequest


@define(kw_only=True)
class Limits:
    """None is without limit."""

    max_requests: int
    max_tokens: int | None
    """Sampled tokens. Requests in flight count when they end, so parallel ones may exceed it together."""
    max_s: float | None
    num_requests: int = 0
    num_tokens: int = 0

    def admit(self, num_samples: int, *, age_s: float) -> int | None:
        """Count a request for so many samples; returns how many tokens are left.

        Raises:
            BadRequest: the session has used up what it may.
        """
        if self.max_s is not None and age_s >= self.max_s:
            raise _exceeded(f"time: it has been open for {age_s:.0f} s of {self.max_s:g} s", "max-session-s")
        if self.num_requests + num_samples > self.max_requests:
            raise _exceeded(
                f"requests: {self.num_requests} of {self.max_requests} were made, {num_samples} more are asked for",
                "max-requests",
            )
        if self.max_tokens is not None and self.num_tokens >= self.max_tokens:
            raise _exceeded(
                f"tokens: {self.num_tokens} of {self.max_tokens} were sampled", "max-session-tokens"
            )
        self.num_requests += num_samples
        return None if self.max_tokens is None else self.max_tokens - self.num_tokens

    def sampled(self, num_tokens: int) -> None:
        self.num_tokens += num_tokens


def _exceeded(what: str, option: str) -> BadRequest:
    return BadRequest(
        f"This session is over its limit of {what} (--gateway.{option}).", code="limit_exceeded"
    )
