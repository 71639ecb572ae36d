"""Studies of training sets and blocks: their designs have the laws that they state, and tables are thinned as said."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.study.named import blocks, ktd, load, training_sets
from tdd.study.named.driver import verdict_rows
from tdd.study.named.record import Columns, StudyOptions
from tdd.study.named.thinned import Thinned

KEY = jax.random.key(0)


def given(num_scores=1, num_labels=1, num_knockoffs=0, size=40):
    rng = np.random.default_rng(0)
    labels = rng.random((num_labels, size)) < 0.5
    labels[:, : size // 4] = True
    return Columns(
        source="a table",
        sha256="0" * 64,
        names=tuple(f"s{i}" for i in range(num_scores)),
        scores=rng.normal(size=(num_scores, size)) - 2 * labels.any(0),
        labels=labels,
        knockoffs=rng.normal(size=(size, num_knockoffs)),
    )


def test_a_linear_system_and_a_root_without_lapack():
    rng = np.random.default_rng(0)
    square, right = rng.normal(size=(12, 12)), rng.normal(size=(12, 3))
    a = square @ square.T + 12 * np.eye(12)  # condition number below 5
    solved, root = training_sets._solve(jnp.array(a), jnp.array(right)), training_sets._cholesky(jnp.array(a))
    np.testing.assert_allclose(solved, np.linalg.solve(a, right), rtol=0, atol=12 * 5 * 2**-23)
    np.testing.assert_allclose(root, np.linalg.cholesky(a), rtol=0, atol=12 * np.linalg.norm(a) ** 0.5 * 2**-23)


@pytest.mark.parametrize("factor", [1, pytest.param(2, marks=pytest.mark.slow("long")), 16])
def test_residuals_of_least_squares_are_those_of_its_theory(factor):
    """N items and d inputs: E = 1 - d/N in the training set, 1 + d/(N - d - 1) outside."""
    design = training_sets.LeastSquares(factor)
    sample = jax.jit(jax.vmap(design.draw))(jax.random.split(KEY, 60))
    scores, copies = np.asarray(sample.scores), np.asarray(sample.extra["knockoffs"])
    member = np.asarray(sample.target)[0]
    assert member.sum() == 100
    size, inputs = 100 * factor, training_sets.INPUTS

    def check(values, expected):
        """Six standard errors; draws are independent, items of a draw are not."""
        means = values.reshape(60, -1).mean(axis=1)
        assert abs(means.mean() - expected) < 6 * means.std(ddof=1) / np.sqrt(60)

    check(scores[:, member], 1 - inputs / size)
    for new in (scores[:, ~member], copies[:, ~member]):
        check(new, 1 + inputs / (size - inputs - 1))
    near, far = copies[:, member].mean(), copies[:, ~member].mean()
    assert scores[:, member].mean() < near < far  # a paraphrase shares a half of what was learned


def test_the_rest_alone_is_contaminated():
    sample = jax.jit(blocks.ThreeBlocks(0.3).draw)(KEY)
    member = np.asarray(sample.extra["member"])
    assert sample.calibration.shape == (5, 600)
    assert not member[:, : blocks.CLEAN].any()
    rest = member[:, blocks.CLEAN :]
    assert abs(rest.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / rest.size)
    assert np.array_equal(sample.target, ~member.any(0))
    assert np.asarray(sample.scores)[member].mean() == pytest.approx(-3, abs=0.5)


def test_few_members_are_as_few_as_the_ratio():
    for design, count in (ktd.AnyLaw(ratio=0.01, num_tests=training_sets.NUM_MIXED), 10), (ktd.AnyLaw(), 100):
        assert int(jax.jit(lambda key, design=design: design.draw(key).target.sum())(KEY)) == count


def test_a_table_is_thinned():
    pool = ktd.from_table(given(num_knockoffs=2))
    thinned = Thinned
    plain = jax.jit(thinned(pool).draw)(KEY)
    assert np.asarray(plain.mask).all()
    assert thinned(pool).null == "nonmember"
    fifth = np.asarray(jax.jit(thinned(pool, factor=5).draw)(KEY).mask)
    assert fifth.tolist() == [True] * 4 + [False] * 16
    few = jax.jit(thinned(pool, ratio=0.25).draw)(KEY)
    kept, target = np.asarray(few.mask), np.asarray(few.target)
    assert kept[~target].all()
    assert kept[target].sum() == (~target).sum() // 4
    none = jax.jit(thinned(pool, training_fraction=0.0).draw)(KEY)
    assert np.array_equal(none.mask, none.target)


def test_bounds_of_the_studies():
    told, table = StudyOptions(64, (0.2,)), StudyOptions(64, (0.2,), columns=given(1, 1, 2))
    for name in ("ktd-dilution", "ktd-imbalance"):
        kinds = {rule: load(name).bound(told, {}, rule).kind for rule in ktd.RULES}
        assert kinds == {"ktd/ktd": "none", "ktd/multi": "finite-sample", "ktd/derandomized": "finite-sample"}
        assert load(name).bound(table, {}, "ktd/multi").kind == "none"
        assert "a table" in load(name).describe(table)
    study = load("jecs-training-fraction")
    assert [study.bound(told, {}, name).kind for name in ("jecs", "jmcs/bh")] == ["asymptotic", "finite-sample"]
    assert "kept with this probability" in study.describe(StudyOptions(64, (0.2,), columns=given(2, 2)))


@pytest.mark.slow("long")
@pytest.mark.parametrize("name", ["ktd-dilution", "ktd-imbalance", "jecs-training-fraction"])
@pytest.mark.parametrize("table", [False, True])
def test_the_studies_keep_their_bounds(name, table):
    columns = {"jecs": given(2, 2)}.get(name.partition("-")[0], given(1, 1, 2)) if table else None
    study, told = load(name), StudyOptions(128, (0.2,), columns=columns)
    result = study.run(told)
    assert len(result.cells) == {"ktd-dilution": 7, "ktd-imbalance": 5 if table else 15}.get(name, 5)
    assert "ABOVE" not in {row["verdict"] for row in verdict_rows(study, told, result)}
    assert np.isfinite(result.fdr).all()
    assert table or result.power.max() > 0.5
