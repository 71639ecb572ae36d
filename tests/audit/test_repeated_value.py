"""Scores that say nothing: one value for most items of a role withholds the verdict."""

import numpy as np
import pytest

import tdd


def table(calibration, candidates):
    roles = ["calibration"] * len(calibration) + ["candidate"] * len(candidates)
    return [{"role": role, "s": value} for role, value in zip(roles, [*calibration, *candidates], strict=True)]


def verdict(calibration, candidates):
    return tdd.select(table(calibration, candidates), role_field="role", alpha=0.1).run["verdict"]


RNG = np.random.default_rng(0)
VARIED, OTHERS = RNG.normal(size=80), RNG.normal(size=40)


@pytest.mark.parametrize(
    ("calibration", "candidates", "found"),
    [
        (VARIED, np.zeros(40), "40 of 40 candidates have the same s, 0"),
        (np.ones(80), OTHERS, "80 of 80 calibration items have the same s, 1"),
        (VARIED, np.where(np.arange(40) < 21, -5, OTHERS), "21 of 40 candidates have the same s, -5"),
    ],
)
def test_the_verdict_is_withheld(calibration, candidates, found):
    shown = verdict(calibration, candidates)
    assert not shown["stands"]
    assert found in shown["failed"][0]


@pytest.mark.parametrize(
    ("calibration", "candidates"),
    [
        (VARIED, OTHERS),
        (VARIED, np.where(np.arange(40) < 20, -5, OTHERS)),  # half of them, and not more
        (RNG.integers(0, 3, 80), np.arange(42) % 3),  # a lattice
        (VARIED, [1.0, 1.0, 1.0, 1.0]),  # too few to tell
    ],
)
def test_it_stands(calibration, candidates):
    assert verdict(calibration, candidates)["stands"]
