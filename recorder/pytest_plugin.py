"""``pytest --hkv``: an engine's own tests run under guard, and fail at the first broken rule.

Without the option nothing happens. With it, the hook sets of the engines that the tests import are
attached, and whatever else emits through `hkvtool.recorder.session` is judged too. A test fails
where a rule breaks, also where the engine swallows the error or breaks it in another thread or
process; its report tells the events that led there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from hkvtool.recorder.guarded_tests import GuardedTests

_KEY = "hkv-guard"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hkv", "KV-cache guard")
    group.addoption(
        "--hkv", nargs="?", const="raise", choices=("raise", "log"), default=None,
        help="judge the engine's KV cache while the tests run: `raise` stops the engine where a "
        "rule breaks, `log` lets it go on and fails the test at its end",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "no_hkv: breaks rules on purpose; pytest --hkv does not judge it"
    )
    mode = config.getoption("--hkv", default=None)
    if mode is None:
        return
    from hkvtool.recorder.environment import GUARD
    from hkvtool.recorder.guard import Mode
    from hkvtool.recorder.guarded_tests import GuardedTests

    tests = GuardedTests(Mode(mode))
    # Engines in other processes are guarded by themselves.
    os.environ[GUARD] = mode
    config.pluginmanager.register(_Hooks(tests), _KEY)


class _Hooks:
    """What pytest calls when `--hkv` is given."""

    def __init__(self, tests: GuardedTests) -> None:
        self.tests = tests

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        judged = item.get_closest_marker("no_hkv") is None
        self.tests.begin(item.nodeid, judged=judged)

    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport:
        from pytest import TestReport

        report = TestReport.from_item_and_call(item, call)
        found = self.tests.broken()
        if found:
            text = "\n\n".join(v.text() for v in found)
            report.sections.append(("hkv guard", text))
            if report.passed:
                report.outcome = "failed"
                report.longrepr = f"a rule broke and the test did not see it: {found[0].headline}"
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self.tests.summary():
            terminalreporter.write_line(f"hkv: {line}")

    def pytest_unconfigure(self) -> None:
        self.tests.end()
