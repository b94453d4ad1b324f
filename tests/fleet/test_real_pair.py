"""Real vLLM engines on one folder, kept as traces: right loads are silent, faults have their names.

`fixtures/engines/vllm-0.32.0-shared-folder`: vLLM 0.32.0 on a CPU, a tiny Gemma 3 with random
weights, its own `ExampleConnector`, every engine a process of its own, recorded under one key with
all blocks fingerprinted. Nothing in them is written by hand; `tests/engines/sharing.py` has the
story and makes them anew. `vllm-0.32.0-shared-tier` the same with `OffloadingConnector`, whose CPU tier
has vLLM's file-system tier below it; the copies between device and CPU tier are made by a stand-in.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hkvtool.cli.app import main
from hkvtool.model.shipped import shipped

PAIR = Path(str(shipped("engines"))) / "vllm-0.32.0-shared-folder"
TIER = PAIR.with_name("vllm-0.32.0-shared-tier")

Asked = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """That each instance has a process of its own is what other tests are about."""
    monkeypatch.setattr(
        "hkvtool.fleet.processes.ask_here", lambda question, fleet, workers: map(question, fleet)
    )


@pytest.fixture
def fleet(tmp_path: Path) -> Callable[..., Path]:
    def of(*names: str, kept: Path = PAIR) -> Path:
        for name in names:
            shutil.copy(kept / f"{name}.jsonl", tmp_path)
        return tmp_path

    return of


def checked(
    run: Asked, folder: Path, *how: str
) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    """The exit code, what was said, and root findings between instances."""
    code, out, _ = run("check", folder, *(how or ("--direct",)), "--format", "json")
    said = json.loads(out)
    return code, said, [f for f in said["findings"] if "against" in f and not f.get("cause")]


def requests(name: str) -> list[str]:
    lines = (PAIR / f"{name}.jsonl").read_text().splitlines()
    return [e["req"] for e in map(json.loads, lines) if e["ev"] == "admit"]


def test_what_was_loaded_rightly_is_said_to_be_right_and_by_what(run: Asked, fleet: Any) -> None:
    code, said, found = checked(run, fleet("store", "load"))
    assert (code, said["findings"], found, said["inconclusive"]) == (0, [], [], [])
    blocks = said["between"]["blocks"]
    assert (blocks["loads"], blocks["right"]) == (6, 6)
    assert said["between"]["compared"] == {"fingerprint": 6, "layout": 6, "weights": 6}
    assert {"HKV103", "HKV105", "HKV906"} <= set(said["between"]["rules"])
    # vLLM tells no inputs of its hashes, and such a connector no place in the folder.
    blind = {one["code"] for one in said["between"]["not_evaluable"]}
    assert blind == {"HKV102", "HKV104", "HKV304", "HKV402", "HKV701", "HKV702"}


def test_other_weights_under_one_hash(run: Asked, fleet: Any) -> None:
    code, _, [found] = checked(run, fleet("store", "other-weights"))
    assert (code, found["code"], found["instance"]) == (1, "HKV105", "other-weights.jsonl")
    assert found["believed"].keys() == found["actual"].keys() == {"weights"}


def test_files_that_changed_places(run: Asked, fleet: Any) -> None:
    code, said, [found] = checked(run, fleet("store", "exchanged"))
    assert (code, found["code"]) == (1, "HKV906")
    assert "those of other content, which store.jsonl exported" in found["message"]
    # The prompt before was loaded as it was stored.
    assert said["between"]["blocks"]["right"] == said["between"]["blocks"]["wrong"] == 3


def test_a_tenants_content_under_another_ones_hash_is_not_silent(run: Asked, fleet: Any) -> None:
    """The connector's key has no salt in it, vLLM's hash has."""
    code, said, found = checked(run, fleet("store", "other-salt"))
    assert (code, found) == (4, [])
    assert said["between"]["blocks"]["unknown_origin"] == 3
    assert any("lacks an input (salt" in why for why in said["inconclusive"])


def test_a_file_that_is_gone_is_a_load_that_failed(run: Asked, fleet: Any) -> None:
    """Its engine dies of it, and what it had to read was not there: none of it counts as loaded."""
    code, said, found = checked(run, fleet("store", "gone"))
    assert (code, found) == (0, [])
    assert said["between"]["blocks"]["failed"] == 3
    assert said["between"]["blocks"]["loads"] == 0
    assert said["between"]["rules"] == []


def test_who_is_hurt_over_all_engines(run: Asked, fleet: Any) -> None:
    """A third engine loads what the second computed from the wrong files."""
    folder = fleet("store", "load", "exchanged", "onward")
    good, bad, goes_on = requests("exchanged")
    [last] = requests("onward")
    told = {}
    for asked in (bad, goes_on, last):
        code, out, _ = run("why", folder, asked, "--direct", "--format", "json")
        [answer] = json.loads(out)
        assert (code, answer["verdict"]) == (1, "read-wrong-state"), asked
        told[asked] = answer["over_all"]
    # Whoever is asked about, it is one fault.
    assert told[bad] == told[goes_on] == told[last]
    by_name = {one["instance"]: one for one in told[bad]["instances"]}
    assert by_name.keys() == {"exchanged.jsonl", "onward.jsonl"}
    hurt = {name: [r["request"] for r in one["requests"]] for name, one in by_name.items()}
    assert hurt == {"exchanged.jsonl": [bad, goes_on], "onward.jsonl": [last]}
    # Three blocks were loaded wrongly, the fourth was computed from them and kept; both engines.
    purge = [one["purge"]["hashes"] for one in by_name.values()]
    assert set(purge[0]) == set(purge[1]) and len(purge[0]) == 4
    for one in by_name.values():
        [held] = one["purge"]["blocks"]
        assert (held["pool"], len(held["blocks"])) == ("gpu", 5)
    code, out, _ = run("why", folder, good, "--direct")
    assert code == 0 and "exonerated" in out


def test_why_of_one_who_is_on_call(run: Asked, fleet: Any) -> None:
    folder = fleet("store", "exchanged", "onward")
    bad = requests("exchanged")[1]
    _, out, _ = run("why", folder, bad, "--direct")
    assert "3 requests in 2 instances" in out
    assert "tokens 0 to 96 of" in out
    assert "in what lies between them" in out
    # Of its own trace alone nothing is to be seen, and it is said what was not looked at.
    code, out, _ = run("why", folder, bad)
    assert code == 0
    assert "judged with --shared, --through or --direct" in out


def test_a_recording_under_a_key_of_its_own_compares_with_nothing(
    run: Asked, fleet: Any, tmp_path: Path
) -> None:
    folder = fleet("store", "load")
    lines = [json.loads(line) for line in (tmp_path / "store.jsonl").read_text().splitlines()]
    for event in lines:
        if "hashes" in event:
            event["hashes"] = [name ^ 1 for name in event["hashes"]]
    (tmp_path / "store.jsonl").write_text("".join(json.dumps(e) + "\n" for e in lines))
    code, said, found = checked(run, folder)
    assert (code, found) == (4, [])
    assert "--hash-key" in said["inconclusive"][0]
    assert main(["fleet", "check", str(folder)]) == 0


THROUGH = ("--through", "offload")


def test_what_lies_below_a_tier_of_each_ones_own_is_known_by_its_hash(
    run: Asked, fleet: Any
) -> None:
    """The two engines' CPU tiers have the same name, and nothing to do with each other."""
    folder = fleet("store", "load", kept=TIER)
    code, said, found = checked(run, folder, *THROUGH)
    assert (code, found, said["inconclusive"]) == (0, [], [])
    assert said["between"]["through"] == ["offload"]
    assert said["between"]["blocks"]["right"] == said["between"]["blocks"]["loads"] == 7
    assert said["between"]["compared"] == {"fingerprint": 7, "layout": 7, "weights": 7}
    # Taken for one pool, by places that are not the same, it is not said to be right.
    code, said, found = checked(run, folder, "--shared", "offload")
    assert (code, found) == (4, [])
    assert "--through" in said["inconclusive"][0]
    code, _, err = run("check", folder, *THROUGH, "--shared", "offload")
    assert code == 2
    assert "--shared or --through, not both" in err


def test_weights_under_one_name(run: Asked, fleet: Any) -> None:
    """vLLM's files go by the model's name and the hash of the tokens: other weights find them."""
    code, said, found = checked(run, fleet("store", "other-weights", kept=TIER), *THROUGH)
    assert (code, {f["code"] for f in found}) == (1, {"HKV105"})
    assert said["between"]["blocks"]["wrong"] == 7


def test_files_below_a_tier_that_changed_places(run: Asked, fleet: Any) -> None:
    folder = fleet("store", "exchanged", kept=TIER)
    code, said, found = checked(run, folder, *THROUGH)
    assert (code, [f["code"] for f in found]) == (1, ["HKV906", "HKV906"])
    assert all("those of other content" in f["message"] for f in found)
    assert (said["between"]["blocks"]["right"], said["between"]["blocks"]["wrong"]) == (12, 2)
    asked = found[0]["request"]
    code, out, _ = run("why", folder, asked, *THROUGH, "--format", "json")
    [answer] = json.loads(out)
    assert (code, answer["verdict"]) == (1, "read-wrong-state")
    [hurt] = answer["over_all"]["instances"]
    assert asked in {one["request"] for one in hurt["requests"]}
