"""A suspect set against a held-out set: what the p-values are, laws, messages."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import stats

from tdd import InputError, dataset_inference
from tdd.kernels import discriminant as kernel
from tdd.procedures.owner import log_smallest_p, split_p_value

RNG = np.random.default_rng(0)
SUSPECT, HELDOUT = RNG.normal(size=(3, 60)) - 1, RNG.normal(size=(3, 60))
KEY = jax.random.key(0)

DIVIDED = np.random.default_rng(1).normal(size=(2, 24))
IS_SUSPECT = np.arange(24) >= 12
FITTED = np.arange(24) % 12 >= np.where(IS_SUSPECT, 5, 4)  # groups of two sizes are tested, 5 against 4
DIVIDED[:, IS_SUSPECT] -= 0.8

discriminant = jax.jit(kernel.discriminant, static_argnames=("null", "sparse"))
one_split_p_value = jax.jit(split_p_value, static_argnames=("test", "num_draws"))


def one_split(test, num_draws=999):
    scores = DIVIDED.astype(np.float32)
    return one_split_p_value(scores, IS_SUSPECT, FITTED, ~FITTED, test=test, num_draws=num_draws, key=KEY)


def values(is_suspect):
    label = np.where(FITTED, is_suspect, -1).astype(np.int32)
    return np.asarray(discriminant(DIVIDED.astype(np.float32), label, null="nonmember", sparse=False).statistic, float)


def test_the_permutation_p_value_is_that_of_all_labellings():
    log_p, auc, weights = one_split("permutation", num_draws=20_000)
    g, suspect = values(IS_SUSPECT)[~FITTED], IS_SUSPECT[~FITTED]
    rank = stats.rankdata(g)
    sums = np.array([rank[list(chosen)].sum() for chosen in itertools.combinations(range(9), 5)])
    exact = (sums >= rank[suspect].sum()).mean()
    assert abs(math.exp(log_p) - exact) < 4 * math.sqrt(exact * (1 - exact) / 20_000)
    np.testing.assert_allclose(auc, (g[suspect][:, None] > g[~suspect]).mean(), rtol=1e-6)
    np.testing.assert_allclose(np.abs(weights).sum(), 1, rtol=1e-6)


def test_the_t_test_is_welch():
    g = values(IS_SUSPECT)
    groups = g[~FITTED & IS_SUSPECT], g[~FITTED & ~IS_SUSPECT]
    expected = stats.ttest_ind(*groups, equal_var=False, alternative="greater").pvalue
    np.testing.assert_allclose(one_split("t")[0], np.log(expected), rtol=1e-4)


def test_no_label_of_a_tested_item_is_seen_by_the_fit():
    swapped = np.where(FITTED, IS_SUSPECT, ~IS_SUSPECT)
    np.testing.assert_array_equal(values(IS_SUSPECT), values(swapped))


@pytest.mark.slow("long")
def test_splits_are_merged_by_twice_their_median():
    for num_splits in (1, 4, 5):
        found = dataset_inference(SUSPECT, HELDOUT, key=KEY, num_splits=num_splits, num_draws=199)
        middle = math.ceil(num_splits / 2)
        p = np.sort(found.split_p_values)[middle - 1] * num_splits / middle
        np.testing.assert_allclose(found.p_value, min(p, 1), rtol=1e-5)
    assert found.method == "dataset_inference/permutation"
    assert 0.6 < float(found.statistic) < 1
    assert (int(found.num_suspect), int(found.num_heldout)) == (60, 60)
    assert float(found.p_value) < 0.05
    assert np.asarray(found.weights).min() > 0


@pytest.mark.slow("long")
def test_suspects_that_look_less_like_members_are_told_by_the_weights():
    found = dataset_inference(-SUSPECT, HELDOUT, key=KEY, test="t")
    assert float(found.p_value) < 0.05
    assert np.asarray(found.weights).sum() < 0


def test_masks_and_gaps_count_alike():
    gaps = SUSPECT.copy()
    gaps[1, 4] = np.nan
    left_out = dataset_inference(gaps, HELDOUT, key=KEY, test="t", num_splits=3)
    masked = dataset_inference(SUSPECT, HELDOUT, key=KEY, test="t", num_splits=3, suspect_mask=np.arange(60) != 4)
    assert (int(left_out.num_suspect), int(left_out.num_heldout)) == (59, 60)
    np.testing.assert_array_equal(left_out.split_p_values, masked.split_p_values)
    assert float(masked.p_value) == pytest.approx(1.5 * np.median(masked.split_p_values), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((SUSPECT[:2], HELDOUT), {}, "suspect has 2 scores and heldout has 3"),
        ((SUSPECT[:, :3], HELDOUT), {}, "suspect needs at least 4 items with all scores, two in each half; got 3"),
        ((SUSPECT[0], HELDOUT), {}, "suspect must be two-dimensional"),
        ((SUSPECT, HELDOUT), {"test": "z"}, "test must be one of"),
        ((SUSPECT, HELDOUT), {"key": 3}, "key must be a PRNG key"),
        ((SUSPECT, HELDOUT), {"num_splits": 0}, "num_splits must be a whole number"),
        ((SUSPECT, np.where(HELDOUT > 2, np.inf, HELDOUT)), {}, "heldout"),
    ],
)
def test_messages(arguments, options, words):
    with pytest.raises(InputError, match=words):
        dataset_inference(*arguments, **{"key": KEY, **options})


def test_the_smallest_p_value():
    sizes = SUSPECT.shape[1], HELDOUT.shape[1]
    for num_splits, factor in ((1, 1), (3, 1.5), (5, 5 / 3), (10, 2)):
        smallest = log_smallest_p(*sizes, num_splits=num_splits, num_draws=99)
        assert np.exp(smallest) == pytest.approx(factor / 100)
    found = dataset_inference(SUSPECT - 99, HELDOUT, key=KEY, num_splits=10, num_draws=99)
    assert float(found.log_p_value) == pytest.approx(smallest, abs=1e-6)


def test_the_direction_is_that_of_the_evidence():
    """Noise that scores share is subtracted by negative weights, which do not turn the direction."""
    rng = np.random.default_rng(5)
    noise, own = rng.normal(size=(2, 60)), 0.2 * rng.normal(size=(2, 60))
    unlike, like = (np.stack([one + shift, one, one + 0.05]) for one, shift in zip(noise, (0, -0.5)))
    unlike[0] += own[0]
    like[0] += own[1]
    found = jax.device_get(dataset_inference(like, unlike, key=KEY, num_splits=10, num_draws=99))
    assert float(found.p_value) < 0.05
    assert float(found.weights[0]) > 0 > float(found.weights[1:].sum())
    assert bool(found.toward_members)
    turned = jax.device_get(dataset_inference(unlike, like, key=KEY, num_splits=10, num_draws=99))
    assert float(turned.p_value) < 0.05
    assert not bool(turned.toward_members)
    np.testing.assert_allclose(turned.auc_alone + found.auc_alone, 1, rtol=1e-6)
    lower = (like[0][:, None] < unlike[0]).mean()
    assert float(found.auc_alone[0]) == pytest.approx(lower)
