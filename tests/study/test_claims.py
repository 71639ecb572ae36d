"""The measured claims: the table that is shown is the table of the code, and a shorter run agrees with it."""

import json
import pathlib

import jax.numpy as jnp
import jax.random
import numpy as np
import pytest

import tdd
from tdd.study.claims import Claim, all_claims, choose, mean_radius, measure
from tdd.study.runner import simulate

SHOWN = pathlib.Path(__file__).parents[2] / "benchmarks" / "results" / "validity.json"
CLAIMS = {claim.name: claim for claim in all_claims()}


def shown():
    return {row["name"]: row for row in json.loads(SHOWN.read_text("utf-8"))["claims"]}


def test_every_claim_is_shown_as_it_is():
    rows = shown()
    assert list(rows) == list(CLAIMS)
    for name, row in rows.items():
        claim = CLAIMS[name]
        told = (row["procedure"], row["setting"], row["error"], row["level"], row["holds"])
        assert told == (claim.procedure, claim.setting, claim.error, claim.level, claim.holds)
        assert row["repetitions"] >= 100_000
        assert row["exceeds"] != claim.holds, f"{name}: measured {row['mean']} against {claim.level}"


def test_invalid_and_valid_stand_side_by_side():
    holds = [claim.holds for claim in CLAIMS.values()]
    assert sum(holds) >= 10
    assert len(holds) - sum(holds) >= 11


def coin(rate, holds, level):
    return Claim("coin", "a coin", "none", "size", level, holds, lambda key: jax.random.bernoulli(key, rate) * 1.0)


@pytest.mark.parametrize(("rate", "exceeds"), [(0.1, False), (0.2, True)])
def test_the_verdict_needs_evidence(rate, exceeds):
    (row,) = measure([coin(rate, not exceeds, 0.1)], repetitions=20_000)
    assert row.exceeds == exceeds
    assert row.mean == pytest.approx(rate, abs=0.01)
    assert row.se == pytest.approx(np.sqrt(rate * (1 - rate) / 20_000), rel=0.05)


def test_choose():
    claims = list(CLAIMS.values())
    first = claims[0]
    assert choose(claims, []) == claims
    assert choose(claims, [first.name])[0] == first
    with pytest.raises(tdd.InputError, match="no claim is called 'nothing'"):
        choose(claims, ["nothing"])
    with pytest.raises(tdd.InputError, match="at least 100"):
        measure(claims[:1], repetitions=10)


def test_batch_size_changes_no_repetition():
    one = lambda key: {"u": jax.random.uniform(key), "v": jnp.float32(1)}  # noqa: E731
    runs = [simulate(one, seed=3, repetitions=50, batch=batch) for batch in (1, 7, 50, 2_000)]
    for run in runs[1:]:
        np.testing.assert_array_equal(run["u"], runs[0]["u"])
    assert runs[0]["v"].shape == (50,)


def test_repetitions_that_fill_no_whole_batch_are_no_second_program():
    traced = []

    def one(key):
        traced.append(1)
        return jax.random.uniform(key)

    simulate(one, seed=3, repetitions=64, batch=32)
    once = len(traced)
    simulate(one, seed=3, repetitions=2_000, batch=256)
    assert len(traced) == 2 * once


def test_the_confidence_bound_covers():
    """Of 2,000 means of 200 rare events, at most a share `level` may lie further above the truth than the radius."""
    rng = np.random.default_rng(0)
    draws = (rng.random((2_000, 200)) < 0.02).astype(float)
    missed = [row.mean() - mean_radius(row, 0.05) > 0.02 for row in draws]
    assert np.mean(missed) <= 0.05


def test_the_confidence_bound_is_empirical_bernstein():
    """Maurer & Pontil (2009), theorem 4, at n = 4, variance 1/3, delta = 0.05."""
    log = 3.6888794541139363  # ln 40
    assert mean_radius(np.array([0.0, 1.0, 0.0, 1.0]), 0.05) == pytest.approx((log / 6) ** 0.5 + 7 * log / 9)
