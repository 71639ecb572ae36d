"""Copies of items, by the values that repeat in one role: rounded and few values are no copies."""

import numpy as np
import pytest

import tdd
from tdd.audit.checks import copied_scores
from tdd.procedures.values import PTDI
from tdd.records import Evidence

ROUNDED = {
    "to a half": lambda x, rng: np.round(2 * x) / 2,
    "to a tenth": lambda x, rng: np.round(x, 1),
    "to a hundredth": lambda x, rng: np.round(x, 2),
    "in single precision": lambda x, rng: x.astype(np.float32),
    "in half precision": lambda x, rng: x.astype(np.float16),
    "counts": lambda x, rng: rng.poisson(np.exp(x + 2)),
    "ratios": lambda x, rng: rng.binomial(total := rng.integers(20, 60, x.shape), 1 / (1 + np.exp(-x))) / total,
    "with atoms": lambda x, rng: np.where(rng.random(x.shape) < 0.9, np.round(3 * x) / 3, x),
}


def found(calibration, candidates, **more):
    return copied_scores(Evidence(np.asarray(calibration), np.asarray(candidates), names=("s",), **more))


@pytest.mark.parametrize("kind", ROUNDED)
def test_sound_data_are_not_named(kind):
    """Without members, with some, with members alone; of 540,000 draws of 16 kinds three were named."""
    rng = np.random.default_rng(0)
    for n, m in ((200, 100), (100, 1_000), (30, 30)):
        for share, shift in ((0, 0), (0.3, 1), (1, 2), (1, 0.5)):
            scores = rng.normal(size=(25, n + m))
            scores[:, n:] -= shift * (np.arange(m) < share * m)
            drawn = ROUNDED[kind](scores, rng)
            assert not any(found(row[:n], row[n:]) for row in drawn)


def test_where_only_values_between_repeated_ones_count_the_tail_is_no_finding():
    """The twin: without that, members in the tail of rounded scores look like copies."""
    rng = np.random.default_rng(0)
    known, members = np.round(rng.normal(size=200), 3), np.round(rng.normal(-2, 0.5, size=100), 3)
    values = np.unique(known)
    inside = [x for x in np.unique(members) if values[0] < x < values[-1]]
    between = {int(np.searchsorted(values, x)) for x in inside if x not in values}
    assert len(between) > len(set(members) & set(values))
    assert found(known, members) is None


@pytest.mark.parametrize(("num_values", "copies"), [(20, 10), (50, 4), (100, 2)])
def test_copies_are_named_in_either_role(num_values, copies):
    rng = np.random.default_rng(0)
    for _ in range(20):
        copied, others = np.repeat(rng.normal(size=num_values), copies), rng.normal(size=100)
        named, reverse = found(copied, others), found(others, copied)
        assert named is not None
        assert reverse is not None
        assert (named.role, named.count, named.num_values) == ("calibration items", copied.size, num_values)
        assert reverse.role == "candidates"


def test_clusters_and_what_is_missing_are_left_out():
    rng = np.random.default_rng(0)
    copied, others = np.repeat(rng.normal(size=50), 2), rng.normal(size=100)
    assert found(copied, others, clusters=("a",) * 100, calibration_clusters=("b",) * 100) is None
    gaps = np.where(np.arange(100) % 2, np.nan, copied)
    assert found(gaps, others) is None
    assert found(np.full(100, np.nan), others) is found(copied, np.full(100, np.nan)) is None


def test_the_warning_of_a_run():
    """With copies the level does not hold: the reader is told so, and of ties too."""
    roles = ["calibration"] * 24 + ["candidate"] * 20
    scores = [*np.repeat(np.arange(8), 3), *(0.35 * np.arange(20) + 0.17)]
    run = tdd.select({"role": roles, "s": scores}, role_field="role", alpha=0.1).run
    said = " ".join(run["warnings"])
    assert "24 of 24 calibration items have one of 8 values of s that repeat among" in said
    assert "only 8 different values: p-values lose power, and are valid if the ties come from rounding; with" in said
    assert run["verdict"]["stands"]


@pytest.mark.slow("long")
def test_copies_break_the_level():
    """The twin of PTDI's promise: of 20 calibration items ten times each the FDR is about .26, of 200 below .1."""
    rng = np.random.default_rng(0)
    procedure, errors = PTDI(), []
    for copies in (10, 1):
        drawn = [
            procedure.select(Evidence(np.repeat(rng.normal(size=200 // copies), copies), rng.normal(size=100)), 0.1)
            for _ in range(300)
        ]
        errors.append(np.mean([bool(np.asarray(one.selected).any()) for one in drawn]))
    assert errors[0] > 0.18  # four standard errors above the level
    assert errors[1] < 0.1


def test_masked_items_are_left_out():
    once = np.random.default_rng(1).normal(size=(2, 40))
    twice, first = np.concatenate([once, once], axis=1), np.arange(80) < 40
    others = np.random.default_rng(2).normal(size=80)
    assert found(twice[0], others) is not None
    assert found(twice[0], others, calibration_mask=first) is None
    assert found(others, twice[1]).role == "candidates"
    assert found(others, twice[1], mask=first) is None
