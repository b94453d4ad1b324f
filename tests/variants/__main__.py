"""Write variants of the cases: `python -m tests.variants OUT --per-case N --seed S`."""

from __future__ import annotations

import argparse
from pathlib import Path

from .case import read_cases, write_case
from .transform import TRANSFORMS, variant

CASES = Path(__file__).resolve().parents[2] / "fixtures" / "cases"


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("out", type=Path)
    a.add_argument("--cases", type=Path, default=CASES)
    a.add_argument("--case", action="append", help="only this case")
    a.add_argument("--per-case", type=int, default=4)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--only", action="append", choices=list(TRANSFORMS), help="only this transform")
    o = a.parse_args()
    for case in read_cases(o.cases):
        if not o.case or case.id in o.case:
            for n in range(o.per_case):
                write_case(variant(case, o.seed * 1000 + n, o.only), o.out)


main()
