"""Samples of an audit's items: balanced, and of groups that are exchangeable, samples that still are."""

import numpy as np
import pytest

from tdd.audit import preparation as module
from tdd.audit.preparation import preparation
from tdd.audit.sampling import subsample, units_of


def kept_of_each(role, group, most):
    kept = subsample(role, most, np.random.default_rng(0), group)
    unit, unit_role = units_of(role, group)
    return np.bincount(unit[kept], minlength=unit_role.size), unit_role


def test_items_without_groups():
    role = np.repeat([0, 1], [100, 900])
    counts, _ = kept_of_each(role, range(1000), 400)
    assert np.bincount(role, weights=counts).tolist() == [100, 300]
    assert np.array_equal(
        subsample(role, 400, np.random.default_rng(3)), subsample(role, 400, np.random.default_rng(3), range(1000))
    )


def test_all_groups_stay_with_equally_many_items_at_most():
    """One number for both roles, however unlike these are."""
    role, group = np.repeat([0, 1], [200, 1500]), np.arange(1700) // 10
    counts, _ = kept_of_each(role, group.tolist(), 1000)
    assert counts.tolist() == [5] * 170
    sizes = np.array([1, 2, 3, 400, 400, 1, 2, 3])
    role = np.repeat([0, 0, 0, 0, 1, 1, 1, 1], sizes)
    counts, _ = kept_of_each(role, np.repeat(np.arange(8), sizes).tolist(), 60)
    assert counts.tolist() == [1, 2, 3, 24, 24, 1, 2, 3]


def test_too_many_groups_are_drawn_whole():
    role, group = np.repeat([0, 1], [60, 600]), np.arange(660) // 3
    counts, unit_role = kept_of_each(role, group.tolist(), 100)
    assert set(counts.tolist()) == {0, 1}
    assert np.bincount(unit_role, weights=counts).tolist() == [20, 80]


def groups_of_ten(rng, known, tested):
    """Independent texts, some with a digit at their end, in groups of ten in both roles."""
    texts = [f"word {'7' if marked else 'end.'}" for marked in rng.random(10 * (known + tested)) < 0.15]
    cut = 10 * known
    return (texts[:cut], texts[cut:]), ([i // 10 for i in range(cut)], [-1 - i // 10 for i in range(10 * tested)])


@pytest.mark.parametrize("whole", [True, False])
def test_sound_groups_of_roles_of_unlike_sizes_raise_no_alarm(whole, monkeypatch):
    """Thinned item by item (not `whole`), groups of the larger role are smaller, and fewer of them have a mark."""
    if not whole:
        monkeypatch.setattr(module, "subsample", lambda role, most, generator, group: subsample(role, most, generator))
    monkeypatch.setattr(module, "_MAX_ITEMS", 1_000)
    monkeypatch.setattr(module, "_DRAWS", 199)
    rng, alarms = np.random.default_rng(0), 0
    for seed in range(12):
        texts, groups = groups_of_ten(rng, 30, 200)
        alarms += preparation(*texts, seed=seed, level=0.05, groups=groups).p_value <= 0.05
    assert alarms <= 4 if whole else alarms >= 9  # 12 draws at .05: more than 4 in .0003 of runs
