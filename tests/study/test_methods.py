"""Every named method runs on a fitting design and decides as `tdd.<name>` does; the others are refused in words."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd
from tdd.kernels import lattice
from tdd.procedures.ptdi import PROPORTIONS
from tdd.study import (
    NAMES,
    CorrelatedDetectors,
    NormalShift,
    PairedScores,
    Pool,
    Sample,
    SkewedShards,
    baselines,
    run,
)
from tdd.study.methods import as_methods, method

ALPHAS = (0.1, 0.5, 0.8)
SINGLE = NormalShift(num_calibration=19, num_tests=12, signal=2.5)
PANEL = CorrelatedDetectors(num_detectors=3, num_calibration=19, num_tests=12, signal=2.5)
PAIRS = PairedScores(num_tests=12, num_knockoffs=2, num_calibration=19, signal=3.0)
SHARDS = SkewedShards(num_shards=6, num_shuffles=9, signal=0.6)


class Labelled:
    """`SINGLE` with validation items whose labels are known."""

    null = SINGLE.null

    def draw(self, key):
        sample, other = (SINGLE.draw(own) for own in jax.random.split(key))
        return sample._replace(extra={"validation": other.scores, "validation_target": other.target})


POOL = Pool(np.r_[np.arange(0.0, 20), np.arange(8.5, 40)], np.arange(52) < 20)


def design_for(name):
    family = name.partition("/")[0]
    if family in ("td4eval", "jmcs", "jecs", "union", "intersection"):
        return PANEL
    if name.startswith("ptdi/moment"):
        return POOL
    return {"ktd": PAIRS, "exchangeability": SHARDS, "threshold": Labelled()}.get(family, SINGLE)


selected_by_each = jax.jit(baselines.selected_by_each, static_argnames="alpha")


def directly(name, key, sample, alpha, null):
    """The same decision through the public calls, one data set and one level at a time."""
    family, _, choice = name.partition("/")
    calibration, scores, extra = sample.calibration, sample.scores, sample.extra
    masks = {"calibration_mask": sample.calibration_mask, "mask": sample.mask}
    if family == "ptdi":
        options = {"members": extra["members"]} if choice.startswith("moment") else {}
        return tdd.ptdi(calibration, scores, alpha=alpha, proportion=choice, **masks, **options).selected
    if family == "td4eval":
        options = {"key": key} if choice in ("random", "split_weights") else {}
        return tdd.td4eval(calibration, scores, alpha=alpha, combine=choice, **options).selected
    if family == "ktd":
        options = {}
        if choice == "conformal":
            options = {"calibration": calibration, "calibration_knockoffs": extra["calibration_knockoffs"]}
        return tdd.ktd(scores, extra["knockoffs"], alpha=alpha, rule=choice, **options).selected
    if family == "jmcs":
        return tdd.jmcs(calibration, scores, alpha=alpha, rule=choice).selected
    if family == "jecs":
        return tdd.jecs(calibration, scores, alpha=alpha).selected
    if family == "threshold":
        labelled = extra["validation"], extra["validation_target"]
        return baselines.threshold(*labelled, scores, null=null, rule=choice, alpha=alpha).selected
    if family in ("union", "intersection"):
        each = selected_by_each(calibration, scores, alpha=alpha)
        return baselines.composed(each, family)
    if family == "exchangeability":
        options = {"num_draws": 999} if choice in ("combined", "exact") else {}
        found = tdd.exchangeability(extra["canonical"], extra["shuffled"], test=choice, key=key, **options)
        return (found.p_value <= alpha)[None]
    p = tdd.conformal_p_values(calibration, scores, null=null)
    return getattr(tdd, family)(p, alpha).reject


def stacked(levels):
    each = [lattice.as_level(level) for level in levels]
    return jax.tree.map(lambda *fields: jnp.stack([jnp.asarray(f) for f in fields]), *each)


COMPARED = (
    "ptdi/none", "ptdi/moment", "ptdi/moment_paper", "td4eval/pooled_rank", "td4eval/e_values",
    "td4eval/random", "ktd/derandomized", "ktd/conformal", "jmcs/storey", "jecs", "threshold/fdr", "union",
    "exchangeability/permutation", "storey_bh", "holm",
)  # fmt: skip
OPTIONS_OF_ONE = [name for name in NAMES if name.startswith("td4eval/") and name not in COMPARED]
"""Combinations of one procedure, each of which takes long to trace."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow("grid") if name in OPTIONS_OF_ONE else ()) for name in NAMES]
)
def test_every_named_method_runs_on_a_fitting_design(name):
    """One bool a test item, traced as a study traces it."""
    design, rule = design_for(name), method(name)
    options = {"null": design.null} if rule.directed else {}
    sample = jax.eval_shape(design.draw, jax.random.key(0))
    level = jax.tree.map(jnp.asarray, lattice.as_level(0.1))
    decided = jax.eval_shape(lambda key, *data: rule.select(key, *data, **options), jax.random.key(0), sample, level)
    assert (decided.shape, decided.dtype) == (sample.target.shape, bool)


@pytest.mark.parametrize("proportion", PROPORTIONS)
@pytest.mark.slow("long")
def test_conformal_knockoffs_of_a_study_take_every_estimate(proportion):
    """By both spellings as `tdd.ktd` on the same draw; the moments need members with knockoffs."""
    design = dataclasses.replace(PAIRS, num_tests=40, num_calibration=99, num_members=15)
    sample = design.draw(jax.random.key(6))
    names = ("members", "members_knockoffs") if proportion.startswith("moment") else ()
    expected = tdd.ktd(
        sample.scores,
        sample.extra["knockoffs"],
        alpha=0.2,
        rule="conformal",
        proportion=proportion,
        calibration=sample.calibration,
        calibration_knockoffs=sample.extra["calibration_knockoffs"],
        **{name: sample.extra[name] for name in names},
    )
    assert 0 < expected.num_selected < len(sample.scores)
    level = jax.tree.map(jnp.asarray, lattice.as_level(0.2))
    rules = method("ktd/conformal", proportion=proportion), method(f"ktd:rule=conformal,proportion={proportion}")
    for rule in rules:
        assert jnp.array_equal(rule.select(jax.random.key(0), sample, level), expected.selected)
    if names:
        with pytest.raises(tdd.InputError, match=r"needs extra\['members'\], which PairedScores does not draw"):
            run(PAIRS, rules[:1], alphas=[0.2], repetitions=10)


@pytest.mark.filterwarnings("ignore:jecs controls")
@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.slow("long")
def test_named_methods_decide_as_the_public_calls(name):
    """Levels and repetitions batched in one program against one call a data set and level: the same decisions."""
    design, rule = design_for(name), method(name)
    options = {"null": design.null} if rule.directed else {}
    keys = jax.random.split(jax.random.key(5), 4)

    def one(key, sample):
        return jax.vmap(lambda level: rule.select(key, sample, level, **options))(stacked(ALPHAS))

    samples = jax.jit(jax.vmap(design.draw))(keys)  # a program of its own: what is drawn may hang on the last bit
    samples, decided = jax.tree.map(np.asarray, (samples, jax.jit(jax.vmap(one))(keys, samples)))
    for i in range(4):
        sample = jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), samples)
        for j, alpha in enumerate(ALPHAS):
            expected = directly(name, keys[i], sample, alpha, design.null)
            np.testing.assert_array_equal(decided[i, j], expected, err_msg=f"{name} at {alpha}, data set {i}")
    assert decided.dtype == bool
    assert decided.any(), "nothing was selected: the comparison says little"


def test_every_method_of_the_families_has_a_name():
    from tdd.procedures import exchangeability, jecs, ktd, ptdi, td4eval

    expected = {f"ptdi/{name}" for name in ptdi.PROPORTIONS} | {f"td4eval/{name}" for name in td4eval.COMBINATIONS}
    expected |= {f"ktd/{name}" for name in ktd.RULES} | {f"jmcs/{name}" for name in jecs.RULES}
    expected |= {f"exchangeability/{name}" for name in exchangeability.TESTS}
    expected |= {f"threshold/{name}" for name in baselines.RULES}
    assert expected < set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.slow("long")
def test_options_reach_the_procedure():
    sample = SINGLE.draw(jax.random.key(0))
    level = lattice.as_level(0.3)
    for eta in (0.05, 0.5):
        got = method("ptdi/subtraction", eta=eta).select(jax.random.key(0), sample, level)
        expected = tdd.ptdi(sample.calibration, sample.scores, alpha=0.3, proportion="subtraction", eta=eta).selected
        np.testing.assert_array_equal(got, expected)


def test_p_values_of_the_design_are_used():
    p = jnp.array([0.001, 0.02, 0.5, 0.9])
    sample = Sample(jnp.zeros(3), jnp.zeros(4), jnp.array([True, True, False, False]), extra={"p_values": p})
    got = method("bh").select(jax.random.key(0), sample, lattice.as_level(0.05), null="nonmember")
    np.testing.assert_array_equal(got, [True, True, False, False])


def test_methods_are_values():
    assert method("ptdi/storey", eta=0.1) == method("ptdi/storey", eta=0.1)
    assert method("ptdi/storey") != method("ptdi/none")
    assert hash(method("jecs")) == hash(method("jecs"))
    assert method("bh", label="mine").name == "mine"
    assert method(method("bh"), label="again").name == "again"
    made = as_methods({"a": "bh", "b": "by"})
    assert [each.name for each in made] == ["a", "b"]
    assert [each.name for each in as_methods("jecs")] == ["jecs"]


def test_own_functions_get_what_they_ask_for():
    seen = {}

    def mine(key, scores, calibration, *, alpha, mask, extra, factor=1):
        seen.update(alpha=alpha, mask=mask, extra=extra, factor=factor)
        return scores < alpha

    rule = method(mine, factor=3)
    sample = Sample(jnp.zeros(3), jnp.arange(4.0), jnp.ones(4, bool), mask=jnp.ones(4, bool), extra={"x": 1})
    assert rule.select(jax.random.key(0), sample, 0.5).tolist() == [True, False, False, False]
    assert seen["alpha"] == 0.5
    assert seen["factor"] == 3
    assert seen["mask"] is sample.mask
    assert seen["extra"] == {"x": 1}
    assert rule.name == "mine, factor=3"
    assert rule.masks == ("mask",)
    assert not rule.exact_levels


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: method("ptdi/best"), "no method is called 'ptdi/best'; known are ptdi/none"),
        (lambda: method("ptdi/storey", lambda_=0.5), "ptdi/storey has no option 'lambda_'; it has eta"),
        (lambda: method("bh", alpha=0.1), "bh has no option 'alpha'"),
        (lambda: method("ptdi/none", members=[1.0]), "no option 'members'"),
        (lambda: method(3), "must be a name or a function"),
        (lambda: method(method("bh"), eta=0.1), "its options cannot be changed"),
        (lambda: as_methods([]), "methods is empty"),
        (lambda: as_methods(["bh", "bh"]), "two methods are called 'bh'; give a dict"),
    ],
)
def test_bad_methods_are_refused(make, message):
    with pytest.raises(tdd.InputError, match=message):
        make()
