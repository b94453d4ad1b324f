"""Servers that lack something: what can be asked is asked, what cannot is said."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from hkvtool.cli.app import main
from probe.asked import asked
from probe.stub import Stub, serving


def test_without_log_probabilities_tokens_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    lacks = frozenset({"logprobs"})
    code, report = asked(Stub(ignores=lacks), capsys, "--comparisons", "30")
    assert code == 0 and "only tokens" in report["could_not"]["log probabilities"]
    code, report = asked(Stub(ignores=lacks, fault="missing state"), capsys, "--comparisons", "10")
    finding = report["findings"][0]
    assert code == 1 and finding["kind"] == "token" and finding["nats"] is None


def test_without_salts_what_stays_possible_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = asked(Stub(refuses=frozenset({"cache_salt"})), capsys, "--comparisons", "20")
    assert code == 0 and report["server"]["salts"] == "refused"
    assert {p["pattern"] for p in report["patterns"]} == {"warm", "return", "churn"}
    assert report["noise"]["tolerance_nats"] == 0.5
    assert {"cold twice", "fork", "extend", "salt"} <= set(report["could_not"])
    broken = Stub(refuses=frozenset({"cache_salt"}), fault="missing state")
    assert asked(broken, capsys, "--comparisons", "20")[0] == 1


def test_without_salts_a_reset_makes_cold_again(capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub(refuses=frozenset({"cache_salt"}), fault="missing state")
    args = ("--reset", "/reset_prefix_cache", "--pattern", "fork", "--comparisons", "4")
    code, report = asked(stub, capsys, *args)
    assert code == 1 and stub.resets > 20 and report["findings"][0]["pattern"] == "fork"


def test_a_server_that_does_not_tell_what_was_cached(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = asked(Stub(tells_cached=False), capsys, "--comparisons", "20")
    assert code == 4 and report["server"]["salts"] == "unseen"
    assert "cannot be seen" in report["could_not"]["salts"]
    assert "whether anything was reused cannot be seen" in report["summary"]["idle"]
    assert all(p["reused"] is None for p in report["patterns"])
    broken = Stub(tells_cached=False, fault="swapped block")
    assert asked(broken, capsys, "--comparisons", "20")[0] == 1


def test_log_probabilities_by_text_and_ids_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    """What was generated goes on in the next prompt by its ids."""
    code, report = asked(Stub(tells_texts=True), capsys, "--pattern", "turns", "--comparisons", "6")
    assert code == 0 and report["patterns"][0]["reused"] == 6
    assert "token ids" in report["server"]["told"] and "decoded" not in report["could_not"]
    broken = Stub(tells_texts=True, fault="missing state")
    code, report = asked(broken, capsys, "--pattern", "turns", "--comparisons", "6")
    assert code == 1 and report["findings"][0]["confirmed"]


def test_metrics_tell_that_something_was_reused(capsys: pytest.CaptureFixture[str]) -> None:
    counting = Stub(tells_cached=False, counts_hits=True)
    code, report = asked(counting, capsys, "--comparisons", "20")
    assert code == 0 and report["summary"]["idle"] is None
    counting = Stub(tells_cached=False, counts_hits=True, caches=False)
    code, report = asked(counting, capsys, "--comparisons", "20")
    assert code == 4 and "reused nothing" in report["summary"]["idle"]


def test_a_server_that_reuses_nothing_is_no_clean_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, report = asked(Stub(caches=False), capsys, "--comparisons", "20")
    assert code == 4 and report["summary"]["verdict"] == "inconclusive"
    assert "reused nothing" in report["summary"]["idle"]
    for told in report["patterns"]:
        assert told["reused"] in (0, None) and (told["detectable"] == 1 or told["reused"] is None)
    with serving(Stub(caches=False)) as url:
        args = ["probe", url, "--pattern", "warm", "--comparisons", "4", "--seed", "1"]
        assert main([*args, "--format", "junit"]) == 4
        assert "nothing was reused" in capsys.readouterr().out
        assert main(args) == 4
        assert "reused nothing" in capsys.readouterr().out


def test_what_was_reused_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = asked(Stub(), capsys, "--comparisons", "30")
    told = {p["pattern"]: p for p in report["patterns"]}
    assert code == 0 and told["salt"]["reused"] is None, "nothing is to be reused there"
    assert told["return"]["reused"] == told["return"]["comparisons"] > 0
    # Some part before the first block ends: what they say of reuse is nothing.
    assert 0 < told["fork"]["reused"] <= told["fork"]["comparisons"]


def test_a_server_that_takes_only_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = asked(Stub(refuses=frozenset({"ids"})), capsys, "--comparisons", "20")
    assert code == 0 and report["server"]["prompts"] == "text"
    assert "boundaries" in report["could_not"]
    broken = Stub(refuses=frozenset({"ids"}), fault="missing state")
    assert asked(broken, capsys, "--comparisons", "20")[0] == 1


def test_adapters_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub(adapters=("tuned",))
    code, report = asked(stub, capsys, "--pattern", "adapter", "--comparisons", "4")
    assert code == 0 and report["server"]["adapters"] == ["tuned"]
    assert report["patterns"][0]["comparisons"] == 4


def test_who_gives_up_really_does(capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub()
    assert asked(stub, capsys, "--pattern", "abort", "--comparisons", "3")[0] == 0
    assert stub.aborted >= 3


def test_a_server_that_fails_is_no_clean_server(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = asked(Stub(fails_at=150), capsys, "--comparisons", "100")
    assert code == 4 and "fail" in report["summary"]["stopped"]
    assert report["load"]["failed"] > 5


@pytest.mark.parametrize(
    ("limit", "word"),
    [(("--max-requests", "150"), "requests"), (("--max-tokens", "9000"), "tokens"),
     (("--max-time", "0.2s"), "seconds")],
)  # fmt: skip
def test_limits_are_kept(
    limit: tuple[str, str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = Stub()
    code, report = asked(stub, capsys, "--comparisons", "5000", *limit)
    assert code == 4 and word in report["summary"]["stopped"]
    if word == "requests":
        assert report["load"]["requests"] <= 150 and stub.requests <= 151


def test_the_rate_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    limits = ("--rate", "100", "--max-time", "1s", "--comparisons", "5000")
    _, report = asked(Stub(), capsys, *limits)
    assert report["load"]["requests"] <= 110


def test_what_cannot_be_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert main(["probe", url]) == 3
        assert "nobody listens" in capsys.readouterr().err
        for args in (
            ["ftp://x"], [url, "--pattern", "no"], [url, "--boundary", "x"], [url, "--vocabulary", "3"],
            [url, "--again", str(tmp_path / "none.json")], [url, "--reset", "x"],
            [url, "--recording", str(tmp_path)],
        ):  # fmt: skip
            assert main(["probe", *args]) in (2, 3)
            assert "error:" in capsys.readouterr().err


def test_a_server_that_speaks_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            for _ in range(8):
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(100)
                    connection.sendall(b"220 mail ready\r\n")

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        assert main(["probe", f"http://127.0.0.1:{listener.getsockname()[1]}"]) == 3
    assert "cannot be asked" in capsys.readouterr().err


def test_only_the_url_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy in the environment is not used: it would send the traffic elsewhere."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    stub = Stub()
    assert asked(stub, capsys, "--pattern", "warm", "--comparisons", "2")[0] == 0
    assert all(h.get("Authorization") == "Bearer secret" for h in stub.headers)


def test_a_probe_that_was_stopped_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "probe.state"
    stub = Stub()
    with serving(stub) as url:
        plan = ["probe", url, "--comparisons", "30", "--state", str(state), "--format", "json"]
        assert main([*plan, "--max-requests", "150"]) == 4
        done = state.read_text().count('"stage":"screen"')
        assert 0 < done < 30
        with state.open("a") as file:
            file.write('{"stage":"screen","i":')
        before = stub.requests
        assert main(plan) == 0
        assert state.read_text().count('"stage":"screen"') == 30
        assert stub.requests - before < 8 * 30, "what was compared is not compared again"
        assert main([*plan, "--length", "90"]) == 2
    assert "another length" in capsys.readouterr().err


def test_junit_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    from xml.etree import ElementTree

    with serving(Stub(fault="missing state")) as url:
        code = main(["probe", url, "--comparisons", "6", "--format", "junit", "--seed", "1"])
        root = ElementTree.fromstring(capsys.readouterr().out.split("?>", 1)[1])
        assert code == 1 and int(root.get("failures", "0")) >= 1
        failed = [c.get("name") for c in root.iter("testcase") if c.find("failure") is not None]
        skipped = [c.get("name") for c in root.iter("testcase") if c.find("skipped") is not None]
        assert "warm" in failed and "adapter" in skipped
        assert main(["probe", url, "--comparisons", "6", "--seed", "1"]) == 1
    text = capsys.readouterr().out
    for word in (
        "noise ",
        "sensitivity ",
        "D1 ",
        "repeated ",
        "confirmed",
        "reuse changes answers",
    ):
        assert word in text, text


def test_a_server_that_goes_away_leaves_a_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Stub.complete

    def complete(self: Stub, *args: Any) -> Any:
        if self.requests > 200:
            raise ConnectionAbortedError
        return original(self, *args)

    monkeypatch.setattr(Stub, "complete", complete)
    code, report = asked(Stub(), capsys, "--comparisons", "500")
    assert code == 4 and "answers no more" in report["summary"]["stopped"]
    assert 0 < report["summary"]["compared"] < 500


def test_a_limit_that_allows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Stub()) as url:
        assert main(["probe", url, "--max-requests", "3"]) == 2
    assert "nothing was compared" in capsys.readouterr().err
