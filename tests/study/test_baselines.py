"""Thresholds from validation items against a search over all of them, and the AUC against its pairs."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd
from tdd.kernels import lattice
from tdd.study import Sample, baselines
from tdd.study.baselines import RULES, auc, threshold
from tdd.study.methods import method

NULLS = ("nonmember", "member")


def searched(validation, is_target, scores, null, rule, alpha):
    """Selected candidates: every threshold is tried, from the one that selects fewest on."""
    sign = 1 if null == "nonmember" else -1
    own = [(sign * v, t) for v, t in zip(validation, is_target) if not np.isnan(v)]
    nulls = sum(not t for _, t in own)
    best, found = 0, None
    for cut in sorted({v for v, _ in own}):
        right = sum(t for v, t in own if v <= cut)
        false = sum(not t for v, t in own if v <= cut)
        if rule == "accuracy":
            gain = right - false
        elif rule == "fdr":
            gain = right if false <= alpha * (right + false) else 0
        else:
            gain = right + false if false <= alpha * nulls else 0
        if gain > best:
            best, found = gain, cut
    return [found is not None and sign * s <= found for s in scores]


def drawn(seed, v=30, m=25):
    """Tie-heavy scores that tell targets apart, somewhat; some are missing."""
    rng = np.random.default_rng(seed)
    is_target = rng.random(v) < 0.5
    validation = np.round(rng.normal(size=v) * 3 - 3 * is_target)
    validation[rng.random(v) < 0.1] = np.nan
    return validation, is_target, np.round(rng.normal(size=m) * 3 - 1.5)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("null", NULLS)
def test_every_threshold_is_tried(rule, null):
    """Levels at which counts are equal to the bound included."""
    some = 0
    for seed in range(6):
        validation, is_target, scores = drawn(seed)
        is_target = is_target if null == "nonmember" else ~is_target
        for alpha in (Fraction(1, 10), Fraction(1, 5), Fraction(1, 3)):
            level = {} if rule == "accuracy" else {"alpha": alpha}
            got = threshold(validation, is_target, scores, null=null, rule=rule, **level)
            assert got.selected.tolist() == searched(validation, is_target, scores, null, rule, alpha)
            assert got.num_selected == got.selected.sum()
            assert got.num_validation == np.isfinite(validation).sum()
            some += int(got.num_selected)
    assert some > 0


def test_equality_is_decided_exactly():
    """One false among eleven selected at alpha = 1/11, as a fraction, just below it, and in single precision."""
    validation, is_target, scores = np.arange(11.0), np.arange(11) != 9, [9.5, 7.5, 10.0]
    found = [
        threshold(validation, is_target, scores, null="nonmember", rule="fdr", alpha=alpha).selected.tolist()
        for alpha in (Fraction(1, 11), 0.0909, jnp.float32(1 / 11))
    ]
    assert found == [[True, True, True], [False, True, False], [True, True, True]]


@pytest.mark.parametrize("rule", RULES)
def test_smallest_sizes(rule):
    level = {} if rule == "accuracy" else {"alpha": 0.2}
    for target in (True, False):
        got = threshold([1.0], [target], [1.0, 2.0, np.nan], null="nonmember", rule=rule, **level)
        assert got.selected.tolist() == [target, False, False]
        assert got.num_tests == 2
    assert threshold([1.0], [True], np.zeros(0), null="member", rule=rule, **level).selected.shape == (0,)


def test_masks_are_absence_and_orders_survive():
    """Masked items change nothing; float64 scores keep their order; unsigned integers turn without a wrap."""
    validation, is_target, scores = drawn(3)
    scores[4] = np.nan
    kept, real = np.arange(30) % 4 > 0, np.arange(25) % 3 > 0
    plain = threshold(validation[kept], is_target[kept], scores[real], null="member")
    masked = threshold(validation, is_target, scores, null="member", validation_mask=kept, mask=real)
    near = threshold(1 + validation * 1e-12, is_target, 1 + scores * 1e-12, null="member")
    assert np.array_equal(np.asarray(masked.selected)[real], plain.selected)
    assert not np.asarray(masked.selected)[~real].any()
    assert np.array_equal(near.selected, threshold(validation, is_target, scores, null="member").selected)
    counts = threshold(np.uint8([0, 1, 250]), [False, False, True], np.uint8([0, 249, 255]), null="member")
    assert counts.selected.tolist() == [False, False, True]


def test_traced_levels_are_the_static_ones():
    validation, is_target, scores = (jnp.asarray(x) for x in drawn(1))
    levels = (0.1, 0.2, 0.4)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(lattice.as_level, levels))

    def at(alpha):
        return threshold(validation, is_target, scores, null="nonmember", rule="fdr", alpha=alpha).selected

    batched = jax.jit(jax.vmap(at))
    exact, floats = batched(stacked), batched(jnp.asarray(levels, jnp.float32))
    for i, alpha in enumerate(levels):
        assert np.array_equal(exact[i], at(alpha))
        assert np.array_equal(floats[i], at(alpha))
    assert not batched(jnp.array([0.0, 1.0, jnp.nan])).any()


def test_the_record_says_that_nothing_is_controlled():
    for rule in RULES:
        level = {} if rule == "accuracy" else {"alpha": 0.1}
        got = jax.jit(lambda s, rule=rule, level=level: threshold([1.0], [True], s, null="member", rule=rule, **level))(
            jnp.ones(2)
        )
        assert got.guarantee.kind == "none"
        assert got.guarantee.controls.startswith("nothing: no error rate")
        assert got.method == f"threshold/{rule}"
    assert "no error rate among the candidates is controlled" in " ".join((threshold.__doc__ or "").split())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rule": "youden"}, ("rule", "'youden'", "'accuracy'")),
        ({"null": "clean"}, ("null", "'clean'")),
        ({"rule": "fdr"}, ('rule="fdr" needs alpha',)),
        ({"alpha": 0.1}, ("alpha", "accuracy")),
        ({"rule": "fpr", "alpha": 1.0}, ("alpha", "1.0")),
        ({"is_target": [True]}, ("is_target", "(1,)", "(2,)")),
        ({"is_target": [1, 0]}, ("is_target", "boolean")),
        ({"validation": [], "is_target": np.zeros(0, bool)}, ("validation", "empty")),
        ({"validation": [1.0, np.inf]}, ("validation[1]", "inf")),
        ({"scores": [[1.0]]}, ("scores",)),
    ],
    ids=str,
)
def test_bad_input(change, words):
    arguments = {"validation": [1.0, 2.0], "is_target": [True, False], "scores": [1.0], "null": "nonmember"} | change
    with pytest.raises(tdd.InputError) as error:
        threshold(**arguments)
    for word in words:
        assert word in str(error.value)


def test_auc_is_the_share_of_pairs():
    compiled = jax.jit(auc)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        evidence, target = np.round(rng.normal(size=30) * 2).astype(np.float32), rng.random(30) < 0.4
        evidence[rng.random(30) < 0.1] = np.nan
        real = ~np.isnan(evidence)
        pairs = [(a > b) + 0.5 * (a == b) for a in evidence[real & target] for b in evidence[real & ~target]]
        assert float(compiled(evidence, target)) == pytest.approx(np.mean(pairs))
    assert np.isnan(compiled(np.ones(3, np.float32), np.ones(3, bool)))
    assert np.isnan(compiled(np.ones(0, np.float32), np.ones(0, bool)))


def test_a_threshold_as_a_method_of_a_study():
    """One row of scores, or one of several by its number."""
    validation, is_target, scores = (jnp.asarray(x) for x in drawn(2))
    extra = {"validation": validation, "validation_target": is_target}
    one = Sample(jnp.zeros(1), scores, scores < 0, extra=extra)
    rows = {"validation": jnp.stack([-validation, validation]), "validation_target": is_target}
    two = Sample(jnp.zeros((2, 1)), jnp.stack([-scores, scores]), scores < 0, extra=rows)
    key, level = jax.random.key(0), lattice.as_level(0.2)
    for rule in RULES:
        given = {} if rule == "accuracy" else {"alpha": 0.2}
        expected = threshold(validation, is_target, scores, null="nonmember", rule=rule, **given).selected
        alone = method(f"threshold/{rule}").select(key, one, level, null="nonmember")
        second = method(f"threshold/{rule}", detector=1).select(key, two, level, null="nonmember")
        assert np.array_equal(alone, expected)
        assert np.array_equal(second, expected)
    for sample, options, null in ((two, {}, "nonmember"), (one, {"detector": 0}, "nonmember"), (one, {}, None)):
        with pytest.raises(tdd.InputError, match="threshold/fdr needs a design with a field null, and detector"):
            method("threshold/fdr", **options).select(key, sample, level, null=null)
    assert baselines.GUARANTEES.keys() == set(RULES)
