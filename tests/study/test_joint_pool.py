"""The fixed-pool engine of the joint procedures against a loop over the same subsets."""

import functools
import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from child_process import run_python

from benchmarks.throughput import joint_peer
from tdd.device_kinds import DeviceKind
from tdd.kernels import joint_resample, tally
from tdd.study import joint
from tdd.study.joint import METHODS, resample_joint
from tdd.study.results import Totals
from tdd.validate import InputError


def table(models=3, size=60, tests=150, seed=0, signal=2.5):
    draws = np.random.default_rng(seed)
    member = draws.random((models, tests)) < 0.25
    own = draws.normal(size=(models, size)) - signal
    return own.round(1), (draws.normal(size=(models, tests)) - signal * member).round(1), member


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4, 5))
def drawn(key, repetitions, size, n, tests, m):
    index = jnp.arange(repetitions, dtype=jnp.uint32)
    words = jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(key, i), (2,), jnp.uint32), out_axes=1)(index)
    return joint_resample.drawn(words, size, n, 0), joint_resample.drawn(words, tests, m, size)


def subsets_of(seed, repetitions, size, n, tests, m):
    """The subsets that the engine draws in its first repetitions."""
    first, second = map(np.asarray, drawn(jax.random.key(seed), repetitions, size, n, tests, m))
    return [(np.flatnonzero(first[:, i]), np.flatnonzero(second[:, i])) for i in range(repetitions)]


@jax.jit
def counted(false, selected, pure, num_items):
    return tally.update(tally.zero(false.shape[:2]), false, selected, pure, num_items)


def totals_of(found, m):
    false, selected = (np.stack([getattr(one, name) for one in found], -1)[None] for name in ("false", "selected"))
    pure = np.array([one.pure for one in found], np.int32)
    return Totals.zero(false.shape[:2]).add(counted(false, selected, pure, np.int32(m)))


@pytest.mark.parametrize("counting", [False, True])
@pytest.mark.slow("long")
def test_decisions_are_those_of_the_loop(counting):
    """1,000 repetitions, three levels, ties: every sum that the study reports, to the last digit."""
    own, tested, member = table()
    levels, repetitions, n, m = (0.1, 0.2, 0.4), 1_000, 40, 90
    study = resample_joint(
        own,
        tested,
        member,
        alphas=levels,
        methods="jecs",
        num_calibration=n,
        num_tests=m,
        repetitions=repetitions,
        seed=5,
    )
    loop = joint_peer.fixed_pool(
        own,
        tested,
        member.any(0),
        subsets_of(5, repetitions, own.shape[1], n, tested.shape[1], m),
        [Fraction(str(level)) for level in levels],
        counting=counting,
    )
    expected = Totals.result([totals_of(loop, m)], methods=["jecs"], alphas=levels, num_items=m)
    assert study.power.min() > 0.01
    for name in ("fdr", "fdr_se", "power", "power_se", "hamming", "num_selected", "fdp_quantiles", "power_quantiles"):
        np.testing.assert_array_equal(getattr(study, name), getattr(expected, name))


@pytest.mark.slow("long")
def test_methods_agree_with_the_library_on_drawn_items():
    """Each method at one level on 40 repetitions, by `tdd.jecs` and `tdd.jmcs` on the drawn items."""
    import warnings

    import tdd

    own, tested, member = table(seed=2)
    n, m, alpha = 30, 75, 0.3
    study = resample_joint(own, tested, member, alphas=alpha, repetitions=40, seed=1)
    false = {name: [] for name in METHODS}
    chosen = {name: [] for name in METHODS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for kept, used in subsets_of(1, 40, own.shape[1], n, tested.shape[1], m):
            for name in METHODS:
                panels = own[:, kept], tested[:, used]
                rule = name.partition("/")[2]
                found = tdd.jmcs(*panels, alpha=alpha, rule=rule) if rule else tdd.jecs(*panels, alpha=alpha)
                selected = np.asarray(found.selected)
                false[name].append((selected & member.any(0)[used]).sum())
                chosen[name].append(selected.sum())
    for i, name in enumerate(METHODS):
        assert study.num_selected[i, 0] == pytest.approx(np.mean(chosen[name]), abs=1e-5)
        assert study.fdr[i, 0] == pytest.approx(np.mean(np.array(false[name]) / np.maximum(chosen[name], 1)), abs=1e-6)
    assert study.num_selected[0, 0] > 0


_DEVICES = """
import jax, numpy as np
from tdd.study.joint import resample_joint
draws = np.random.default_rng(0)
member = draws.random((2, 50)) < .3
call = lambda devices: resample_joint(draws_own, tested, member, alphas=.3, methods="jmcs/bh", repetitions=3000,
                                      devices=devices)
draws_own, tested = draws.normal(size=(2, 40)) - 2, draws.normal(size=(2, 50)) - 2 * member
one, all_of_them = call(jax.devices()[:1]), call(jax.devices())
assert len(jax.devices()) == 8 and one.num_selected[0, 0] > 0
for name in ("fdr", "fdr_se", "power", "num_selected", "fdp_quantiles"):
    assert (getattr(one, name) == getattr(all_of_them, name)).all(), name
print("true")
"""


@pytest.mark.slow("processes")
def test_the_same_numbers_on_eight_devices():
    assert run_python(_DEVICES, devices=8)


def test_what_one_pass_cannot_do_is_refused():
    own, tested, member = table()
    hole = tested.copy()
    hole[1, 4] = np.nan
    cases = [
        ((own, hole, member), {}, "1 of 150 items lack the score"),
        ((own[:2], tested, member), {}, "calibration has 2 models and scores 3"),
        ((own, tested, member[:, :9]), {}, "member must have the shape of scores"),
        ((own, tested, member.astype(int)), {}, "member must be boolean"),
        ((own, tested, member), {"num_calibration": 61}, "num_calibration must be a whole number from 1 to 60"),
        ((own, tested, member), {"num_tests": 0}, "num_tests must be a whole number from 1 to 150"),
        ((own, tested, member), {"methods": "jmcs"}, "methods must be among jecs"),
        ((own, tested, member), {"methods": ()}, "methods is empty"),
        ((own, tested, member), {"alphas": 1.5}, "alphas"),
        ((own, tested, member), {"eta": 0}, "eta"),
        ((own, tested, member), {"repetitions": 0}, "repetitions"),
        ((own, tested, member), {"devices": []}, "devices must be some of"),
        ((own, tested, member), {"shard": (0, 2)}, "folder"),
        ((np.zeros((3, 40_000)), tested, member), {}, "40,000 items"),
    ]
    for arguments, options, words in cases:
        with pytest.raises(InputError) as error:
            resample_joint(*arguments, **({"alphas": 0.1, "repetitions": 5} | options))
        assert words in str(error.value), str(error.value)


def test_the_loop_draws_uniform_subsets():
    counts = np.zeros(6)
    for own, _ in itertools.islice(joint_peer.drawn_subsets(np.random.default_rng(0), 6, 5, 2, 5), 3_000):
        counts[own] += 1
    assert np.abs(counts / 3_000 - 1 / 3).max() < 0.045


def test_lanes_and_steps_of_an_accelerator_do_not_change_the_numbers(monkeypatch):
    options = {"alphas": [0.4], "repetitions": 600, "methods": "jmcs/bh"}
    monkeypatch.setattr(joint, "_UNROLL", 2)  # more takes long to compile on a CPU
    made = []
    for kind in (DeviceKind("cpu", None), DeviceKind("gpu", 2**24)):
        monkeypatch.setattr(joint, "kind_of", lambda device, kind=kind: kind)
        made.append(resample_joint(*table(models=2), **options))
    usual, wide = made
    np.testing.assert_array_equal(usual.fdr, wide.fdr)
    np.testing.assert_array_equal(usual.power_quantiles, wide.power_quantiles)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_large_pools_run_fewer_repetitions_side_by_side(platform):
    """Indices of the tables stay below 2^31, and memory within bounds; an ordinary pool is not narrowed."""
    kind = DeviceKind(platform, None if platform == "cpu" else 131 * 2**30)
    most = 256 if platform == "cpu" else 2**17
    for numbers in (12_000, 10**6, 10**7, 10**9):
        width = joint._width(joint._RankCounter(joint_resample.count_ranks, (), 256, numbers), kind)
        assert 1 <= width < most or (width, numbers) == (most, 12_000)
        assert width == 1 or width * numbers <= (2**27 if platform == "cpu" else 2**31)
