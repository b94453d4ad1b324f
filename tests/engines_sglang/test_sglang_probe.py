"""A served SGLang, probed from outside: silent while it is right, found while it is broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engines.probing import assert_found, assert_silent, probed
from engines.served import Served

from engines_sglang.sglang_served import missing, served

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(missing()), reason=f"its server needs {', '.join(missing())}"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("sglang")) as one:
        yield one


def test_a_right_server_is_silent(server: Served) -> None:
    report = probed(server, comparisons=60, requests=3000)
    assert_silent(report, 60, reusing=("return", "churn"))
    assert report["server"]["block_tokens"] == 16 and report["server"]["salts"] == "separate"
    assert set(report["server"]["told"]) == {"cached tokens", "log probabilities", "token ids"}
    assert {p["pattern"] for p in report["patterns"]} >= {"warm", "extend", "fork", "turns", "load"}


@pytest.mark.parametrize(
    ("fault", "pattern"), [("swapped block", "return"), ("wrong salt", "salt")]
)
def test_a_broken_server_is_found(server: Served, fault: str, pattern: str) -> None:
    server.breaks(fault)
    try:
        report = probed(server, pattern, comparisons=4, requests=150)
    finally:
        server.breaks("")
    assert_found(report, pattern, 150)
