"""Fingerprints of a real engine's blocks: silent while nothing is wrong, and right about which
block it is when something is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.vllm_engine import generate, make_engine
from engines.vllm_offload import Copies
from hkvtool.model.event import Event
from hkvtool.recorder.vllm.attach import attach
from hkvtool.recorder.vllm.fingerprint_choice import FINGERPRINT, MATCH, Choice
from hkvtool.store.derive_reads import derive_reads

OFFLOAD = {
    "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "cpu_bytes_to_use": 1 << 26, "spec_name": "CopiesSpec", "spec_module_path": "engines_copies",
    },
}  # fmt: skip


class Drive:
    """A tiny engine that is recorded with fingerprints, and its worker's bytes."""

    def __init__(self, folder: Path, model: str, **options: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.hooks = attach(self.events.append)
        self.llm = make_engine(folder, model, **options)
        self.rng = random.Random(3)
        self.from_here = 0

    def ask(self, *prompts: list[int]) -> list[int]:
        """Send prompts together; returns how much of each was cached."""
        return [cached for _, cached in generate(self.llm, prompts, 4)]

    def tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(5, 250) for _ in range(count)]

    def published(self, group: str) -> list[int]:
        """The blocks that were last published in a group."""
        told = [e for e in self.events if e["ev"] == "publish" and e["group"] == group]
        return [int(b) for b in told[-1]["blocks"]]

    def flip(self, group: int, block: int) -> None:
        """Change one byte of a block, unseen by the engine."""
        pages = self.hooks.prints._pages
        base, stride, size = pages._groups[group][0]
        with torch.inference_mode():
            pages.buffer[base + block * stride + size // 2] ^= 0x55

    def choose(self, share: str, match: str = "") -> None:
        """Which blocks are read from now on."""
        self.hooks.prints.choice = Choice.of(share, match)

    @property
    def recent(self) -> list[dict[str, Any]]:
        return [e for e in self.events[self.from_here :] if e["ev"] == "fingerprint"]

    def told(self, count: int | None = None) -> list[Event]:
        """The events with what follows from them, as a finding counts them."""
        return list(derive_reads(Event.of(i, e) for i, e in enumerate(self.events[:count], 1)))

    def ends(self, finding: dict[str, Any]) -> list[str]:
        """At which moments the fingerprints of a finding were taken."""
        told = self.told()
        return [str(told[p - 1]["at"]) for p in finding["events"]]

    def moments(self) -> Counter[str]:
        return Counter(e["at"] for e in self.recent)

    def work(self, requests: int, length: int) -> None:
        """Prompts that share heads, four at once."""
        heads = [self.tokens(length) for _ in range(4)]
        for _ in range(0, requests, 4):
            self.ask(*(self.rng.choice(heads) + self.tokens(self.rng.randrange(8, 60))
                       for _ in range(4)))  # fmt: skip


@contextmanager
def driven(folder: Path, model: str, **options: Any) -> Iterator[Drive]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FINGERPRINT, "all")
        patch.delenv(MATCH, raising=False)
        drive = Drive(folder, model, **options)
        try:
            yield drive
        finally:
            drive.hooks.remove()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drive]:
    """Windows and full attention, with a tier below; what each test does comes behind the other's."""
    from vllm.config import KVTransferConfig

    folder = tmp_path_factory.mktemp("fingerprints")
    with driven(folder, "gemma3", kv_transfer_config=KVTransferConfig(**OFFLOAD)) as drive:
        yield drive


@pytest.fixture
def drive(engine: Drive, request: pytest.FixtureRequest) -> Drive:
    engine.from_here = len(engine.events)
    # Whichever tests came before in this process: each asks the same.
    engine.rng = random.Random(request.node.name)
    engine.choose("all")
    return engine


def new_of(findings: Any, drive: Drive) -> list[dict[str, Any]]:
    """What came to light since the test began."""
    assert not drive.hooks.failed
    report = findings(drive.events)
    assert all(n["code"] != "HKV906" for n in report["not_evaluable"])
    before = len(drive.told(drive.from_here))
    return [f for f in report["findings"] if max(f["events"]) > before]


def test_a_right_engine_is_silent(drive: Drive, findings: Any) -> None:
    """Prefix hits and forks, stores and loads, with every block fingerprinted."""
    drive.work(40, 140)
    assert new_of(findings, drive) == []
    assert min(drive.moments()[at] for at in ("publish", "resume", "store", "load")) > 10


@pytest.mark.soak
def test_a_right_engine_is_silent_in_500_requests(drive: Drive, findings: Any) -> None:
    drive.work(500, 140)
    assert [f for f in new_of(findings, drive) if f["severity"] == "error"] == []
    assert min(drive.moments()[at] for at in ("publish", "resume", "store")) > 200


@pytest.mark.parametrize("number", [2, 0], ids=["full", "window"])
def test_bytes_changed_between_publish_and_hit(drive: Drive, findings: Any, number: int) -> None:
    group = [e["group"] for e in drive.events if e["ev"] == "group"][number]
    prompt = drive.tokens(200)
    drive.ask(prompt)
    block = drive.published(group)[-1]
    drive.flip(number, block)
    (cached,) = drive.ask([*prompt[:192], *drive.tokens(20)])
    drive.flip(number, block)
    assert cached == 192
    found = new_of(findings, drive)
    assert [(f["code"], f["group"], f["blocks"]) for f in found] == [("HKV906", group, [block])]
    assert drive.ends(found[0]) == ["publish", "resume"]


def _other_pages(drive: Drive, kind: str, instead: Any, hit: list[int]) -> Any:
    """In the next transfer of a kind, the pages that `instead` makes for the last block of all."""
    original = Copies._pages

    def pages(self: Copies, group: int, block: int) -> list[torch.Tensor]:
        begun = next(e for e in reversed(drive.events) if e["ev"].endswith("_begin"))
        last = begun["ev"] == f"{kind}_begin" and block == begun["blocks"][-1]
        if last and group == 2 and not hit:
            hit.append(block)
            return list(instead(self, group, block))
        return original(self, group, block)

    def zeros(self: Copies, group: int, block: int) -> list[torch.Tensor]:
        return [torch.zeros_like(page) for page in original(self, group, block)]

    def elsewhere(self: Copies, group: int, block: int) -> list[torch.Tensor]:
        return original(self, group, block % 60 + 1)

    instead = {"zeros": zeros, "elsewhere": elsewhere}[instead]
    return pages


def _reload(drive: Drive, prompt: list[int]) -> None:
    """Push a prompt out of the cache, and ask for what is below."""
    for _ in range(12):
        drive.ask(drive.tokens(200))
    (cached,) = drive.ask([*prompt[:192], *drive.tokens(20)])
    assert cached == 192


def test_a_page_dropped_from_a_store(
    drive: Drive, findings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, dropped = drive.tokens(200), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(Copies, "_pages", _other_pages(drive, "store", "zeros", dropped))
        drive.ask(prompt)
    assert dropped
    _reload(drive, prompt)
    found = new_of(findings, drive)
    assert {f["code"] for f in found} == {"HKV906"}
    (load,) = found
    assert drive.ends(load)[:2] == ["publish", "load"]
    (begun,) = [e for e in drive.events[drive.from_here :] if e["ev"] == "load_begin"][-1:]
    assert load["group"] == begun["group"] and set(load["blocks"]) < set(begun["blocks"])


def test_a_load_into_the_wrong_block(
    drive: Drive, findings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, missed = drive.tokens(200), list[int]()
    drive.ask(prompt)
    with monkeypatch.context() as patch:
        patch.setattr(Copies, "_pages", _other_pages(drive, "load", "elsewhere", missed))
        _reload(drive, prompt)
    found = new_of(findings, drive)
    assert {f["code"] for f in found} == {"HKV906"}
    assert missed in [f["blocks"] for f in found if "load" in drive.ends(f)]


def test_a_rate_takes_the_same_content_at_every_place(drive: Drive, findings: Any) -> None:
    drive.choose("0.3")
    head = drive.tokens(140)
    for _ in range(8):
        drive.ask(head + drive.tokens(40), drive.tokens(180))
    read = sum(len(e["blocks"]) for e in drive.recent if e["at"] == "publish")
    told = drive.events[drive.from_here :]
    every = sum(len(e["blocks"]) for e in told if e["ev"] == "publish")
    assert 0.05 < read / every < 0.6
    values: dict[tuple[str, int], set[int]] = {}
    for event in drive.recent:
        for block, value in zip(event["blocks"], event["values"], strict=True):
            values.setdefault((event["group"], block), set()).add(value)
    assert values


def test_only_what_is_looked_for(drive: Drive) -> None:
    drive.choose("off", "prefix=9,8,7,6")
    drive.ask(drive.tokens(100))
    assert drive.recent == []
    drive.ask([9, 8, 7, 6, *drive.tokens(100)])
    drive.ask(drive.tokens(100))
    assert len({e["req"] for e in drive.recent}) == 1


def test_off_reads_nothing(drive: Drive) -> None:
    drive.choose("off")
    drive.ask(drive.tokens(100))
    assert drive.recent == []
