"""What HKV_FINGERPRINT and HKV_FINGERPRINT_MATCH mean."""

from __future__ import annotations

from hashlib import sha256

import pytest

from hkvtool.recorder.vllm.fingerprint_choice import Choice, ChoiceError


def test_off_unless_asked() -> None:
    assert not Choice.of_environment({}).any and not Choice.of("off", "").any
    assert Choice.of("all", "").rate == 1 and Choice.of("0.01", "").rate == 0.01
    assert Choice.of("0", "prefix=1").any and not Choice.of("0", "").any


def test_a_share_is_of_the_content() -> None:
    names = [sha256(b"%d" % n).digest() + bytes(4) for n in range(4000)]
    for rate in (0.01, 0.25):
        taken = {n for n in names if Choice(rate).samples(n)}
        assert abs(len(taken) / len(names) - rate) < 0.03
        assert taken == {n for n in names if Choice(rate).samples(bytes(n))}
    assert {n for n in names if Choice(0.1).samples(n)} <= {
        n for n in names if Choice(0.2).samples(n)
    }
    assert all(Choice(1.0).samples(n) for n in names) and not Choice().samples(names[0])


def test_who_is_looked_for() -> None:
    choice = Choice.of("", "request=cmpl-ab*; tenant=acme ;prefix=1, 2")
    assert choice.wants(["x", "cmpl-abc-0"], [], [9])
    assert choice.wants(["x"], ["acme"], []) and choice.wants(["x"], [], [1, 2, 3])
    assert not choice.wants(["x"], ["other"], [1, 3])
    assert not choice.wants(["x"], [], [1])


@pytest.mark.parametrize(
    ("share", "match"),
    [("2", ""), ("-1", ""), ("some", ""), ("nan", ""), ("", "who=1"), ("", "request"),
     ("", "prefix=a"), ("", "prefix=1,,2"), ("", "tenant=")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(share: str, match: str) -> None:
    with pytest.raises(ChoiceError):
        Choice.of(share, match)
