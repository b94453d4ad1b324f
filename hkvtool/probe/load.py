"""What a probe may cost the server: requests, tokens, time, rate, and how many at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


class Spent(Exception):
    """A limit is reached: what was compared until now is all there is."""


@dataclass(frozen=True)
class Limits:
    """`rate` is requests a second, 0 for none; the others are never passed."""

    requests: int = 10_000
    tokens: int = 5_000_000
    seconds: float = 3600.0
    concurrency: int = 4
    rate: float = 0.0


class Load:
    """Counts what is sent, and holds back or stops what would pass a limit."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.limits = limits
        self.requests = self.tokens = self.failed = 0
        self._clock, self._sleep = clock, sleep
        self._began = clock()
        self._next = self._began
        self._lock = threading.Lock()
        self.slots = threading.BoundedSemaphore(max(1, limits.concurrency))

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.limits.seconds - self.seconds

    def room(self, requests: int, tokens: int) -> None:
        """See that so much more is within the limits. Raises Spent."""
        limits = self.limits
        if self.requests + requests > limits.requests:
            raise Spent(f"{limits.requests:,} requests were sent (--max-requests)")
        if self.tokens + tokens > limits.tokens:
            raise Spent(f"{self.tokens:,} tokens were sent or asked for (--max-tokens)")
        if self.left <= 0:
            raise Spent(f"{limits.seconds:,.0f} seconds have passed (--max-time)")

    def take(self, tokens: int) -> None:
        """Count one request, and wait for its turn. Raises Spent."""
        with self._lock:
            self.room(1, tokens)
            self.requests += 1
            self.tokens += tokens
            now = self._clock()
            due = max(now, self._next)
            if self.limits.rate > 0:
                self._next = due + 1 / self.limits.rate
        if due > now:
            self._sleep(due - now)

    def as_json(self) -> dict[str, object]:
        return {
            "requests": self.requests, "tokens": self.tokens, "failed": self.failed,
            "seconds": round(self.seconds, 3),
        }  # fmt: skip
