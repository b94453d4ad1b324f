"""Each bug recorded anew from the releases themselves: found in one, gone in the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.real_bugs import releases
from engines.real_bugs.fixtures import finish
from engines.real_bugs.stories import STORIES, Story
from hkvtool.analyzers.check import check
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.rules import Severity


@pytest.mark.soak
@pytest.mark.parametrize("arm", ["bad", "good"])
@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.thread)
def test_release_shows_the_bug_or_not(story: Story, arm: str, tmp_path: Path) -> None:
    release = dict(story.arms)[arm]
    if why := releases.missing(release):
        pytest.skip(why)
    raw, trace = tmp_path / "raw.jsonl", tmp_path / "trace.jsonl"
    releases.record(story.thread, release, raw)
    finish(raw, trace)
    with trace.open("rb") as file:
        report = check(read_jsonl(file))
    roots = {f.code for f in report.findings if f.severity is Severity.ERROR and not f.cause}
    assert roots == ({story.code} if arm == "bad" else set())
