"""A served SGLang, recorded from its start and from the middle: what it tells its clients of each
request is what the trace says."""

from __future__ import annotations

import importlib.metadata
import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from engines.served import end

from engines_sglang.sglang_served import missing, served
from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.recording import read_recording
from hkvtool.store.derive_reads import derive_reads


def unplugged() -> bool:
    """Whether SGLang would not find hkvtool's plugin here, as from a checkout."""
    found = importlib.metadata.entry_points(group="sglang.srt.plugins")
    return "hkvtool" not in {entry.name for entry in found}


pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(missing()), reason=f"its server needs {', '.join(missing())}"),
    pytest.mark.skipif(unplugged(), reason="hkvtool is not installed here, only found"),
]


class Client:
    """Asks, several requests at a time, and keeps what it is told was cached of each."""

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.rng = url, Random(seed)
        self.heads = [self._words(64, 400) for _ in range(6)]
        self.cached: dict[str, int] = {}

    def _words(self, least: int, most: int) -> list[str]:
        draw = self.rng.randrange
        return [f"w{draw(10, 256)}" for _ in range(draw(least, most))]

    def ask(self, count: int) -> list[str]:
        """The names of so many requests, once they are answered."""
        prompts = []
        for _ in range(count):
            head = self.rng.choice(self.heads)
            prompts.append([*head[: self.rng.randrange(32, len(head))], *self._words(4, 20)])
        more = [self.rng.randrange(1, 24) for _ in prompts]
        with ThreadPoolExecutor(4) as threads:
            return list(threads.map(self._one, prompts, more))

    def _one(self, words: list[str], more: int) -> str:
        body = {"model": "x", "prompt": " ".join(words), "max_tokens": more, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=120) as answer:
            told = json.load(answer)
        details = told["usage"].get("prompt_tokens_details") or {}
        self.cached[told["id"]] = details.get("cached_tokens", 0)
        return str(told["id"])


def same(client: Client, events: list[Event], names: list[str]) -> None:
    """These requests are in the trace, each from the token to which its client was told that it was
    cached, and to its end."""
    went_on = {e["req"]: e["at"] for e in events if e.ev == "resume"}
    over = {e["req"] for e in events if e.ev == "finish"}
    assert {n: went_on.get(n) for n in names} == {n: client.cached[n] for n in names}
    assert set(names) <= over


def quiet(events: list[Event]) -> Any:
    report = check(derive_reads(events))
    assert not report.findings, report.findings[0]
    return report


def test_recorded_from_its_start(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with served(tmp_path, HKV_RECORD=str(folder)) as server:
        client = Client(server.url, 1)
        names = client.ask(40)
        end(server.process)
    events = list(read_recording(folder))
    same(client, events, names)
    assert quiet(events).ratios.matched == sum(client.cached.values()) > 1000


def test_recorded_from_the_middle(tmp_path: Path) -> None:
    folder = tmp_path / "t.hkv"
    with served(tmp_path, HKV_RECORD=str(folder)) as server:
        client = Client(server.url, 2)
        (folder / "off").touch()
        client.ask(20)
        (folder / "off").unlink()
        until = time.monotonic() + 60
        described = 0
        while not described and time.monotonic() < until:
            # It is gone on with where the scheduler begins its next step.
            client.ask(1)
            described = sum(e.ev == "state" for e in read_recording(folder))
        assert described
        names = client.ask(40)
        end(server.process)
    events = list(read_recording(folder))
    same(client, events, names)
    quiet(events)
    assert sum(client.cached[name] for name in names) > 1000
