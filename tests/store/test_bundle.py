"""A bundle is read whole or refused, whatever somebody made of it."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path

import pytest

from hkvtool.model.errors import TraceError
from hkvtool.store import open_trace
from hkvtool.store.bundle import (
    MANIFEST,
    REPORT,
    TRACE,
    Bundle,
    environment,
    read_manifest,
    write_bundle,
)

LINE = b'{"ev":"trace","format":"hkv/1"}\n'


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    about = Bundle("F1", "HKV702", "it races", "0a0b0c0d:1>2", "t.duckdb", 100, environment(), {})
    path = tmp_path / "b.zip"
    write_bundle(path, about, {TRACE: LINE, REPORT: b"{}"})
    return path


def rebuilt(path: Path, change: dict[str, bytes | None], more: dict[str, bytes]) -> Path:
    """The bundle with other contents under the same manifest."""
    with zipfile.ZipFile(path) as old:
        files = {name: old.read(name) for name in old.namelist()}
    for name, data in change.items():
        if data is None:
            del files[name]
        else:
            files[name] = data
    out = path.with_name("changed.zip")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in {**files, **more}.items():
            new.writestr(name, data)
    return out


def test_what_was_packed_is_read(bundle: Path, tmp_path: Path) -> None:
    with open_trace(bundle) as trace:
        assert [e.ev for e in trace.events()] == ["trace"]
    about = read_manifest(str(bundle))
    assert (about.finding, about.schedule, about.events_before) == ("F1", "0a0b0c0d:1>2", 100)
    assert bundle.stat().st_mode & 0o077 == 0
    again = tmp_path / "again.zip"
    write_bundle(again, about, {TRACE: LINE, REPORT: b"{}"})
    assert again.read_bytes() == bundle.read_bytes()


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        ({TRACE: b"{}\n"}, {}, "altered"),
        ({REPORT: None}, {}, "not those of its manifest"),
        ({}, {"../evil.py": b"x"}, "other files"),
        ({}, {"/etc/passwd": b"x"}, "other files"),
        ({MANIFEST: None}, {}, "no manifest"),
        ({MANIFEST: b"[]"}, {}, "cannot be read"),
        ({MANIFEST: b"{" * 100_000}, {}, "cannot be read"),
        ({MANIFEST: json.dumps({"format": "hkv-bundle/9"}).encode()}, {}, "another format"),
        ({TRACE: b"\0" * (300 << 20)}, {}, "larger than"),
    ],
)
def test_what_was_altered_is_refused(
    bundle: Path, change: dict[str, bytes | None], more: dict[str, bytes], said: str
) -> None:
    with pytest.raises(TraceError, match=said):
        open_trace(rebuilt(bundle, change, more))


def test_a_size_that_lies_is_found_out(bundle: Path) -> None:
    data = bytearray(rebuilt(bundle, {TRACE: LINE * 5000}, {}).read_bytes())
    at = data.rfind(TRACE.encode()) - 46 + 24
    data[at : at + 4] = (1).to_bytes(4, "little")
    bundle.write_bytes(data)
    with pytest.raises(TraceError):
        open_trace(bundle)


def test_no_mutation_of_a_bundle_gets_through(bundle: Path) -> None:
    whole, chance = bundle.read_bytes(), random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        bundle.write_bytes(data[: chance.choice([len(data), chance.randrange(4, len(data))])])
        try:
            with open_trace(bundle) as trace:
                assert [e.ev for e in trace.events()] == ["trace"]
        except TraceError:
            continue


@pytest.mark.parametrize("packed", [b"", b"\0" * 400, b"PAR1" + b"x" * 90, b"\x1f\x8b" + b"x" * 90])
def test_a_packed_trace_is_judged_as_a_file_is(tmp_path: Path, packed: bytes) -> None:
    about = Bundle("F1", "HKV702", "it races", None, "t.duckdb", 100, environment(), {})
    path = tmp_path / "b.zip"
    write_bundle(path, about, {TRACE: packed, REPORT: b"{}"})
    with pytest.raises(TraceError, match=r"b\.zip: trace\.jsonl is"):
        open_trace(path)
