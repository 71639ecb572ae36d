"""The claims of `tdd study validity`: true ones hold, false ones are convicted, and both agree with the table shown."""

import dataclasses
import json
import pathlib
import re

import guarantees
import numpy as np
import pytest

from tdd.study.claims import all_claims

LONGEST, FEWER = 5, 20_000
"""Of a claim that took more seconds than this in the table, which has its 10^5 repetitions, so many are drawn again."""
SHOWN = pathlib.Path(__file__).parents[2] / "benchmarks" / "results" / "validity.json"


def table():
    return {row["name"]: row for row in json.loads(SHOWN.read_text("utf-8"))["claims"]}


@pytest.fixture(scope="module")
def shown():
    return table()


def parameters():
    """Every claim; of those that differ in a number alone, only the first true and the first false one are quick, and
    none is that took more than 2 s in the table."""
    shown, long = set(), {row["name"] for row in table().values() if row["seconds"] > 2}
    for claim in all_claims():
        kind = (re.sub(r"-[0-9.]+$", "", claim.name), claim.holds)
        why = "grid" if kind in shown else "long" if claim.name in long else None
        marks = [pytest.mark.guarantee(checks=int(claim.holds)), *([pytest.mark.slow(why)] if why else [])]
        shown.add(kind)
        yield pytest.param(claim, id=claim.name, marks=marks)


@pytest.mark.parametrize("claim", parameters())
def test_claim(claim, shown, budget):
    """Other repetitions than those of the table have its mean, within five standard errors of the difference."""
    row, errors = shown[claim.name], guarantees.simulate(claim.one, seed=1, batch=claim.batch)
    if row["seconds"] > LONGEST:
        budget = dataclasses.replace(budget, repetitions=min(budget.repetitions, FEWER))
    verdict = guarantees.assert_at_most if claim.holds else guarantees.assert_exceeds
    verdict(errors, claim.level, budget)
    again = errors.first(min(budget.repetitions, 2 * guarantees.SHORT))
    spread = np.sqrt(row["se"] ** 2 * (1 + row["repetitions"] / len(again)))
    assert abs(again.mean() - row["mean"]) <= 5 * spread + 5e-4  # nearly constant errors have no spread to speak of
