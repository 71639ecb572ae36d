"""Decisions on many families at once: equal to those of one family after another, in every way of calling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import false_discovery_control
from statsmodels.stats.multitest import multipletests

import tdd
from tdd.procedures import step_up_calls
from tdd.procedures.step_up_calls import PROCEDURES
from tdd.validate import InputError

M = 30
"""Items of a family: the same everywhere, so that one family after another is compiled once."""


def drawn(*shape, seed=0):
    p = np.random.default_rng(seed).random(shape)
    p[..., : shape[-1] // 4] **= 6
    return p


def looped(p, alpha, procedure="bh", mask=None, **options):
    call = getattr(tdd, procedure)
    rows = p.reshape(-1, p.shape[-1])
    masks = [None] * len(rows) if mask is None else np.broadcast_to(mask, p.shape).reshape(rows.shape)
    found = [np.asarray(call(row, alpha, mask=own, **options).reject) for row, own in zip(rows, masks, strict=True)]
    return np.array(found).reshape(p.shape)


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_equal_one_family_after_another(procedure):
    p = drawn(3, 2, M).astype(np.float32)
    p[1, 0, 5] = np.nan
    mask = np.arange(M) % 5 > 0
    expected = looped(p, 0.2, procedure, mask)
    for given in (mask, np.broadcast_to(mask, p.shape), jnp.asarray(mask)):
        np.testing.assert_array_equal(tdd.rejections(p, 0.2, procedure=procedure, mask=given), expected)
    assert expected.any()


def test_other_implementations():
    p = drawn(60, 200)
    found = np.asarray(tdd.rejections(p, 0.1))
    np.testing.assert_array_equal(found, false_discovery_control(p, axis=-1) <= 0.1)
    np.testing.assert_array_equal(found, [multipletests(row, 0.1, method="fdr_bh")[0] for row in p])


def test_every_way_of_calling():
    p = drawn(9, M).astype(np.float32)
    expected = looped(p, 0.1)
    calls = {
        "numpy": lambda p: tdd.rejections(p, 0.1),
        "jax": lambda p: tdd.rejections(jnp.asarray(p), 0.1),
        "lists": lambda p: tdd.rejections(p.tolist(), 0.1),
        "jit": jax.jit(lambda p: tdd.rejections(p, 0.1)),
        "vmap": jax.vmap(lambda p: tdd.rejections(p, 0.1)),
        "traced level": jax.jit(lambda p: jax.vmap(lambda level: tdd.rejections(p, level))(jnp.array([0.1]))[0]),
        "traced level, known values": lambda p: jax.jit(lambda level: tdd.rejections(p, level))(jnp.float32(0.1)),
        "all of it": lambda p: tdd.bh(p, 0.1).reject,
    }
    for name, call in calls.items():
        np.testing.assert_array_equal(call(p), expected, err_msg=name)
    np.testing.assert_array_equal(tdd.rejections(p[0], 0.1, mask=np.ones(M, bool)), expected[0])
    assert expected.any()


def test_results_keep_the_leading_axes():
    p = drawn(2, 3, M)
    step = tdd.storey_bh(p, 0.1)
    assert (step.adjusted.shape, step.null_proportion.shape, step.num_rejected.shape) == ((2, 3, M), (2, 3), (2, 3))
    np.testing.assert_array_equal(step.reject, np.asarray(step.adjusted) <= np.float32(0.1))
    for i in range(2):
        for j in range(3):
            one = tdd.storey_bh(p[i, j], 0.1)
            np.testing.assert_allclose(np.asarray(step.adjusted)[i, j], one.adjusted, rtol=3e-7)
            assert np.asarray(step.num_rejected)[i, j] == one.num_rejected


@pytest.mark.parametrize(("rows", "step"), [(7, 3), (6, 3), (3, 3), (2, 3), (1, 1), (5, 1), (4, 3)])
def test_pieces(rows, step, monkeypatch):
    monkeypatch.setattr(step_up_calls, "PIECE_ITEMS", step * M)
    p, mask = drawn(rows, M), drawn(rows, M, seed=1) < 0.9
    np.testing.assert_array_equal(tdd.rejections(p, 0.3, mask=mask), looped(p, 0.3, mask=mask))
    assert len(jax.tree.leaves(step_up_calls.in_pieces(lambda p, mask: (p, p[:, 0]), p, None))) == 2
    np.testing.assert_array_equal(step_up_calls.in_pieces(lambda p, mask: p, p, None), p)


def test_double_precision_is_kept():
    p = np.array([[0.1 / 3 * (1 - 1e-12), 0.9, 0.9], [0.1 / 3 * (1 + 1e-12), 0.9, 0.9]])
    assert tdd.rejections(p, 0.1).sum(axis=-1).tolist() == [1, 0]
    assert tdd.bh(p, 0.1).num_rejected.tolist() == [1, 0]


def test_sizes():
    assert tdd.rejections(np.zeros((0, 5)), 0.1).shape == (0, 5)
    assert tdd.rejections(np.zeros((2, 0)), 0.1).shape == (2, 0)
    assert tdd.rejections([], 0.1).shape == (0,)
    assert tdd.rejections([[0.05], [0.2]], 0.05).tolist() == [[True], [False]]
    assert tdd.rejections(np.array([[0, 1], [1, 1]]), 0.05).tolist() == [[True, False], [False, False]]
    assert tdd.rejections(np.zeros((0, 5)), 0.1, mask=np.ones(5, bool)).shape == (0, 5)


def test_options():
    p = drawn(4, M)
    options = {"lambda_": 0.3, "cap": True}
    found = tdd.rejections(p, 0.2, procedure="storey_bh", **options)
    np.testing.assert_array_equal(found, looped(p, 0.2, "storey_bh", **options))
    found = tdd.rejections(p, 0.2, procedure="two_stage_bh", variant="bh")
    np.testing.assert_array_equal(found, looped(p, 0.2, "two_stage_bh", variant="bh"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tdd.rejections([[0.1, 1.5]], 0.1), r"p_values\[0, 1\] is 1.5; p-values must lie in \[0, 1\] \(1 of 2"),
        (lambda: tdd.rejections([0.1, -0.5], 0.1), r"p_values\[1\] is -0.5"),
        (lambda: tdd.rejections(jnp.array([[2.0]]), 0.1), r"p_values\[0, 0\] is 2"),
        (lambda: tdd.bh(np.full((3, 2), 1.5), 0.1), r"p_values\[0, 0\] is 1.5"),
        (lambda: jax.jit(lambda a: tdd.bh([0.1, 7.0], a))(0.1), r"p_values\[1\] is 7"),
        (lambda: tdd.rejections(0.5, 0.1), "items along a last axis"),
        (lambda: tdd.rejections([[0.5], [0.1, 0.2]], 0.1), "array of numbers"),
        (lambda: tdd.rejections([[0.5]], 1.5), "alpha"),
        (lambda: tdd.rejections([[0.5]], 0.1, mask=[True, False]), "mask has shape"),
        (lambda: tdd.rejections([[0.5]], 0.1, procedure="BH"), "procedure must be one of 'bh'"),
        (lambda: tdd.rejections([[0.5]], 0.1, lambda_=0.5), "bh has no option 'lambda_'; its options: none"),
        (lambda: tdd.rejections([[0.5]], 0.1, procedure="storey_bh", variant="bh"), "its options: lambda_, cap"),
        (lambda: tdd.rejections([[0.5]], 0.1, procedure="storey_bh", lambda_=1), "lambda_ must be"),
        (lambda: tdd.rejections([[0.5]], 0.1, procedure="two_stage_bh", variant="x"), "variant must be"),
    ],
)
def test_messages(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_masked_values_are_checked_and_the_same_program_serves_every_level():
    with pytest.raises(InputError, match="is 3"):
        tdd.rejections([[0.1, 3.0]], 0.1, mask=[[True, False]])
    p = drawn(9, M).astype(np.float32)
    tdd.rejections(p, 0.1)
    with jax.check_tracer_leaks():
        assert tdd.rejections(p, 0.999).all()


@pytest.mark.parametrize("name", ["bh", "by", "holm", "hommel", "sidak", "holm_sidak", "storey_bh", "two_stage_bh"])
def test_results_in_single_precision_agree_with_decisions_in_double(name):
    """The threshold is not rounded past the largest rejected p-value, and nothing above 0 becomes 0."""
    tiny = getattr(tdd, name)(np.array([1e-300, 1e-45, 0.2]), 0.05)
    assert float(tiny.threshold) > 0
    assert (np.asarray(tiny.adjusted) > 0).all()
    for seed in range(20):
        p = np.random.default_rng(seed).random(12) ** 4
        result = getattr(tdd, name)(p, 0.3)
        assert np.array_equal(p <= float(result.threshold), result.reject)


def test_the_threshold_of_e_values_is_not_above_the_smallest_rejected_one():
    for seed in range(20):
        e = np.random.default_rng(seed).pareto(0.5, 12) * 20
        result = tdd.e_bh(e, 0.3)
        assert np.array_equal(e >= float(result.threshold), result.reject)
