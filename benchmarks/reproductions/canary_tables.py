"""The tables of planted canary sets for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.reproductions.order_tests import ORDER_TESTS
from benchmarks.reproductions.record import Row

__all__ = ["LEVELS", "PLANTED", "ROUNDING", "SIZES_AT_ZERO", "planted_table", "size_table"]

LEVELS = (0.01, 0.05)
PLANTED = "Sets by number of copies: median p-value of each test"
SIZES_AT_ZERO = (
    "Size: share of unplanted sets with a p-value at most the level, ± the standard error at that level. "
    "All are tested under the one model, which saw none of them: independent draws of the null hypothesis"
)
ROUNDING = 1 + 1e-6
"""p-values are single precision: 1/20 is a little more than the double .05."""


def planted_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a number of copies: how well the sets are known, and the median p-value of each test."""
    table = []
    for count in sorted({row["copies"] for row in rows}):
        mine = [row for row in rows if row["copies"] == count]
        by_test = {test: [row["p_value"] for row in mine if row["test"] == test] for test in ORDER_TESTS}
        seen = [p <= 0.05 * ROUNDING for p in by_test["combined"]]
        table.append(
            {
                "copies": count,
                "sets": len(seen),
                "loss, nats a token": round(float(np.mean([row["loss"] for row in mine])), 3),
                "effect, sd": round(float(np.mean([row["effect"] for row in mine])), 3),
                **{f"median p, {test}": float(f"{np.median(by_test[test]):.2g}") for test in ORDER_TESTS},
                "combined p <= .05": f"{sum(seen)} of {len(seen)}",
            }
        )
    return tuple(table)


def size_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a test: the share of sets of 0 copies with p at most .01 and .05, and its standard error there.

    All are tested under one model, which saw none of them: they are independent draws of the null hypothesis.
    """
    table = []
    for test in ORDER_TESTS:
        p_values = np.array([row["p_value"] for row in rows if row["copies"] == 0 and row["test"] == test])
        line: Row = {"test": test, "sets": len(p_values)}
        for level in LEVELS:
            share = float(np.mean(p_values <= level * ROUNDING))
            error = math.sqrt(level * (1 - level) / len(p_values))
            line[f"p <= {level:g}"] = f"{share:.3f} ± {error:.3f}"
            line[f"within {level:g}"] = "yes" if share - 3 * error <= level else "ABOVE"
        table.append(line)
    return tuple(table)
