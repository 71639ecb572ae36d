"""`tdd.study.resample`: the numbers of a slow loop, of any devices and of any interruption; messages."""

import jax
import numpy as np
import pytest
import references
from child_process import run_python

import tdd
from benchmarks.throughput import harness
from tdd.device_kinds import DeviceKind
from tdd.kernels import resample as engine
from tdd.kernels import resample_pool
from tdd.study import pool as pool_module
from tdd.study import runner
from tdd.study.results import StudyResult

RNG = np.random.default_rng(0)
MEMBER = np.arange(90) < 40
SCORES = np.round(RNG.normal(size=90) - 1.8 * MEMBER, 1)
ALPHAS = [0.1, 0.25]


def study(**options):
    options = {"alphas": ALPHAS, "repetitions": 300, "key": jax.random.key(3)} | options
    return tdd.study.resample(SCORES, MEMBER, **options)


ONE = {"alphas": [0.1], "methods": "storey"}
"""One method at one level, whose program compiles fast."""


def keys_of(places):
    """Words of the keys of these repetitions."""
    return jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(jax.random.key(3), i)))(places)


def numbers(result):
    return np.concatenate([np.ravel(getattr(result, name)) for name in ("fdr", "fdr_se", "power", "hamming")])


@pytest.mark.parametrize("options", [{}, {"test_members": 0.25, "calibration_ratio": 0.5}])
def test_the_numbers_of_a_plain_loop(options):
    """Every split is drawn again, decided in rational arithmetic and summed in double precision."""
    repetitions = 60
    found = study(methods=("none", "storey", "subtraction"), repetitions=repetitions, **options)
    pool = resample_pool.prepare(SCORES, MEMBER)
    split, num_tests = pool_module._split(SCORES, MEMBER, options.get("test_members"), options.get("calibration_ratio"))
    drawing = jax.jit(lambda places: engine.draw(pool, split, keys_of(places).T))
    drawn = jax.tree.map(np.asarray, drawing(np.arange(repetitions, dtype=np.uint32)))
    low, high = np.sort(SCORES[~MEMBER]), np.sort(SCORES[MEMBER])
    fdp, power, hamming = np.zeros((3, 3, len(ALPHAS), repetitions))
    for r in range(repetitions):
        calibration = np.diff(drawn.calibration[:, r].astype(int)) > 0
        tested = np.diff(drawn.tested[:, r].astype(int)) > 0 if len(drawn.tested) else ~calibration
        test = np.concatenate([low[tested], high[np.diff(drawn.members[:, r].astype(int)) > 0]])
        target = np.arange(len(test)) >= tested.sum()
        assert len(test) == num_tests
        for i, name in enumerate(("none", "storey", "subtraction")):
            for a, alpha in enumerate(ALPHAS):
                selected = np.array(references.ptdi(low[calibration], test, alpha, name)[0])
                fdp[i, a, r] = (selected & ~target).sum() / max(selected.sum(), 1)
                power[i, a, r] = (selected & target).sum() / max(target.sum(), 1)
                hamming[i, a, r] = (selected != target).mean()
    for mean, error, values in (
        (found.fdr, found.fdr_se, fdp),
        (found.power, found.power_se, power),
        (found.hamming, found.hamming_se, hamming),
    ):
        np.testing.assert_allclose(mean, values.mean(-1), atol=1e-6)
        np.testing.assert_allclose(error, values.std(-1, ddof=1) / np.sqrt(repetitions), atol=1e-5)
    assert found.power.max() > 0.1


@pytest.mark.slow("long")
def test_the_general_engine_finds_the_same_law():
    design = tdd.study.Pool(SCORES, MEMBER)
    slow = tdd.study.run(design, ["ptdi/none", "ptdi/moment"], alphas=ALPHAS, repetitions=4_000)
    fast = study(methods=("none", "moment"), repetitions=40_000)
    for name in ("fdr", "power", "num_selected"):
        error = np.hypot(getattr(slow, f"{name}_se"), getattr(fast, f"{name}_se"))
        assert np.abs((getattr(slow, name) - getattr(fast, name)) / error).max() < 4.5


def test_the_exact_rate_where_nothing_is_a_member():
    """n = 19, m = 10 and alpha (n + 1)/m = 1 without ties: the false discovery rate is alpha, neither more nor less."""
    found = tdd.study.resample(
        np.arange(58.0),
        np.arange(58) % 2 == 0,
        alphas=[0.5],
        methods="none",
        repetitions=100_000,
        key=jax.random.key(0),
        test_members=0,
        calibration_ratio=1.9,
    )
    assert found.num_selected[0, 0] > 0
    assert abs(found.fdr[0, 0] - 0.5) < 4 * found.fdr_se[0, 0]


CODE = """
import json, sys
import jax, numpy as np, tdd
rng = np.random.default_rng(0)
member = np.arange(90) < 40
scores = np.round(rng.normal(size=90) - 1.8 * member, 1)
out = []
for count in (1, 3, 8):
    found = tdd.study.resample(
        scores, member, alphas=[0.1, 0.25], repetitions=20_000, key=jax.random.key(3), devices=jax.devices()[:count]
    )
    out.append([found.fdr.tolist(), found.fdr_se.tolist(), found.power_quantiles.tolist()])
print(json.dumps(out))
"""


@pytest.mark.slow("processes")
def test_one_device_and_eight_to_the_last_bit():
    one, three, eight = run_python(CODE, devices=8)
    assert one == three == eight
    here = study(repetitions=20_000)
    assert one == [here.fdr.tolist(), here.fdr_se.tolist(), here.power_quantiles.tolist()]


def test_threads_and_lanes_do_not_change_the_numbers(monkeypatch):
    usual = study(**ONE, repetitions=5_000)
    pool_module._engine.cache_clear()
    monkeypatch.setattr(pool_module, "_HOST_LANES", 128)
    monkeypatch.setattr(pool_module, "_STEP", 1000)
    monkeypatch.setattr(runner, "available_cores", lambda: 3)
    np.testing.assert_array_equal(numbers(study(**ONE, repetitions=5_000)), numbers(usual))
    pool_module._engine.cache_clear()


def test_the_next_pool_of_this_size_is_not_compiled_again():
    study(**ONE)
    before = pool_module._engine.cache_info().misses
    counter = harness.TraceCounter()
    tdd.study.resample(
        SCORES + 1, MEMBER, alphas=[0.3], methods="storey", repetitions=300, key=jax.random.key(9), eta=0.1
    )
    assert pool_module._engine.cache_info().misses == before
    assert counter.stop() == 0


def test_interrupted_and_continued(tmp_path, monkeypatch):
    whole = study(**ONE, repetitions=20_000)
    monkeypatch.setattr(pool_module, "_STEP", 4096)
    monkeypatch.setattr(runner, "_PATIENCE", 0.0)  # saves after every call
    write = runner.TotalsStore.write
    calls = []

    def failing(self, cell, totals):
        write(self, cell, totals)
        calls.append(totals.repetitions)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(runner.TotalsStore, "write", failing)
    with pytest.raises(KeyboardInterrupt):
        study(**ONE, repetitions=20_000, folder=tmp_path)
    assert 0 < calls[-1] < 20_000
    done = study(**ONE, repetitions=20_000, folder=tmp_path)
    np.testing.assert_array_equal(numbers(done), numbers(whole))
    np.testing.assert_allclose(StudyResult.load(tmp_path).fdr, whole.fdr)
    with pytest.raises(tdd.InputError, match="holds another study"):
        study(**ONE, repetitions=20_000, folder=tmp_path, eta=0.2)


def test_stops_when_the_standard_error_is_met():
    found = study(**ONE, repetitions=10**6, target_se=0.003)
    assert found.repetitions in {8192 * 2**i for i in range(6)}
    assert max(found.fdr_se.max(), found.power_se.max()) <= 0.003
    assert found.provenance["stopping"]["early"] == [True]


def test_order_of_wide_integers_is_kept():
    """Scores that single precision cannot tell apart."""
    huge = 2**60 + np.argsort(np.argsort(SCORES, kind="stable"))
    plain = np.argsort(np.argsort(SCORES, kind="stable"))
    options = {**ONE, "repetitions": 300, "key": jax.random.key(3)}
    a, b = (tdd.study.resample(scores, MEMBER, **options) for scores in (huge, plain))
    np.testing.assert_array_equal(numbers(a), numbers(b))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.ones((2, 90))}, r"one number an item, shape \[N\]"),
        ({"scores": np.where(MEMBER, np.nan, 1.0)}, "40 missing or infinite values among 90"),
        ({"scores": np.array(["a"] * 90)}, "one number an item"),
        ({"is_member": MEMBER[:5]}, "one label an item"),
        ({"is_member": np.arange(90)}, "True and False"),
        ({"is_member": np.ones(90)}, "all 90 items are members"),
        ({"methods": ()}, "methods is empty"),
        ({"methods": "everything"}, "methods must be among none, storey"),
        ({"methods": ("none", "none")}, "names 'none' twice"),
        ({"alphas": [0.1, 1.5]}, "1.5"),
        ({"eta": 0}, "eta"),
        ({"devices": []}, "devices must be some of"),
        ({"devices": jax.devices()[0]}, "devices must be some of"),
        ({"repetitions": 0}, "repetitions must lie from 1"),
        ({"target_se": 2}, "target_se must be"),
        ({"test_members": 1.5}, "test_members must be"),
        ({"calibration_ratio": 60}, "the pool has too few items"),
    ],
)
def test_messages(change, message):
    arguments = {"scores": SCORES, "is_member": MEMBER, "alphas": ALPHAS, "repetitions": 10, "key": jax.random.key(0)}
    with pytest.raises(tdd.InputError, match=message):
        tdd.study.resample(**(arguments | change))


@pytest.mark.parametrize("kind", [np.float32, jax.numpy.float32, np.float64])
def test_levels_in_any_type_are_decimals(kind):
    """0.7 and 0.3 in single precision lie below and above the decimals; equality decides often on this pool."""
    plain = study(alphas=[0.3, 0.7], eta=0.3, repetitions=500)
    found = study(alphas=[kind(0.3), kind(0.7)], eta=kind(0.3), repetitions=500)
    assert found.alphas == (0.3, 0.7)
    assert found.provenance["eta"] == 0.3
    np.testing.assert_array_equal(numbers(found), numbers(plain))


def test_numbers_of_numpy_in_a_folder(tmp_path):
    options = {"repetitions": np.int64(200), "test_members": np.float32(0.5), "calibration_ratio": np.int64(1), **ONE}
    found = [study(folder=tmp_path, **options) for _ in range(2)]
    np.testing.assert_array_equal(numbers(found[0]), numbers(found[1]))


@pytest.mark.parametrize("key", [None, 0, np.zeros(2, np.uint32)])
def test_a_key_is_needed(key):
    with pytest.raises(tdd.InputError, match="key"):
        study(key=key)


def test_lanes_and_steps_of_an_accelerator_do_not_change_the_numbers(monkeypatch):
    usual = study(**ONE, repetitions=5_000)
    pool_module._engine.cache_clear()
    monkeypatch.setattr(pool_module, "kind_of", lambda device: DeviceKind("gpu", 2**24))
    monkeypatch.setattr(pool_module, "_UNROLL", 4)  # more takes long to compile on a CPU
    wide = study(**ONE, repetitions=5_000)
    assert pool_module._engine.cache_info().misses == 1
    np.testing.assert_array_equal(numbers(wide), numbers(usual))
    pool_module._engine.cache_clear()


@pytest.mark.parametrize("gib", [16, 131])
@pytest.mark.parametrize("size", [2, 775, 11_332, 10**6])
def test_tables_fit_an_accelerator(size, gib):
    lanes = pool_module._lanes(size, DeviceKind("gpu", gib * 2**30))
    assert 128 <= lanes <= 2**18
    assert 6 * lanes * size <= max(gib * 2**28, 6 * 128 * size)


@pytest.mark.parametrize("size", [2, 90, 10**4, 10**5, 2**24 - 1])
def test_tables_of_a_large_pool_are_narrow(size):
    """About ten bytes an item and lane: 3 GB for the largest pool, on each core."""
    lanes = pool_module._lanes(size, DeviceKind("cpu", None))
    assert lanes & (lanes - 1) == 0
    assert 10 * lanes * size < max(2**24, 200 * size)
