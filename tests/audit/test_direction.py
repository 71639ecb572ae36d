"""Candidates on the wrong side of the calibration items: a reversed score is named, chance and members are not."""

import numpy as np
import pytest

import tdd
from tdd.audit.checks import direction
from tdd.records import Evidence


def found(calibration, candidates, null="nonmember", **more):
    return direction(Evidence(calibration, candidates, names=("s",), **more), null)


def test_a_reversed_score_is_named():
    """The same numbers are right under the other null, whose known items are members."""
    rng = np.random.default_rng(0)
    calibration, candidates = rng.normal(size=100), rng.normal(1.5, size=100)
    assert (
        "s candidates look less like members than the known non-members (in" in found(calibration, candidates).warning
    )
    assert "s candidates look more like members" in found(-calibration, -candidates, "member").warning
    assert found(calibration, candidates, "member") is found(-calibration, -candidates) is None


def test_the_warning_of_a_run():
    roles = {"calibration": np.arange(20.0), "candidate": np.arange(20.0) + 15}
    rows = [{"role": role, "s": value} for role, values in roles.items() for value in values]

    def warnings(**options):
        run = tdd.select(rows, role_field="role", alpha=0.1, **options).run
        return [warning for warning in run["warnings"] if "is its direction right?" in warning]

    assert len(warnings()) == 1
    assert not warnings(higher_is_member="s")


def test_what_cannot_tell_is_left_out():
    known, other = np.zeros(40), np.ones(40)
    assert found(known, other).share == 1
    assert found(other, known) is None
    assert found(known[:4], other) is None
    assert found(known, known) is None
    assert found(np.zeros(1000), np.eye(10)[0]) is None  # one value in a hundred draws, and the approximation has 1e-23
    assert found(known, np.full(40, np.nan)) is None
    assert found(known, other, clusters=("a",) * 40, calibration_clusters=("b",) * 40) is None
    assert found(known, other, weights=other, calibration_weights=other) is None


def test_the_level_is_that_of_all_scores_together():
    """Twenty of them; the twin tests each at the level of all."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(400, 20, 60))
    names = tuple(map(str, range(20)))
    panels = [Evidence(one[:, :30], one[:, 30:], names=names) for one in drawn]
    assert sum(direction(panel, "nonmember") is not None for panel in panels) <= 4  # .4 are expected, 5 are at 1e-4
    alone = sum(any(found(a[:30], a[30:]) is not None for a in one) for one in drawn)
    assert alone > 0


@pytest.mark.parametrize("values", [None, 3])
def test_chance_and_members_are_seldom_named(values):
    """Continuous scores and three values; without and with members, on the right side."""
    rng = np.random.default_rng(0)
    for members in (0, 10):
        shift = np.r_[np.full(members, -1.0), np.zeros(30 - members)]
        drawn = rng.normal(size=(2_000, 60)) + np.r_[np.zeros(30), shift]
        drawn = drawn if values is None else np.clip(np.round(drawn), -1, 1)
        assert sum(found(row[:30], row[30:]) is not None for row in drawn) <= 10  # 2 are expected, 11 are at 1e-5
