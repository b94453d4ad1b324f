"""Every command: where it stands in the help, and its one line there.

The line is kept here and not in the command's module so that `hkvtool --help` imports none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from keyword import iskeyword


@dataclass(frozen=True)
class Command:
    """One command; `section` is the heading it stands under."""

    name: str
    section: str
    line: str

    @property
    def module(self) -> str:
        name = self.name.replace("-", "_")
        return f"hkvtool.cli.{name}_" if iskeyword(name) else f"hkvtool.cli.{name}"

    @property
    def exists(self) -> bool:
        return find_spec(self.module) is not None


_TABLE = (
    Command("demo", "Start here", "See real bugs and a production workload, recorded and checked."),
    Command("doctor", "Start here", "Say what this machine and its engines allow."),
    Command("record", "Get a trace", "Start an engine and record what its allocator does."),
    Command("attach", "Get a trace", "Start recording in a process that loaded us idle."),
    Command("detach", "Get a trace", "Stop recording in a running process."),
    Command("snapshot", "Get a trace", "Make a trace of a recording while it goes on."),
    Command("seal", "Get a trace", "Seal a recording from beside the program, as in a sidecar."),
    Command("listen", "Get a trace", "Record the KV events that an engine publishes."),
    Command("run", "Get a trace", "Drive the reference engine with a workload and record it."),
    Command("ingest", "Get a trace", "Turn a recording into a trace."),
    Command("import", "Get a trace", "Read hkv/1 JSON lines, or another tool's format."),
    Command("export", "Get a trace", "Write a trace out in another format."),
    Command("preflight", "Ask it", "Check an engine's declarations before its first request."),
    Command("check", "Ask it", "Run every rule that the evidence supports."),
    Command("why", "Ask it", "Say whether the KV state is to blame for one request."),
    Command("ratios", "Ask it", "Say what was matched, what could be resumed, and what it cost."),
    Command("replay", "Ask it", "Run the events again on real caches until the fault happens."),
    Command("explore", "Ask it", "Search the orders left open for one that fails."),
    Command("minimize", "Ask it", "Find the fewest events that still show a finding."),
    Command("bundle", "Ask it", "Pack a finding into one file that runs elsewhere."),
    Command("diff", "Ask it", "Find where two traces part."),
    Command("probe", "Ask it", "Test a running server from outside."),
    Command("fleet", "Ask it", "Check many traces in parallel."),
    Command("info", "Look", "Say what a trace holds."),
    Command("events", "Look", "List events, filtered."),
    Command("block", "Look", "Tell the history of one block."),
    Command("request", "Look", "Tell the history of one request."),
    Command("report", "Look", "Write a report: one HTML file that can be sent."),
    Command("metrics", "Look", "Count a running recording for Prometheus."),
    Command("sql", "Look", "Ask a trace in SQL."),
    Command("tui", "Look", "Open a trace in the terminal application."),
    Command("rules", "Know", "List the rules, or explain one."),
    Command("explain", "Know", "Explain a finding of a trace."),
    Command("schema", "Know", "Print the JSON Schema of a trace line."),
    Command("bench", "Know", "Measure what recording and folding cost here."),
)


@cache
def commands() -> dict[str, Command]:
    """The commands that this installation has, by name, in the order of the help."""
    return {c.name: c for c in _TABLE if c.exists}
