"""A trace under pseudonyms has the same findings, and nothing that says whose it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS
from hkvtool.model.jsonl import read_jsonl, write_line
from hkvtool.model.keys import NAME, NAMES, STR
from hkvtool.model.pseudonyms import Pseudonyms
from hkvtool.model.rules import RULES
from hkvtool.model.shipped import shipped

STAYS = {
    "actor", "pool", "group", "engine", "evidence", "kernel", "name", "serves", "table", "from",
    "to", "src_group", "dst_group", "codec", "lane", "format", "beside",
}  # fmt: skip
"""Names of the engine's own parts."""


def private(events: list[Event]) -> list[Event]:
    change = Pseudonyms()
    return [change(event) for event in events]


def told(events: list[Event]) -> Any:
    """What a check says but for the names in its sentences; of an event that makes no sense only
    that it does not."""
    pytest.importorskip("numpy")
    from hkvtool.analyzers import check

    report = check(events).as_json()
    kept = ("id", "code", "severity", "events", "check", "use", "pool", "group", "blocks", "tokens")
    found = [
        {k: f.get(k) for k in (kept[:5] if f["code"] == "HKV905" else (*kept, "step", "cause"))}
        for f in report["findings"]
    ]
    lost = [
        {k: v for k, v in each.items() if k != "requests"}
        for each in report["ratios"].pop("lost_by", [])
    ]
    return found, report["not_evaluable"], report["summary"], report["ratios"], lost


def test_every_case_has_the_same_findings(
    case: Any, read_events: Callable[..., list[Event]]
) -> None:
    for arm in case.arms:
        events = read_events(arm)
        assert told(private(events)) == told(events)


@pytest.mark.parametrize("arm", ["fires", "silent"])
@pytest.mark.parametrize("code", sorted(RULES))
def test_every_rule_s_example_too(code: str, arm: str) -> None:
    with Path(str(shipped("rules", f"{code}.{arm}.jsonl"))).open("rb") as stream:
        events = list(read_jsonl(stream))
    assert told(private(events)) == told(events)


def test_no_name_of_a_request_client_or_hash_is_left() -> None:
    """Every key of every event that may hold a name holds a secret, alone and where others are."""
    secret = re.compile("secret", re.IGNORECASE)
    for spec in EVENTS.values():
        data: dict[str, Any] = {"ev": spec.name, "more": "Secret", "note": "Secret", "ts": 77}
        for name, key in spec.keys.items():
            if name in STAYS or name in data:
                continue
            if key.type in (NAME, STR):
                data[name] = "Secret"
            elif key.type is NAMES:
                data[name] = ["Secret=1", "x=Secret"] if name == "key" else ["Secret"]
            elif key.required and key.type.schema.get("type") == "array":
                data[name] = []
            elif key.required:
                data[name] = key.type.schema.get("enum", [1])[0]
        for _, key in (("", spec.keys[n]) for n in spec.required if n not in data):
            data[key.name] = "gpu"
        out = private([Event.of(1, data)])[0]
        left = json.loads(write_line(out))
        if "key" in left:
            assert left.pop("key") in (["Secret=k1", "x=k2"],)
        assert not secret.search(json.dumps(left)), left


def test_equal_names_stay_equal_and_owners_are_requests() -> None:
    lines: list[dict[str, Any]] = [
        {"ev": "alloc", "group": "kv", "blocks": [1], "req": "alice", "ts": 1_000_005},
        {"ev": "dispatch", "step": 4, "reqs": ["bob", "alice"], "ts": 1_000_009},
        {"ev": "touch", "pool": "gpu", "blocks": [1], "owner": "alice"},
        {"ev": "lookup", "req": 7, "hit": {"kv": 16}, "hashes": {"kv": ["a", "b"]}},
        {"ev": "publish", "group": "kv", "blocks": [1], "hashes": ["b"], "reason": "Alice asked"},
        {"ev": "unpublish", "group": "kv", "hashes": ["b"], "reason": "evict"},
    ]
    out = [dict(e.data) for e in private([Event.of(i, d) for i, d in enumerate(lines, 1)])]
    assert out[0] == {"ev": "alloc", "group": "kv", "blocks": [1], "req": "r1", "ts": 0}
    assert out[1] == {"ev": "dispatch", "step": 4, "reqs": ["r2", "r1"], "ts": 4}
    assert out[2]["owner"] == "r1" and out[3]["req"] == 3
    assert out[3]["hashes"] == {"kv": ["h1", "h2"]}
    assert out[4]["hashes"] == ["h2"] and "reason" not in out[4]
    assert out[5]["reason"] == "evict"


def test_what_is_no_event_keeps_its_place_and_none_of_its_words(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(b'{"ev": "trace", "format": "hkv/1"}\n{"ev": "Secret"}\nSecret\n'
                     b'{"ev": "alloc", "blocks": "Secret"}\n')  # fmt: skip
    with file.open("rb") as stream:
        events = list(read_jsonl(stream))
    out = private(events)
    assert [e.pos for e in out] == [e.pos for e in events]
    assert [e.problem is not None for e in out] == [e.problem is not None for e in events]
    assert not any("Secret" in write_line(e) for e in out)
