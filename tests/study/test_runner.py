"""The general engine against a plain loop over the public calls; and what must not change its numbers."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from child_process import run_python

import tdd
from tdd.study import (
    JointLabels,
    NormalShift,
    Pool,
    Sample,
    StudyResult,
    engine,
    method,
    run,
    runner,
    store,
)
from tdd.study.results import Totals

ROOT = pathlib.Path(__file__).resolve().parents[2]
DESIGN = NormalShift(num_calibration=19, num_tests=12, signal=2.0)
ARRAYS = [field.name for field in dataclasses.fields(StudyResult) if field.name.split("_")[0] in
          ("fdr", "fdp", "power", "hamming", "num")]  # fmt: skip


def lowest(key, scores, calibration):
    return scores < calibration.min()


def is_checkpoint(done):
    return done > 0 and engine._next_checkpoint(done - 1) == done


def assert_same(a, b):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    np.testing.assert_array_equal(a.repetitions, b.repetitions)


def fixed_point_totals(counts):
    """Totals of [count, method, alpha] V and R and [count] T, M, one repetition at a time in NumPy integers."""
    totals = Totals.zero(counts[0][0].shape)
    sums, histogram = totals.sums.copy(), totals.histogram.copy()
    for false, selected, target, items in counts:
        true = selected - false
        pairs = ((false, selected), (true, target), (false + target - true, items), (selected, items))
        for metric, (part, whole) in enumerate(pairs):
            x = np.float32(part) / np.maximum(np.float32(whole), np.float32(1))
            sums[:, :, metric, 0] += np.rint(x * np.float32(2**24)).astype(np.int64)
            sums[:, :, metric, 1] += np.rint((x * x) * np.float32(2**24)).astype(np.int64)
            places = np.rint(x * np.float32(1024)).astype(int)
            for place in np.ndindex(places.shape):
                histogram[(*place, metric, places[place])] += 1
    return Totals(len(counts), sums, histogram)


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.slow("long")
def test_a_plain_loop_gives_the_same_numbers_to_the_bit(pool):
    """Half splits with random n, and fresh scores; PTDI and BH at three levels; a function of one's own."""
    rng = np.random.default_rng(0)
    design = Pool(np.r_[rng.normal(-1.5, 1, 15), rng.normal(0, 1, 25)].round(1), np.arange(40) < 15) if pool else DESIGN
    alphas, seed, repetitions = (0.1, 0.2, 0.5), 7, 60

    def own(key, scores, calibration, *, calibration_mask):
        return scores < jnp.min(jnp.where(True if calibration_mask is None else calibration_mask, calibration, jnp.inf))

    drawing, counts = jax.jit(design.draw), []
    for i in range(repetitions):
        key = jax.random.fold_in(jax.random.key(seed), i)
        sample = jax.tree.map(np.asarray, drawing(jax.random.split(key)[0]))
        masked = {"calibration_mask": sample.calibration_mask}
        p = tdd.conformal_p_values(sample.calibration, sample.scores, null="nonmember", **masked)
        decided = []
        for name in ("none", "subtraction"):
            rows = [
                tdd.ptdi(sample.calibration, sample.scores, alpha=alpha, proportion=name, **masked).selected
                for alpha in alphas
            ]
            decided.append(rows)
        decided.append([tdd.bh(p, alpha).reject for alpha in alphas])
        decided.append([np.asarray(own(None, sample.scores, sample.calibration, **masked))] * 3)
        decided = np.array(decided)
        target = sample.target
        counts.append(((decided & ~target).sum(-1), decided.sum(-1), target.sum(), target.size))
    names = ["ptdi/none", "ptdi/subtraction", "bh", "own"]
    expected = Totals.result(
        [fixed_point_totals(counts)], methods=names, alphas=alphas, num_items=counts[0][3], seconds=0
    )
    found = run(design, [*names[:3], own], alphas=alphas, repetitions=repetitions, seed=seed)
    assert found.methods == tuple(names)
    assert_same(found, expected)
    assert 0 < found.fdr.max() < 1
    assert found.num_selected[0, 0] < found.num_selected[0, 2]


@pytest.mark.slow("long")
def test_the_numbers_are_right():
    """On this lattice BH has FDR alpha·m0/m exactly: 1/4."""
    design = NormalShift(num_calibration=19, num_tests=10, target_share=0.5, signal=1.0)
    found = run(design, ["ptdi/none", "bh"], alphas=0.5, repetitions=20_000)
    assert found.fdr[0, 0] == found.fdr[1, 0]
    assert abs(found.fdr[0, 0] - 0.25) < 4 * found.fdr_se[0, 0] < 0.01


@pytest.mark.slow("long")
def test_lanes_and_cuts_change_nothing(monkeypatch):
    whole = run(DESIGN, ["ptdi/storey", lowest], alphas=[0.2], repetitions=2_500)
    monkeypatch.setattr(engine, "_LANE_NUMBERS", 2_000)
    monkeypatch.setattr(engine, "_LARGEST", 1_024)
    assert engine.shape(DESIGN, jax.random.key(0))[1] < 128
    assert_same(run(DESIGN, ["ptdi/storey", lowest], alphas=[0.2], repetitions=2_500), whole)


SCRIPT = """
import jax, json, sys
from tdd.study import NormalShift, run
assert len(jax.devices()) == 8
out = []
design = NormalShift(num_calibration=30, num_tests=20)
for devices in (None, jax.devices()[:1], jax.devices()[2:5]):
    found = run(design, ["ptdi/storey"], alphas=[0.1, 0.3], repetitions=3_000, devices=devices, target_se=0.01)
    found.provenance.clear()
    row = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in vars(found).items()}
    row.pop("seconds")
    out.append(row)
print(json.dumps(out))
"""


@pytest.mark.slow("processes")
def test_eight_devices_give_the_numbers_of_one():
    rows = run_python(SCRIPT, devices=8)
    assert rows[0] == rows[1] == rows[2]
    assert rows[0]["repetitions"] % 1024 == 0, "stopped early, at the same checkpoint on 1, 3 and 8 devices"


@pytest.mark.slow("long")
def test_an_interrupted_run_ends_as_an_uninterrupted_one(tmp_path, monkeypatch):
    options = {"alphas": [0.2], "repetitions": 5_000, "grid": {"signal": [1.0, 2.0]}, "seed": 3}
    whole = run(DESIGN, "ptdi/storey", **options)
    written, write = [], store.TotalsStore.write

    def dying(self, cell, totals):
        write(self, cell, totals)
        written.append((cell, totals.repetitions))
        if len(written) in (1, 4):
            raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_LARGEST", 2_048)
    monkeypatch.setattr(runner, "_PATIENCE", 0.0)  # saves after every call
    monkeypatch.setattr(store.TotalsStore, "write", dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(DESIGN, "ptdi/storey", folder=tmp_path, **options)
    assert not (tmp_path / "study.json").exists()
    resumed = run(DESIGN, "ptdi/storey", folder=tmp_path, **options)
    assert_same(resumed, whole)
    counts = [count for cell, count in written if cell == 0]
    assert counts == sorted(set(counts)), "no repetition was run twice"
    assert_same(StudyResult.load(tmp_path), whole)
    monkeypatch.setattr(engine, "engine", lambda *_: pytest.fail)
    assert_same(run(DESIGN, "ptdi/storey", folder=tmp_path, **options), whole)


def test_a_folder_of_another_study_is_refused(tmp_path):
    def mine(key, scores, calibration):
        return scores < -1

    def other(key, scores, calibration):
        return scores < -2

    other.__qualname__ = mine.__qualname__
    options = {"alphas": [0.2], "repetitions": 50, "folder": tmp_path}
    run(DESIGN, {"m": mine}, **options)
    changes = [
        ({"seed": 1}, "seed: 0 there, 1 now"),
        ({"alphas": [0.3]}, r"alphas: \[0.2\] there, \[0.3\] now"),
        ({"repetitions": 60}, "repetitions: 50 there, 60 now"),
        ({"target_se": 0.1}, "target_se: None there"),
        ({"grid": {"signal": [1.0]}}, "grid: None there"),
    ]
    for change, message in changes:
        with pytest.raises(tdd.InputError, match=message):
            run(DESIGN, {"m": mine}, **{**options, **change})
    with pytest.raises(tdd.InputError, match=r"holds another study .design"):
        run(dataclasses.replace(DESIGN, signal=1.0), {"m": mine}, **options)
    with pytest.raises(tdd.InputError, match=r"methods: .* choose another folder"):
        run(DESIGN, {"m": other}, **options)
    run(DESIGN, {"m": mine}, **options)
    for content in (b"not an archive", b""):
        (tmp_path / "totals" / "cell-00000.npz").write_bytes(content)
        with pytest.raises(tdd.InputError, match=r"cell-00000.npz is damaged .* delete it"):
            run(DESIGN, {"m": mine}, **options)
    for content in ("", "{", "[1]"):
        (tmp_path / "totals" / "fingerprint.json").write_text(content)
        with pytest.raises(tdd.InputError, match=r"fingerprint.json is damaged .*; delete .*totals and run the same"):
            run(DESIGN, {"m": mine}, **options)


@pytest.mark.slow("long")
def test_it_stops_when_the_error_is_small(monkeypatch, tmp_path):
    """A grid point that is easy stops early, at a checkpoint, and exactly where it would stop by hand."""
    options = {"alphas": [0.2], "grid": {"signal": [1.0, 8.0]}, "target_se": 0.005}
    found = run(DESIGN, "ptdi/none", repetitions=6_000, **options)
    hard, easy = found.repetitions
    assert easy < hard <= 6_000
    stopping = found.provenance["stopping"]
    assert stopping["met"][1]
    assert stopping["early"] == [hard < 6_000, True]
    assert stopping["largest_se"][1] <= 0.005
    assert max(found.fdr_se[1].max(), found.power_se[1].max()) <= 0.005
    by_hand = run(DESIGN, "ptdi/none", alphas=[0.2], grid={"signal": [8.0]}, repetitions=int(easy))
    np.testing.assert_array_equal(by_hand.fdr[0], found.fdr[1])
    before = engine.STEP
    assert is_checkpoint(int(easy))
    if easy > before:
        last = max(n for n in range(before, int(easy), before) if is_checkpoint(n))
        shorter = run(DESIGN, "ptdi/none", alphas=[0.2], grid={"signal": [8.0]}, repetitions=last, target_se=0.005)
        assert not shorter.provenance["stopping"]["met"][0]
    monkeypatch.setattr(engine, "_LARGEST", 1_024)
    assert_same(run(DESIGN, "ptdi/none", repetitions=6_000, folder=tmp_path, **options), found)
    never = run(DESIGN, "ptdi/none", alphas=[0.2], repetitions=1_500, target_se=1e-6)
    assert never.repetitions == 1_500
    assert never.provenance["stopping"]["met"] == [False]


def test_checkpoints_are_fixed():
    found = [n for n in range(0, 40 * 1_024, 512) if is_checkpoint(n)]
    assert found[:7] == [1024 * i for i in (1, 2, 3, 4, 5, 6, 7)]
    assert all(n % 1_024 == 0 for n in found)
    steps = np.diff(found[8:]) / found[8:-1]
    assert steps.max() <= 0.25
    assert [engine._next_checkpoint(n) for n in (0, 1023, 1024)] == [1024, 1024, 2048]


def test_nothing_happened_yet_is_no_reason_to_stop():
    """Without any selection the plain standard error is 0; the one that decides is not."""
    found = run(DESIGN, lambda key, scores, calibration: scores < -1e9, alphas=[0.1], repetitions=3_000, target_se=6e-4)
    assert found.fdr_se[0, 0] == 0
    assert 1_024 < found.repetitions <= 3_000


@pytest.mark.slow("long")
def test_a_grid_compiles_once_and_uses_the_same_keys():
    traced = []

    def counting(key, scores, calibration):
        traced.append(scores.shape)
        return scores < 0

    grid = {"target_share": [0.25, 0.5], "signal": [0, 1.5, 3]}
    found = run(DESIGN, {"count": counting}, alphas=[0.1], repetitions=300, grid=grid)
    assert len(traced) == 1
    assert found.cells[:2] == ({"target_share": 0.25, "signal": 0}, {"target_share": 0.25, "signal": 1.5})
    assert found.fdr.shape == (6, 1, 1)
    assert found.fdp_quantiles.shape == (6, 1, 1, 5)
    for i, cell in enumerate(found.cells):
        alone = run(dataclasses.replace(DESIGN, **cell), {"count": counting}, alphas=[0.1], repetitions=300)
        np.testing.assert_array_equal(alone.power, found.power[i])
    assert np.all(np.diff(found.power.reshape(2, 3)) > 0)
    before = len(traced)
    sizes = run(DESIGN, {"count": counting}, alphas=[0.1], repetitions=10, grid={"num_tests": [5, 6]})
    assert traced[before:] == [(5,), (6,)]
    assert sizes.num_selected_quantiles.shape == (2, 1, 1, 5)


@pytest.mark.slow("long")
def test_levels_of_ones_own_function_are_plain_numbers():
    def by_level(key, scores, calibration, *, alpha):
        assert isinstance(alpha, float)
        return tdd.ptdi(calibration, scores, alpha=alpha, proportion="none").selected

    found = run(DESIGN, ["ptdi/none", by_level], alphas=[0.1, 0.3, 0.7], repetitions=400)
    np.testing.assert_array_equal(found.fdr[0], found.fdr[1])
    np.testing.assert_array_equal(found.power[0], found.power[1])


class Masked:
    """No pytree: items of random masks, a constant of the program."""

    null = "nonmember"

    def draw(self, key):
        scores = jnp.where(jnp.arange(10) < 5, -9.0, 9.0)
        return Sample(jnp.zeros(4), scores, scores < 0, mask=jnp.arange(10) >= 2, calibration_mask=jnp.ones(4, bool))


def test_masked_items_do_not_count():
    def greedy(key, scores, calibration, *, mask, calibration_mask):
        return jnp.ones(scores.shape, bool)

    found = run(Masked(), ["ptdi/none", greedy], alphas=[0.8], repetitions=20)
    np.testing.assert_allclose(found.num_selected[:, 0], [3, 8], rtol=1e-6)
    assert found.fdr[1, 0] == 5 / 8
    assert found.hamming[:, 0].tolist() == [0, 5 / 8]
    assert found.power[:, 0].tolist() == [1, 1]
    with pytest.raises(tdd.InputError, match="lowest does not take 'mask', but Masked masks items"):
        run(Masked(), lowest, alphas=[0.5], repetitions=20)


SIZES = {"alphas": [0.1], "repetitions": 10}
JOINT = JointLabels(num_models=2, num_calibration=9, num_tests=5)
REFUSED = [
    (DESIGN, "td4eval/cauchy", SIZES, "needs the scores of several detectors or models.*NormalShift draws one score"),
    (JOINT, "ptdi/none", SIZES, "ptdi/none needs one score an item; JointLabels draws 2 rows"),
    (dataclasses.replace(DESIGN, null="member"), "ptdi/none", SIZES, 'tests the null "nonmember".*null=\'member\''),
    (DESIGN, "ktd/multi", SIZES, r"needs extra\['knockoffs'\], which NormalShift does not draw"),
    (DESIGN, "exchangeability/t", SIZES, r"needs extra\['canonical'\]"),
    (DESIGN, lambda key, scores, calibration: scores, SIZES, "must return bool.*got float32"),
    (DESIGN, lambda key, scores, calibration: calibration < 0, SIZES, r"shape \(12,\); got \(19,\)"),
    (DESIGN, lambda key, scores, calibration: None, SIZES, "must return an array of 12 decisions .bool., got NoneType"),
    (DESIGN, lambda key, scores, calibration: scores < 0 if scores[0] > 0 else None, SIZES,
     r"failed with key, scores \(12,\) and calibration \(19,\): TracerBoolConversionError.*jnp.where in place of if"),
    (DESIGN, lambda key: key, SIZES, "failed with .*TypeError"),
    (DESIGN, "bh", {**SIZES, "alphas": []}, "alphas is empty"),
    (DESIGN, "bh", {**SIZES, "alphas": [0.1, 1.5]}, r"alphas\[1\] must lie strictly between 0 and 1"),
    (DESIGN, "bh", {**SIZES, "alphas": [0.1, 0.1]}, "a level twice"),
    (DESIGN, "bh", {**SIZES, "repetitions": 0}, "repetitions must lie from 1 to"),
    (DESIGN, "bh", {**SIZES, "repetitions": 1e6}, "repetitions must be a whole number, got 1000000.0"),
    (DESIGN, "bh", {**SIZES, "seed": -1}, "seed must be a whole number"),
    (DESIGN, "bh", {**SIZES, "target_se": 0}, "target_se must be a number between 0 and 1"),
    (DESIGN, "bh", {**SIZES, "grid": {"sigma": [1]}}, "NormalShift has no field .sigma.; its fields are num_c"),
    (DESIGN, "bh", {**SIZES, "grid": {"signal": []}}, r"grid\['signal'\] is empty"),
    (DESIGN, "bh", {**SIZES, "grid": {"signal": 1.0}}, r"grid\['signal'\] must be a sequence"),
    (DESIGN, "bh", {**SIZES, "grid": {}}, "grid is empty; leave it out"),
    (DESIGN, "bh", {**SIZES, "grid": {"target_share": [2.0]}}, "target_share must be a finite number from 0 to 1"),
    (NormalShift, "bh", SIZES, r"got the class NormalShift: make one, NormalShift\(...\)"),
    (3, "bh", SIZES, "design must be a value with a method draw"),
]  # fmt: skip


@pytest.mark.parametrize(("design", "methods", "options", "message"), REFUSED)
def test_what_does_not_fit_is_refused(design, methods, options, message):
    with pytest.raises(tdd.InputError, match=message):
        run(design, methods, **options)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ((jnp.zeros(3), jnp.zeros(2)), "must return a tdd.study.Sample, got tuple"),
        (Sample(jnp.zeros(3), jnp.zeros((2, 4)), jnp.ones(4, bool)), r"must be \[n\] and \[m\], or"),
        (Sample(jnp.zeros(3), jnp.zeros(4), jnp.ones(3, bool)), r"target must be bool of shape \(4,\)"),
        (Sample(jnp.zeros(3), jnp.zeros(4), jnp.ones(4)), "target must be bool .* got float32"),
        (Sample(jnp.zeros(3), jnp.zeros(4), jnp.ones(4, bool), mask=jnp.ones(2, bool)), r"mask must be bool of shape"),
    ],
)
def test_designs_that_draw_nonsense_are_refused(sample, message):
    class Nonsense:
        def draw(self, key):
            return sample

    with pytest.raises(tdd.InputError, match=f"Nonsense.draw.*{message}"):
        run(Nonsense(), lowest, **SIZES)


@pytest.mark.slow("long")
def test_the_provenance_says_how(tmp_path):
    found = run(DESIGN, method("ptdi/storey", eta=0.1), alphas=[0.1], repetitions=10, seed=5, folder=tmp_path)
    kept = json.loads((tmp_path / "study.json").read_text())["provenance"]
    assert kept["seed"] == found.provenance["seed"] == 5
    assert kept["design"]["signal"] == 2.0
    assert kept["design"]["kind"] == "NormalShift"
    assert "jax" in kept["versions"]
    assert kept["stopping"] is None
    assert kept["methods"]["ptdi/storey, eta=0.1"]["procedure"]["eta"] == 0.1
    assert found.seconds > 0


def test_devices_of_another_process_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda *_: 1)
    with pytest.raises(tdd.InputError, match=r"devices must be of this process, number 1: .*shard=\(i, n\)"):
        run(DESIGN, "bh", **SIZES, devices=jax.devices())


def test_importing_studies_is_light():
    code = "import sys, tdd.study; assert 'jax' not in sys.modules; assert 'run' in dir(tdd.study)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = tdd.study.nothing


@pytest.mark.slow("processes")
def test_double_precision_and_the_device_that_is_asked_for():
    """On one device the threads run what the caller's settings compiled, on the second of two devices here."""
    code = (
        "import jax, tdd\n"
        "from tdd.study import NormalShift, run\n"
        "from tdd.study import runner\n"
        "import jax.numpy as jnp\n"
        "last = jax.devices()[-1:]\n"
        "runner.available_cores = lambda: 2\n"
        "design = NormalShift(num_calibration=19, num_tests=12)\n"
        "with jax.enable_x64(True):\n"
        "    wide = run(design, 'ptdi/storey', alphas=0.2, repetitions=2048, devices=last)\n"
        "both = run(design, 'ptdi/storey', alphas=0.2, repetitions=2048)\n"
        "assert wide.repetitions == 2048 and abs(wide.power - both.power) < 5 * both.power_se\n"
        "count = lambda operands, index, real, sums: sums + jnp.sum(real, dtype=jnp.int32)\n"
        "sums = runner.sum_over_blocks(count, lambda: jnp.int32(0), lanes=8, devices=last)\n"
        "import json; print(json.dumps([len(jax.devices()), sums(jnp.float32(0), 0, 5).devices() == set(last)]))\n"
    )
    assert run_python(code, devices=2) == [2, True]
