"""What a probe came to, as the JSON that is a contract; the other formats are made from it."""

from __future__ import annotations

from math import isfinite

from hkvtool.probe.dialect import Dialect
from hkvtool.probe.judging import Judged, Record, beyond, steps_of, worst
from hkvtool.probe.run import Divergence, Options, Probe
from hkvtool.probe.survey import SEPARATE, SHARED, Survey


def outcome(probe: Probe, survey: Survey, absent: dict[str, str]) -> Record:
    """The whole report. `absent`: patterns and measures that could not be, and why."""
    judged = probe.judged()
    options = probe.options
    verdict = judged.verdict(probe.whole)
    failed = sum("failed" in r for r in probe.kept.records)
    return {
        "server": {
            "url": probe.dialect.server.url, "model": survey.model,
            "adapters": list(survey.adapters), "salts": survey.salts,
            "block_tokens": survey.block or None, "cache_tokens": survey.cache or None,
            "asked_at": probe.dialect.path, "prompts": "ids" if probe.dialect.ids else "text",
            "told": sorted(probe.dialect.tells),
        },
        "could_not": absent,
        "plan": {
            "seed": options.seed, "comparisons": options.comparisons,
            "patterns": list(options.patterns), "prompt_tokens": probe.shape.length,
            "output_tokens": probe.shape.output, "alpha": options.alpha,
            "boundaries": {b.name: b.tokens for b in probe.shape.boundaries},
        },
        "noise": {
            "comparisons": judged.noise.trials, "usual_nats": judged.noise.usual,
            "largest_nats": judged.noise.largest,
            "tolerance_nats": judged.noise.tolerance, "differed": judged.noise.differed,
            "void": judged.noise.void,
        },
        "sensitivity": {"told_apart": judged.seen[0], "changed": judged.seen[1]},
        "patterns": [
            {"pattern": name} | rate.as_json() | {"detectable": judged.detectable(name)}
            for name, rate in judged.patterns.items()
        ],
        "findings": [_finding(d, probe, judged) for d in probe.found],
        "load": probe.dialect.load.as_json() | {"failed_comparisons": failed},
        "summary": {
            "verdict": verdict,
            "compared": sum(r.trials for r in judged.patterns.values()),
            "divergent": sum(r.hits for r in judged.patterns.values()),
            "confirmed": sum(judged.confirmed(d.id) for d in probe.found if _tried(d, judged)),
            "stopped": probe.stopped or None,
            "idle": judged.idle or None,
        },
    }  # fmt: skip


def _tried(divergence: Divergence, judged: Judged) -> bool:
    return divergence.id in judged.findings


def _finding(divergence: Divergence, probe: Probe, judged: Judged) -> Record:
    limit = judged.noise.tolerance
    record, scenario = divergence.record, divergence.scenario
    rate = judged.findings.get(divergence.id)
    found: Record = {
        "id": divergence.id, "pattern": scenario.pattern, "boundary": record.get("told"),
        "shared_tokens": record.get("shared"), "kind": None,
    }  # fmt: skip
    apart = worst(record, limit) if record and beyond(record, limit) else None
    if apart is not None:
        steps = steps_of(apart)
        at = next(i for i, step in enumerate(steps) if step > limit)
        size = max(steps)
        found |= {
            "kind": "token" if apart["token_at"] == at else "logprob",
            "at_token": at, "nats": round(size, 6) if isfinite(size) else None,
            "first_other_token": apart["token_at"], "said": apart["said"],
            "reference": apart["reference"], "subject": apart["subject"],
            "requests": apart["requests"], "cached_tokens": apart["cached"],
        }  # fmt: skip
    elif record.get("leaked"):
        found |= {
            "kind": "leak", "cached_tokens": record["leaked"],
            "requests": [name for c in record["compared"] for name in c["requests"]],
        }  # fmt: skip
    found["repeated"] = None if rate is None else {
        "runs": rate.trials, "divergent": rate.hits, "controls": rate.control_trials,
        "control_divergent": rate.control_hits, "p": rate.p, "p_adjusted": rate.adjusted,
    }  # fmt: skip
    found["confirmed"] = rate is not None and judged.confirmed(divergence.id)
    found["smallest"] = {
        "requests": len(scenario.asks), "told": scenario.told,
        "tokens": scenario.cost[1],
    }  # fmt: skip
    return found | divergence.links


def absences(
    survey: Survey, dialect: Dialect, options: Options, *, adapters: bool, filler: int
) -> dict[str, str]:
    """What this server cannot be asked, by name, with the reason."""
    absent: dict[str, str] = {}
    cold = cold_again(survey, options.reset)
    if not cold:
        why = {
            SHARED: "a salt does not separate what is cached",
        }.get(survey.salts, f"no salts: {dialect.refused.get('salts', 'they were not to be used')}")
        absent["cold twice"] = (
            f"{why}; so noise is measured on warm answers only, and differences below 0.5 nats do "
            "not count (--reset PATH names what makes the server forget)"
        )
        for name in ("extend", "fork", "turns", "load", "abort", "adapter"):
            absent[name] = "needs the same tokens cold twice"
    elif survey.salts != SEPARATE and not options.reset:
        absent["salts"] = (
            "whether they separate cannot be seen: the server does not tell cached tokens "
            "(vLLM: --enable-prompt-tokens-details)"
        )
    if survey.salts not in (SEPARATE, SHARED):
        absent["salt"] = "whether another salt finds anything cannot be seen"
    if not filler:
        absent["reload"] = "how much the cache holds is not known (--cache-tokens)"
    limit, filling = dialect.load.limits.tokens, 2 * filler * (options.comparisons // 11 + 1)
    if filling > limit:
        absent["reload"] = (
            f"to fill the server's cache as often may take {filling:,} tokens (--max-tokens "
            f"{limit:,})"
        )
    if not adapters:
        absent["adapter"] = "the server lists no adapters of the model"
    if not dialect.can_go_on:
        absent["turns"] = "the server does not tell ids of what it generates"
        absent["decoded"] = "the server does not tell ids of what it generates"
    if "log probabilities" not in dialect.tells:
        absent["log probabilities"] = "only tokens are compared: " + dialect.refused.get(
            "log probabilities", "the server tells none"
        )
    if not dialect.ids:
        absent["boundaries"] = "prompts are text: where they are cut is in words, not in tokens"
    return absent


def cold_again(survey: Survey, reset: str) -> bool:
    """Whether the server can be made to answer cold what it has seen."""
    return bool(reset) or survey.salts in (SEPARATE, "unseen")
