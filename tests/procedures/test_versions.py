"""The data owner's test against a listing of all draws; polarity, ties, missing scores and messages."""

import itertools

import jax
import numpy as np
import pytest

import tdd
from tdd.procedures.owner import VERSION_GUARANTEES
from tdd.validate import InputError


def listed(published, private):
    """P(sum of ranks >= the one that was seen), over all (k + 1)^n equally likely draws; ties against detection."""
    versions = np.column_stack([published, private])
    ranks = (versions[:, :, None] < versions[:, None, :]).sum(2)  # versions that each one undercuts
    seen = ranks[:, 0].sum()
    k = private.shape[1]
    draws = [sum(draw) for draw in itertools.product(range(k + 1), repeat=len(published))]
    return np.mean(np.array(draws) >= seen)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 4), (3, 2), (5, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_p_value(n, k, seed):
    rng = np.random.default_rng(seed)
    published, private = rng.integers(0, 6, n).astype(float), rng.integers(0, 6, (n, k)).astype(float)
    result = tdd.version_test(published, private)
    np.testing.assert_allclose(result.p_value, listed(published, private), rtol=1e-6)
    assert result.shard_ranks.tolist() == (published[:, None] < private).sum(1).tolist()
    assert result.method == "version_test/rank_sum"


@pytest.mark.parametrize("test", VERSION_GUARANTEES)
def test_low_scores_of_published_versions_are_evidence(test):
    rng = np.random.default_rng(1)
    private = rng.normal(3.0, 0.3, (20, 9))
    known, fresh = private.mean(1) - rng.uniform(0.2, 0.4, 20), rng.normal(3.0, 0.3, 20)
    small, large, opposite = (
        float(tdd.version_test(scores, private, test=test, key=jax.random.key(0)).p_value)
        for scores in (known, fresh, 2 * private.mean(1) - known)
    )
    assert small < 1e-3 < large
    assert opposite > 0.99
    result = tdd.version_test(known, private, test=test, key=jax.random.key(0))
    assert result.guarantee is VERSION_GUARANTEES[test]


def test_equal_versions_are_no_evidence():
    assert float(tdd.version_test(np.ones(8), np.ones((8, 3))).p_value) == 1.0


def test_a_document_without_a_score_is_left_out():
    published, private = np.array([1.0, 1.0, np.nan]), np.array([[2.0, 3.0], [2.0, np.nan], [2.0, 3.0]])
    result = tdd.version_test(published, private)
    assert (int(result.num_shards), int(result.num_masked)) == (1, 2)
    np.testing.assert_allclose(result.p_value, 1 / 3)


def test_scores_of_versions_from_a_model():
    """From texts to a decision, with the scores of `tdd.score`."""
    from scored_models import random_texts, scored_model

    texts = random_texts(12, seed=4, shortest=6)
    scores = tdd.score(scored_model(2), texts, "loss", progress=False)["loss"].reshape(4, 3)
    result = tdd.version_test(scores[:, 0], scores[:, 1:])
    np.testing.assert_allclose(result.p_value, listed(scores[:, 0], scores[:, 1:]), rtol=1e-6)


def test_planned_power_is_that_of_the_test():
    """`tdd.study.expected_exchange_power` plans documents as shards and private versions as shuffles."""
    n, k, effect, repetitions = 12, 9, 0.6, 500
    plan = tdd.study.expected_exchange_power(
        tdd.study.ShardEffect(effect), num_shards=n, num_shuffles=k, test="rank_sum", search=False, repetitions=2_000
    )
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(repetitions, n, k + 1))
    decide = jax.jit(jax.vmap(lambda one: tdd.version_test(one[:, 0] - effect, one[:, 1:]).p_value))
    rejected = np.asarray(decide(scores.astype(np.float32))) <= 0.05
    assert abs(rejected.mean() - plan.rows[0]["power"]) < 4 * (0.25 / repetitions + 0.25 / 2_000) ** 0.5


@pytest.mark.parametrize(
    ("published", "private", "options", "message"),
    [
        ([1.0], [[1.0], [2.0]], {}, r"got \(1,\) and \(2, 1\); give every document the same number"),
        ([], np.zeros((0, 2)), {}, r"got \(0,\) and \(0, 2\)"),
        ([1.0], np.zeros((1, 0)), {}, r"got \(1,\) and \(1, 0\)"),
        ([np.inf], [[1.0]], {}, "1 of 1 scores are infinite; use NaN"),
        (
            [1.0],
            [[1.0]],
            {"test": "permutation"},
            "test must be one of 'rank_sum', 'exact', 'combined', 't'; got 'permutation'",
        ),
        ([1.0, 2.0], [[1.0, 2.0], [3.0]], {}, "private"),
        (["a"], [[1.0]], {}, "published"),
    ],
)
def test_messages(published, private, options, message):
    with pytest.raises(InputError, match=message):
        tdd.version_test(published, private, **options)
