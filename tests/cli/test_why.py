"""`hkvtool why`: ids, exit codes, the JSON contract, standard input."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.errors import Exit


def _written(folder: Path, events: list[dict[str, Any]]) -> str:
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(e) + "\n" for e in events))
    return str(path)


LIFE = [
    {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    {"ev": "admit", "req": "0_cmpl-7f-0", "external": "cmpl-7f", "tenant": "acme",
     "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    {"ev": "admit", "req": "cmpl-80-0-aa"},
    {"ev": "admit", "req": "cmpl-81-0", "external": "twice"},
    {"ev": "admit", "req": "cmpl-81-1", "external": "twice"},
    {"ev": "alloc", "req": "0_cmpl-7f-0", "group": "kv", "blocks": [1]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        ("0_cmpl-7f-0", "0_cmpl-7f-0"),
        ("cmpl-7f", "0_cmpl-7f-0"),
        ("4bf92f3577b34da6a3ce929d0e0e4736", "0_cmpl-7f-0"),
        ("cmpl-80", "cmpl-80-0-aa"),
    ],
)
def test_a_request_is_found_by_any_of_its_ids(
    hkvtool: Any, tmp_path: Path, text: str, request_id: str
) -> None:
    found = hkvtool("why", _written(tmp_path, LIFE), text, "--format", "json")
    assert found.code == Exit.OK, found.err
    said = json.loads(found.out)
    assert (said["request"], said["asked_for"]) == (request_id, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("twice", "may be any of 2 requests"), ("nobody", "no event names a request 'nobody'")],
)
def test_an_id_of_nobody_or_of_several_is_refused(
    hkvtool: Any, tmp_path: Path, text: str, said: str
) -> None:
    found = hkvtool("why", _written(tmp_path, LIFE), text)
    assert found.code == Exit.USAGE and said in found.err and found.out == ""


def test_a_holder_that_is_no_request_is_refused(hkvtool: Any, tmp_path: Path) -> None:
    pin = {"ev": "pin", "pool": "gpu", "blocks": [1], "owner": "nic"}
    found = hkvtool("why", _written(tmp_path, [*LIFE, pin]), "nic")
    assert found.code == Exit.USAGE and "is no request" in found.err and found.out == ""


def test_the_exit_code_says_what_the_verdict_is(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    assert hkvtool("why", str(cases["A14"].bad), "rB").code == Exit.FINDINGS
    assert hkvtool("why", str(cases["A14"].good), "rB").code == Exit.OK
    lines = cases["A14"].good.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"resume"' in line)
    lost = tmp_path / "lost.jsonl"
    lost.write_text("\n".join([*lines[:at], '{"ev": "dropped", "count": 3}', *lines[at:]]) + "\n")
    found = hkvtool("why", str(lost), "rB")
    assert found.code == Exit.INCONCLUSIVE and "INCONCLUSIVE" in found.out


def test_the_finding_is_the_one_that_check_tells(hkvtool: Any, cases: Any) -> None:
    path = str(cases["A14"].bad)
    said = json.loads(hkvtool("why", path, "rB", "--format", "json").out)
    checked = json.loads(hkvtool("check", path, "--format", "json").out)
    assert said["finding"] == checked["findings"][0]
    assert said["coverage"]["not_evaluable"]
    assert said["blast_radius"]["purge"]["blocks"]


def test_standard_input_says_the_same(
    hkvtool: Any, cases: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cases["A14"].bad
    wanted = hkvtool("why", str(path), "rB")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    found = hkvtool("why", "-", "rB")
    assert found.code == wanted.code
    assert found.out.splitlines()[1:] == wanted.out.splitlines()[1:]


@pytest.mark.parametrize(("preset", "code"), [("gpt-oss", "HKV303"), ("deepseek-v4", "HKV105")])
def test_a_request_of_the_reference_engine_with_a_fault(
    hkvtool: Any, tmp_path: Path, preset: str, code: str
) -> None:
    path = str(tmp_path / "fault.jsonl")
    run = hkvtool("run", "--preset", preset, "--requests", "8", "--fault", code, "-o", path)
    assert run.code == Exit.OK, run.err
    checked = json.loads(hkvtool("check", path, "--format", "json").out)
    told = (f["request"] for f in checked["findings"] if f["code"] == code)
    victim = next(request for request in told if request is not None)
    found = hkvtool("why", path, victim)
    assert found.code == Exit.FINDINGS and code in found.out
    assert len(found.out.splitlines()) <= 23
    # The request that first computed the prefix did nothing wrong.
    assert hkvtool("why", path, victim.removesuffix(".again")).code == Exit.OK
