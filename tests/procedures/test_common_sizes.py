"""Data sets of any size share programs: host arrays are lengthened to common sizes, and nothing else changes."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from child_process import run_python

import tdd
from tdd.kernels import lattice
from tdd.procedures.calls import common_size

LONG = pytest.mark.slow("long")
SIZES = [(70, 3), (65, 66), (9, 130)]


def samples(n, m, rows=(), seed=0):
    rng = np.random.default_rng(seed)
    own, test = rng.normal(size=(*rows, n)), rng.normal(-1, size=(*rows, m))
    own.flat[2] = test.flat[1] = np.nan
    return own.astype(np.float32), test.astype(np.float32)


def ptdi(own, test):
    return tdd.ptdi(own, test, alpha=0.2, mask=np.arange(test.shape[0]) != 0)


def td4eval(own, test):
    return tdd.td4eval(*rows_of(-own, -test), alpha=0.2)


def like(given, values):
    """The values as an array of NumPy or JAX, whichever was given; computed by NumPy, so that nothing is compiled."""
    return values if isinstance(given, np.ndarray) else jnp.asarray(values)


def p_of(test):
    return like(test, np.asarray(test) ** 2 / 100)


def log_p_of(test):
    return like(test, np.log(np.asarray(p_of(test))))


def bh(own, test):
    return tdd.bh(p_of(test), alpha=0.2)


def bounds(own, test):
    return tdd.fdp_bounds(own, test, null="nonmember", key=jax.random.key(0), num_draws=99).of(test < -1)


def rows_of(*samples):
    return [like(x, np.asarray(x)[None].repeat(2, 0)) for x in samples]


def by(own, test):
    return tdd.jmcs(*rows_of(own, test), alpha=0.4, rule="by")


def jecs(own, test):
    return tdd.jecs(*rows_of(own, test), alpha=0.4)


def knockoffs(own, test, rule="multi"):
    first, second = np.asarray(own), np.asarray(test)
    given = {"calibration": own, "calibration_knockoffs": like(own, np.stack([first[::-1], first / 2], 1))}
    mask = np.arange(test.shape[0]) != 0
    options = given if rule == "conformal" else {}
    copies = like(test, np.stack([second[::-1] + 1, second + 2], 1))
    return tdd.ktd(test, copies, alpha=0.4, rule=rule, mask=mask, **options)


def conformal(own, test):
    return knockoffs(own, test, "conformal")


def derandomized(own, test):
    return knockoffs(own, test, "derandomized")


def conformal_p_values(own, test):
    return tdd.conformal_p_values(own, test, null="nonmember")


def e_bh(own, test):
    return tdd.e_bh(like(test, np.exp(-3 * np.asarray(test))), 0.2)


def closed_e_bh(own, test):
    return tdd.closed_e_bh(like(test, np.exp(-3 * np.asarray(test))), 0.2)


def martingale(own, test):
    return tdd.conformal_martingale(log_p_of(test), log=True, mask=np.arange(test.shape[0]) != 0)


def alarms(own, test):
    return tdd.shiryaev_roberts(log_p_of(test), 20.0, log=True)


def lond(own, test):
    return tdd.lond(p_of(test), 0.2)


def lord_plus_plus(own, test):
    return tdd.lord_plus_plus(p_of(test), 0.2)


def saffron(own, test):
    return tdd.saffron(p_of(test), 0.2)


COARSE = [ptdi, bh, knockoffs, conformal_p_values, e_bh, martingale]
SLOW = [td4eval, by, jecs, conformal, derandomized, alarms]
ALL = [*COARSE, *(pytest.param(f, marks=LONG) for f in SLOW)]
BY_AN_EIGHTH = [lond, *(pytest.param(f, marks=LONG) for f in (closed_e_bh, lord_plus_plus, saffron))]


@pytest.mark.filterwarnings("ignore:jecs controls")
@pytest.mark.parametrize("call", [*ALL, *BY_AN_EIGHTH])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_lengthened_host_arrays_give_what_jax_arrays_give(call, n, m):
    own, test = samples(n, m)
    for host, device in zip(*(jax.tree.leaves(call(f(own), f(test))) for f in (np.asarray, jnp.asarray)), strict=True):
        np.testing.assert_allclose(host, device, rtol=3e-7)


@pytest.mark.slow("long")
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_bounds_have_the_sizes_of_the_data(n, m):
    own, test = samples(n, m)
    found = tdd.fdp_bounds(own, test, null="nonmember", key=jax.random.key(0), num_draws=99)
    assert found.num_selected.shape == found.false_bound.shape == found.fdp_bound.shape == (n + 1,)
    assert found.rank.shape == found.item_fdp_bound.shape == (m,)
    assert int(found.num_tests) == np.count_nonzero(~np.isnan(test))
    assert int(found.rank[1]) == n + 2  # masked
    np.testing.assert_array_equal(np.isnan(found.item_fdp_bound), np.isnan(test))
    own_cut = found.of(np.asarray(found.rank) <= 5)
    assert int(own_cut.num_selected) == int(found.at(5).num_selected)
    assert int(own_cut.false_bound) <= int(found.at(5).false_bound)


@pytest.mark.parametrize("call", [ptdi, bh, *(pytest.param(f, marks=LONG) for f in (td4eval, bounds))])
def test_a_new_size_needs_no_new_program(call):
    """Within one common size; JAX arrays, whose owner compiles for them, do need one."""
    seen = []
    for module, name in (
        ("ptdi", "_ptdi"),
        ("td4eval", "_td4eval"),
        ("bounds", "_ranked"),
        ("fdp_template", "_template"),
    ):
        program = getattr(importlib.import_module(f"tdd.procedures.{module}"), name)
        seen.append(program._cache_size)
    step_up = importlib.import_module("tdd.procedures.step_up_calls")
    seen.append(step_up._compiled("bh", (), False)._cache_size)

    def programs(convert, n, m):
        call(*(convert(x) for x in samples(n, m)))
        return sum(size() for size in seen)

    assert programs(np.asarray, 74, 82) == programs(np.asarray, 79, 87) == programs(np.asarray, 78, 86)
    before = programs(jnp.asarray, 74, 82)
    assert programs(jnp.asarray, 79, 87) > before


def test_common_sizes():
    sizes = [common_size(n) for n in range(5000)]
    assert all(n <= size <= max(64, 9 * n / 8 + 1) for n, size in enumerate(sizes))
    assert len(set(sizes)) == 1 + 8 * 6 + 2  # up to 4096, and 4608 and 5120


def test_two_samples_meet_in_few_programs():
    """100 calls of new sizes need no program beyond the first of each pair of coarse sizes."""
    program = importlib.import_module("tdd.procedures.ptdi")._ptdi
    before, rng = program._cache_size(), np.random.default_rng(0)
    for n, m in rng.integers(10, 125, (100, 2)):
        tdd.ptdi(*samples(n, m), alpha=0.2)
    assert program._cache_size() - before <= 2**2  # 64 and 128
    assert [common_size(n, coarse=True) for n in (1, 64, 65, 1_000, 4_097, 65_536, 65_537)] == [
        64, 64, 128, 1_024, 8_192, 65_536, 73_728,
    ]  # fmt: skip


@pytest.mark.parametrize("combine", ["closed_e_values", "best_score"])
def test_what_costs_the_square_of_a_length_is_padded_by_an_eighth(monkeypatch, combine):
    def stop(*panels, **options):
        raise RuntimeError([panel.shape[-1] for panel in panels[:4]])

    monkeypatch.setattr(importlib.import_module("tdd.procedures.td4eval"), "_td4eval", stop)
    with pytest.raises(RuntimeError, match=r"\[72, 144, 72, 144\]"):
        tdd.td4eval(*(np.stack([x] * 2) for x in samples(70, 130)), alpha=0.2, combine=combine)


@pytest.mark.filterwarnings("ignore:jecs controls")
@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("call", ALL)
def test_a_call_compiles_one_program(call, wide, caplog):
    """That of the procedure, beside the constant that tells whether something is traced, one for all calls: arguments
    are prepared, and results cut, without any."""
    own, test = (x.astype(np.float64) if wide else x for x in samples(70, 90))
    jax.clear_caches()
    with jax.log_compiles(True), caplog.at_level("WARNING", logger="jax"):
        call(own, test)
    compiled = [line for line in caplog.messages if line.startswith("Compiling") and "jit(_constant)" not in line]
    assert len(compiled) == 1, compiled


@pytest.mark.filterwarnings("ignore:jecs controls")
@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("call", ALL)
def test_nothing_is_compiled_for_fifty_new_lengths(call, wide, caplog):
    """Neither the procedure nor what prepares its arguments and cuts its results."""
    rng = np.random.default_rng(0)
    draws = [samples(n, m, seed=n) for n, m in [(140, 250), *rng.integers(129, 256, (50, 2))]]
    first, *others = [tuple(x.astype(np.float64) if wide else x for x in pair) for pair in draws]
    with jax.log_compiles(True), caplog.at_level("WARNING", logger="jax"):
        jax.jit(lambda x: x + len(draws))(np.zeros(3, np.float32))
        assert "Compiling" in caplog.text
        call(*first)
        caplog.clear()
        for own, test in others:
            call(own, test)
    assert "Compiling" not in caplog.text


@pytest.mark.parametrize("call", BY_AN_EIGHTH)
def test_a_longer_stream_within_an_eighth_needs_no_new_program(call, caplog):
    with jax.log_compiles(True), caplog.at_level("WARNING", logger="jax"):
        call(*samples(9, 133))
        caplog.clear()
        for m in (129, 140, 143):
            call(*samples(9, m))
    assert "Compiling" not in caplog.text


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32])
def test_arrays_of_numpy_and_jax_go_together(dtype):
    own, test = (np.nan_to_num(9 * x).astype(dtype) for x in samples(70, 90))
    host = tdd.ptdi(own, test, alpha=0.3)
    assert host.num_selected > 0
    for mixed in ((jax.device_put(own), test), (own, jax.device_put(test))):
        np.testing.assert_array_equal(tdd.ptdi(*mixed, alpha=0.3).selected, host.selected)


def test_cut_results_stay_in_their_trace():
    p = np.linspace(0, 1, 70, dtype=np.float32) ** 4
    by_level = jax.vmap(lambda level: tdd.lond(p, lattice.as_level(level)).reject)(jnp.array([0.05, 0.1]))
    np.testing.assert_array_equal(by_level[1], tdd.lond(p, 0.1).reject)


ON_TWO_DEVICES = """
import json, jax, numpy as np, tdd
there = jax.devices()[1]
alone = tdd.e_bh(np.arange(70, dtype=np.float32), 0.2, mask=jax.device_put(np.ones(70, bool), there))
level = tdd.lond(np.linspace(0, 1, 70), jax.device_put(np.float32(0.1), there))
leaves = jax.tree.leaves((alone, level))
print(json.dumps([leaf.devices() == {there} for leaf in leaves if isinstance(leaf, jax.Array)]))
"""


def test_cut_results_stay_on_their_device():
    assert set(run_python(ON_TWO_DEVICES, devices=2)) == {True}
