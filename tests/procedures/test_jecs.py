"""JMCS and JECS as public calls, against their definitions in rational arithmetic."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_envelope as ref
from hypothesis import given, settings
from hypothesis import strategies as st

import tdd
from tdd.procedures import jecs as module
from tdd.procedures.jecs import RULES, jecs, jmcs

pytestmark = pytest.mark.filterwarnings("ignore:jecs controls")


def exact_p(calibration, scores, calibration_mask=None, mask=None):
    ranks, n = ref.max_ranks(calibration, scores, calibration_mask, mask)
    return [Fraction(r, n + 1) if r > 0 else None for r in ranks], n


def check(got, p, reject, adjusted, pi0, alpha):
    assert got.selected.tolist() == reject
    np.testing.assert_allclose(got.adjusted, adjusted, rtol=2e-6)
    np.testing.assert_allclose(got.p_values, [np.nan if x is None else float(x) for x in p], rtol=1e-6)
    assert float(got.proportion) == pytest.approx(1 - float(pi0), abs=1e-6, rel=1e-6)
    assert float(got.threshold) == pytest.approx(float(max((x for x, r in zip(p, reject) if r), default=0)))
    assert ((np.asarray(got.adjusted) <= np.float32(alpha)) == np.asarray(got.selected)).all()
    assert int(got.num_selected) == sum(reject)
    assert got.num_selected == 0 or int(got.num_selected) >= int(got.min_selections)


def panels(seed, n, m, models, values=12):
    """Tie-heavy scores; members score low under their model."""
    rng = np.random.default_rng(seed)
    calibration = rng.integers(0, values, (models, n)).astype(float)
    member = rng.random((models, m)) < 0.25
    scores = np.where(member, rng.integers(0, values, (models, m)), rng.integers(values - 3, values + 4, (models, m)))
    return calibration, scores.astype(float)


SMALL, USUAL, ALONE = (14, 26, 2), (39, 40, 2), (60, 33, 1)
SIZES = [(1, 1, 1), SMALL, (39, 40, 3), ALONE]
"""Most tests take `SMALL`, `USUAL` or `ALONE`, so that a procedure is compiled once for each."""


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.slow("long")
def test_jmcs_random_cases(rule):
    selected = 0
    for seed in range(24):
        n, m, models = SIZES[seed % 4]
        calibration, scores = panels(seed, n, m, models)
        alpha = (0.05, 0.2, 0.5)[seed % 3]
        got = jmcs(calibration, scores, alpha=alpha, rule=rule)
        p, n = exact_p(calibration, scores)
        check(got, p, *ref.jmcs(p, alpha, n, rule), alpha)
        selected += int(got.num_selected)
    assert selected > 0


@pytest.mark.slow("long")
def test_jecs_random_cases():
    kinds = {"line": 0, "tail": 0, "not fitted": 0}
    for seed in range(32):
        n, m, models = SIZES[seed % 4]
        calibration, scores = panels(seed, n, m, models)
        alpha = (0.1, 0.3, 0.7)[seed % 3]
        got = jecs(calibration, scores, alpha=alpha)
        p, n = exact_p(calibration, scores)
        reject, adjusted, found, _ = ref.jecs(p, alpha)
        check(got, p, reject, adjusted, found["pi0"], alpha)
        if not got.envelope.fitted:
            kinds["not fitted"] += 1
        elif got.num_selected:
            kinds["tail" if got.threshold > got.envelope.tau else "line"] += 1
    assert min(kinds.values()) > 0, kinds


@pytest.mark.parametrize("neighbours", [lambda size: 1, lambda size: -(-(size**2) // 100), lambda size: size])
@pytest.mark.slow("long")
def test_any_number_of_neighbours(neighbours):
    """k = 1, k = N and one in between, against the definition; the envelope is another than that of ceil(sqrt(N))."""
    fitted = other = 0
    for seed in range(6):
        calibration, scores = panels(seed, *USUAL)
        got = jecs(calibration, scores, alpha=0.3, neighbours=neighbours)
        p, _ = exact_p(calibration, scores)
        reject, adjusted, found, _ = ref.jecs(p, 0.3, neighbours=neighbours)
        check(got, p, reject, adjusted, found["pi0"], 0.3)
        fitted += bool(got.envelope.fitted)
        other += found["slope"] != ref.jecs(p, 0.3)[2]["slope"]
    assert fitted
    assert other


@pytest.mark.parametrize("size", [9, 10, 11])
@pytest.mark.slow("long")
def test_neighbours_at_the_smallest_tails(size):
    """All candidates in the tail: k is asked for from ten on, where a grid point qualifies."""
    asked = []

    def neighbours(above):
        asked.append(above)
        return above

    scores = np.zeros((1, size)) - np.arange(size)
    got = jecs([[9.0, 9.0, 9.0, 9.0]], scores, alpha=0.5, neighbours=neighbours)
    assert asked == list(range(10, size + 1))
    assert bool(got.envelope.fitted) == (size >= 10)
    assert int(got.envelope.anchor.near) == size


@pytest.mark.slow("long")
def test_neighbours_as_the_default():
    """ceil(sqrt(N)) spelled out decides as the default does; the record says which k was taken."""
    calibration, scores = panels(4, *USUAL)
    plain, same = (jecs(calibration, scores, alpha=0.5, neighbours=k) for k in (None, ref.ceil_sqrt))
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "N/k" in same.guarantee.assumes[-1]
    assert "N/k" not in plain.guarantee.assumes[-1]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=2 * 14, max_size=2 * 14),
    st.lists(st.integers(-3, 6), min_size=2 * 26, max_size=2 * 26),
    st.sampled_from([0.1, 0.25, 0.5, 0.9]),
)
@pytest.mark.slow("long")
def test_any_small_integers(calibration, scores, alpha):
    calibration = np.array(calibration, float).reshape(2, -1)
    scores = np.array(scores, float).reshape(2, -1)
    p, n = exact_p(calibration, scores)
    reject, adjusted, found, _ = ref.jecs(p, alpha)
    check(jecs(calibration, scores, alpha=alpha), p, reject, adjusted, found["pi0"], alpha)
    check(jmcs(calibration, scores, alpha=alpha), p, *ref.jmcs(p, alpha, n), alpha)


@pytest.mark.slow("long")
def test_one_model_is_ptdi_with_the_null_reversed():
    """K = 1: JMCS is BH on conformal p-values of the null "member"."""
    calibration, scores = panels(3, *ALONE)
    for rule, proportion in (("bh", "none"), ("storey", "storey")):
        joint = jmcs(calibration, scores, alpha=0.3, rule=rule, eta=0.25)
        single = tdd.ptdi(-calibration[0], -scores[0], alpha=0.3, proportion=proportion, eta=0.25)
        np.testing.assert_array_equal(joint.selected, single.selected)
        np.testing.assert_array_equal(joint.adjusted, single.adjusted)
        assert joint.min_selections == single.min_selections
        assert joint.num_selected > 0


def test_by_is_by_on_the_largest_p_values():
    """The harmonic sum is a fraction where it fits 32 bits, and within 2^-25 of it beyond; never below it."""
    top, bottom = module.harmonic(3000)
    exact, fits = Fraction(0), 0
    for m in range(1, 3001):
        exact += Fraction(1, m)
        got = Fraction(int(top[m]), int(bottom[m]))
        assert exact <= got <= exact + Fraction(1, 2**25)
        fits += got == exact
    assert fits >= 20
    calibration, scores = panels(5, *USUAL, values=2000)
    got = jmcs(calibration, scores + 500, alpha=0.5, rule="by")
    step = tdd.by(np.asarray(got.p_values), 0.5)
    np.testing.assert_array_equal(got.selected, step.reject)
    assert got.num_selected > 0


def left_out():
    """Items of the usual sizes without which the small sizes remain."""
    rng = np.random.default_rng(0)
    return rng.permutation(39) >= 14, rng.permutation(40) >= 26


@pytest.mark.parametrize("call", [jmcs, jecs])
@pytest.mark.slow("long")
def test_nan_in_one_model_leaves_the_item_out(call):
    calibration, scores = panels(2, *USUAL)
    out_c, out_s = left_out()
    holed, missing = scores.copy(), calibration.copy()
    holed[np.arange(14) % 2, np.flatnonzero(out_s)] = np.nan
    missing[np.arange(25) % 2, np.flatnonzero(out_c)] = np.nan
    got = call(missing, holed, alpha=0.4)
    cut = call(calibration[:, ~out_c], scores[:, ~out_s], alpha=0.4)
    assert got.num_tests == 26
    assert got.num_calibration == 14
    np.testing.assert_array_equal(np.asarray(got.selected)[~out_s], cut.selected)
    assert np.isnan(np.asarray(got.adjusted)[out_s]).all()
    assert np.isnan(np.asarray(got.p_values)[out_s]).all()
    assert np.isnan(np.asarray(got.envelope.value)[out_s]).all()
    assert not np.asarray(got.selected)[out_s].any()


@pytest.mark.parametrize("call", [jmcs, jecs])
def test_masks_are_absence(call):
    calibration, scores = panels(4, *USUAL)
    keep_c, keep_s = (~out for out in left_out())
    masked = call(calibration, scores, alpha=0.5, calibration_mask=keep_c, mask=keep_s)
    cut = call(calibration[:, keep_c], scores[:, keep_s], alpha=0.5)
    np.testing.assert_array_equal(np.asarray(masked.selected)[keep_s], cut.selected)
    np.testing.assert_allclose(np.asarray(masked.adjusted)[keep_s], cut.adjusted, rtol=1e-6)
    assert float(masked.envelope.tau) == float(cut.envelope.tau)
    assert min(int(masked.min_selections), 1 + int(keep_s.sum())) == cut.min_selections


@pytest.mark.parametrize("call", [jmcs, jecs])
def test_empty_test_set(call):
    got = call([[1.0, 2.0]] * 2, np.zeros((2, 0)), alpha=0.1)
    assert got.selected.shape == (0,)
    assert got.num_tests == 0


def test_scale_and_order_of_float64_survive():
    """Models live on scales of their own, and differences below float32's resolution count."""
    calibration, scores = panels(6, *USUAL)
    unit = np.array([[1e-9], [1e8]])
    shifted = jecs(1 + calibration * unit, 1 + scores * unit, alpha=0.4)
    plain = jecs(calibration, scores, alpha=0.4)
    np.testing.assert_array_equal(shifted.p_values, plain.p_values)
    np.testing.assert_array_equal(shifted.selected, plain.selected)


@pytest.mark.parametrize("call", [jmcs, jecs])
@pytest.mark.slow("long")
def test_traced_level_and_vmap(call):
    calibration, scores = panels(7, *USUAL)
    levels = [0.05, 0.1, 0.2, 0.5]
    many = jax.jit(jax.vmap(lambda alpha: call(jnp.asarray(calibration), jnp.asarray(scores), alpha=alpha).selected))(
        np.array(levels)
    )
    for alpha, row in zip(levels, np.asarray(many), strict=True):
        np.testing.assert_array_equal(row, call(calibration, scores, alpha=alpha).selected)
    batch = jax.vmap(lambda c, s: call(c, s, alpha=0.2).selected)(
        np.stack([calibration, calibration[::-1]]), np.stack([scores, scores[::-1]])
    )
    batch = np.asarray(batch)
    np.testing.assert_array_equal(batch[0], batch[1])
    assert batch.any()


@pytest.mark.parametrize("call", [jmcs, jecs])
@pytest.mark.slow("long")
def test_result_is_a_pytree_with_static_words(call):
    got = jax.jit(lambda c, s: call(c, s, alpha=0.1))(np.ones((2, 5), np.float32), np.ones((2, 4), np.float32))
    assert got.method.startswith(call.__name__)
    assert got.null == "member"
    assert "GCR" in got.guarantee.controls
    assert got.guarantee.kind == ("finite-sample" if call is jmcs else "asymptotic")
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(got))


@pytest.mark.slow("long")
def test_one_compilation_for_all_levels():
    before = module._jecs._cache_size(), module._jmcs._cache_size()
    for alpha in (0.06, 0.11, 0.21, 0.31):
        jecs(*panels(0, *SMALL), alpha=alpha)
        jmcs(*panels(0, *SMALL), alpha=alpha)
    assert module._jecs._cache_size() - before[0] <= 1
    assert module._jmcs._cache_size() - before[1] <= 1


@pytest.mark.filterwarnings("error")
@pytest.mark.slow("long")
def test_few_calibration_items_are_warned_of():
    with pytest.warns(UserWarning, match="2 calibration items for 3 candidates"):
        jecs([[1.0, 2.0, np.nan]], np.ones((1, 3)), alpha=0.1)
    with pytest.warns(UserWarning, match="1000 calibration items for 3000"):
        module._warn_if_few(1000, 3000)
    module._warn_if_few(1000, 100)
    jax.eval_shape(lambda c, s: jecs(c, s, alpha=0.1).selected, np.ones((1, 7)), np.ones((1, 3)))


@pytest.mark.parametrize("call", [jmcs, jecs])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alpha": 0}, ("alpha", "0")),
        ({"alpha": "a"}, ("alpha", "'a'")),
        ({"calibration": [1.0, 2.0]}, ("calibration", "models", "(2,)")),
        ({"scores": [[1.0], [2.0]]}, ("calibration has 1 models", "scores has 2")),
        ({"scores": [[1.0, np.inf]]}, ("scores[0, 1]", "inf")),
        ({"calibration": [[]]}, ("calibration", "empty")),
        ({"calibration": [[np.nan, np.nan]]}, ("calibration", "no real item")),
        ({"scores": [["a", "b"]]}, ("scores", "numbers")),
        ({"mask": [True]}, ("mask", "(1,)", "(2,)")),
        ({"calibration_mask": [1, 0, 1]}, ("calibration_mask", "boolean")),
    ],
    ids=str,
)
def test_bad_input(call, change, words):
    arguments = {"calibration": [[1.0, 2.0, 3.0]], "scores": [[0.0, 5.0]], "alpha": 0.1} | change
    with pytest.raises(tdd.InputError) as error:
        call(arguments.pop("calibration"), arguments.pop("scores"), **arguments)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("call", "options", "words"),
    [
        (jmcs, {"rule": "magic"}, ("rule", "'magic'", "'storey'")),
        (jmcs, {"rule": "storey", "eta": 1.0}, ("eta", "1.0")),
        (jecs, {"grid": ()}, ("grid", "at least one")),
        (jecs, {"grid": 0.5}, ("grid", "0.5")),
        (jecs, {"grid": (0.5, 1.5)}, ("grid[1]", "1.5")),
        (jecs, {"grid": (jnp.float32(0.5),)}, ("grid[0]", "static")),
        (jecs, {"grid": (Fraction(1, 999_999_937),)}, ("grid", "999999937")),
    ],
)
def test_bad_options(call, options, words):
    with pytest.raises(tdd.InputError) as error:
        call([[1.0, 2.0, 3.0]], [[0.0, 5.0]], alpha=0.1, **options)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("neighbours", "words"),
    [
        (5, "must be a function from N to k"),
        (lambda size: 0, "neighbours(10) must be a whole number in 1..10, got 0"),
        (lambda size: size + (size > 11), "neighbours(12) must be a whole number in 1..12, got 13"),
        (lambda size: size**0.5, "got 3.16"),
        (lambda size: True, "got True"),
    ],
)
def test_bad_neighbours(neighbours, words):
    with pytest.raises(tdd.InputError) as error:
        jecs([[1.0, 2.0, 3.0]], np.ones((1, 12)), alpha=0.1, neighbours=neighbours)
    assert words in str(error.value)


@pytest.mark.slow("long")
def test_the_law_for_every_type_of_level():
    calibration, scores = panels(8, *USUAL)
    for wide in (False, True):
        with jax.enable_x64(wide):
            for alpha in (0.7, np.float32(0.7), jnp.float32(0.1)):
                for call in (jmcs, jecs):
                    got = call(calibration, scores, alpha=alpha)
                    assert (np.asarray(got.selected) == (np.asarray(got.adjusted) <= np.asarray(alpha))).all()


@pytest.mark.slow("long")
def test_few_calibration_items_leave_nothing_to_select():
    """Three calibration items, tau = .1: no rank lies on the line, and the resolution says so."""
    scores = np.full((1, 40), 9.0)
    scores[0, 20:] = np.arange(20) % 4
    got = jecs([[1.0, 2.0, 3.0]], scores, alpha=0.2, grid=(0.1,))
    assert bool(got.envelope.fitted)
    assert got.num_selected == 0
    assert got.min_selections > 40
