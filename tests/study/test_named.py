"""The named studies: a catalogue that says what runs, designs with a known truth, bounds that have teeth."""

import csv
import dataclasses
import importlib
import pkgutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from scipy.special import ndtr

import tdd
from tdd.report.plots import studies
from tdd.study import PairedScores, Pool, StudyResult
from tdd.study.named import STUDIES, driver, exchange, jecs, ktd, load, ptdi, td4eval
from tdd.study.named.driver import run_named_study, verdict_rows
from tdd.study.named.ktd import KnockoffPool
from tdd.study.named.record import Columns, ExpectedBound, NamedStudy, Needs, StudyOptions, read_columns, verdict
from tdd.validate import InputError

KEY = jax.random.key(0)
PTDI = ("ptdi-alpha", "ptdi-pi", "ptdi-rho", "ptdi-eta", "ptdi-estimators")


def options(repetitions=64, alphas=(0.2,), **more):
    return StudyOptions(repetitions=repetitions, alphas=alphas, **more)


def columns(num_scores=1, num_labels=1, num_knockoffs=0, size=40, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.random((num_labels, size)) < 0.5
    labels[:, : size // 4] = True
    labels[:, -size // 4 :] = False
    truth = labels.any(0) if num_labels else np.zeros(size, bool)
    return Columns(
        source="a table",
        sha256="0" * 64,
        names=tuple(f"s{i}" for i in range(num_scores)),
        scores=rng.normal(size=(num_scores, size)) - 2 * truth,
        labels=labels,
        knockoffs=rng.normal(size=(size, num_knockoffs)),
    )


@jax.jit
def drawn(design):
    return design.draw(KEY)


# --- the catalogue ----------------------------------------------------------------------------------------------------


def test_every_title_is_a_study_and_every_study_has_a_title():
    found = []
    for part in pkgutil.iter_modules(importlib.import_module("tdd.study.named").__path__):
        held = vars(importlib.import_module(f"tdd.study.named.{part.name}"))
        found += [study for each in held.values() for study in (each if isinstance(each, tuple) else (each,))]
    assert {study.name for study in found if isinstance(study, NamedStudy)} == set(STUDIES)
    for name, title in STUDIES.items():
        study = load(name)
        assert study.name == name
        assert title.shows
        assert title.figure.split()[0] in ("PTDI", "KTD", "TD4Eval", "JECS", "exchangeability")
        assert study.repetitions >= 100
        assert all(0 < alpha < 1 for alpha in study.alphas)
        assert study.describe(options())


def test_listing_the_studies_imports_no_jax():
    script = "import sys, tdd.study.named, tdd.cli; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "se", "bound", "word"),
    [
        (0.1, 0.001, ExpectedBound(), "within"),
        (0.102, 0.001, ExpectedBound(), "within"),
        (0.104, 0.001, ExpectedBound(), "ABOVE"),
        (0.104, 0.001, ExpectedBound(factor=1.02), "within"),
        (0.104, 0.001, ExpectedBound("asymptotic"), "above (holds in the limit)"),
        (0.09, 0.001, ExpectedBound("asymptotic"), "within (holds in the limit)"),
        (0.104, 0.001, ExpectedBound("none"), "no guarantee, above"),
        (0.09, 0.001, ExpectedBound("none"), "no guarantee"),
        (0.2, float("nan"), ExpectedBound(), "not measured"),
    ],
)
def test_verdicts(mean, se, bound, word):
    assert verdict(mean, se, 0.1, bound) == word


def test_bounds_of_the_studies():
    told = options()
    given = options(columns=columns(2, 2, 3))
    assert load("ptdi-alpha").bound(told, {}, "none") == ExpectedBound()
    factor = load("ptdi-alpha").bound(told, {}, "subtraction").factor
    assert 1 + 1 / 388 < factor < 1.02
    assert load("ptdi-rho").bound(told, {"calibration_ratio": 0.1}, "subtraction").factor > factor
    assert load("ptdi-estimators").bound(told, {}, "moment").kind == "asymptotic"
    draws = load("ktd-draws").bound
    assert draws(told, {"num_knockoffs": 1}, "ktd/ktd").kind == "finite-sample"
    assert draws(told, {"num_knockoffs": 3}, "ktd/ktd").kind == "none"
    assert draws(told, {"num_knockoffs": 3}, "ktd/multi").kind == "finite-sample"
    assert draws(given, {"num_knockoffs": 3}, "ktd/multi").kind == "none"
    assert [load(f"ktd-{name}").bound(told, {}, "ktd/ktd").kind for name in ("alpha", "signal")] == ["none"] * 2
    baselines = load("ktd-baselines").bound
    kinds = {name: baselines(told, {}, name).kind for name in ktd.BASELINES}
    assert kinds == dict.fromkeys(ktd.BASELINES, "none") | {ktd.VANILLA: "finite-sample"}
    assert baselines(given, {}, ktd.VANILLA).kind == "none"
    td4eval = load("td4eval-noise").bound
    assert td4eval(told, {"wrong": 0.0}, "td4eval/pooled_rank").kind == "finite-sample"
    assert td4eval(told, {"wrong": 0.1}, "td4eval/pooled_rank").kind == "none"
    assert td4eval(told, {}, "td4eval/cauchy").kind == "none"
    jecs = load("jecs-k").bound
    kinds = [jecs(told, {}, name).kind for name in ("union", "jecs", "jmcs/bh")]
    assert kinds == ["none", "asymptotic", "finite-sample"]
    assert [jecs(given, {}, name).kind for name in ("jecs", "jmcs/bh")] == ["none", "none"]
    assert load("exchange-shards").bound(told, {}, "exchangeability/t").kind == "asymptotic"


# --- designs ----------------------------------------------------------------------------------------------------------


def test_the_pool_is_always_the_same():
    scores, is_member = ptdi.pool(options())
    assert scores.size == 775
    assert is_member.sum() == 388
    assert np.array_equal(scores, ptdi.pool(options(seed=5))[0])
    assert scores[~is_member].mean() - scores[is_member].mean() == pytest.approx(1.5, abs=0.2)


def test_a_detector_pool_splits_30_to_70():
    given = columns(3)
    sample = drawn(td4eval.DetectorPool(given.scores, given.labels[0]))
    assert sample.calibration.shape == (3, 12)
    assert sample.scores.shape == (3, 28)
    together = np.concatenate([sample.calibration, sample.scores], axis=1)
    assert np.allclose(np.sort(together, axis=1), np.sort(given.scores, axis=1), atol=1e-6)
    assert int(sample.calibration_mask.sum()) + int((~sample.target).sum()) == given.labels.sum()
    turned = drawn(td4eval.DetectorPool(given.scores, given.labels[0], wrong=1.0))
    assert np.array_equal(turned.calibration_mask, ~np.asarray(sample.calibration_mask))


def test_wrong_calibration_items_score_like_clean_ones():
    right = drawn(td4eval.Mislabelled(num_calibration=4_000, num_tests=4_000))
    wrong = drawn(td4eval.Mislabelled(num_calibration=4_000, num_tests=4_000, wrong=1.0))
    gap = np.asarray(wrong.calibration - right.calibration).mean(axis=1)
    assert np.allclose(gap, td4eval.SIGNALS, atol=1e-5)
    assert np.allclose(right.calibration.mean(axis=1), 0, atol=0.1)
    clean = np.asarray(right.target)
    assert np.allclose(np.asarray(right.scores)[:, clean].mean(axis=1), td4eval.SIGNALS, atol=0.15)


def test_validation_items_are_labelled_and_of_the_same_laws():
    sample = drawn(td4eval.Mislabelled(num_calibration=4_000, num_tests=4_000))
    validation, clean = np.asarray(sample.extra["validation"]), np.asarray(sample.extra["validation_target"])
    assert np.array_equal(validation[:, ~clean], sample.calibration)
    assert np.allclose(validation[:, clean].mean(axis=1), td4eval.SIGNALS, atol=0.1)
    assert abs(np.corrcoef(validation[:2, clean])[0, 1] - td4eval.CORRELATION) < 0.06
    given = columns(3)
    sample = drawn(td4eval.DetectorPool(given.scores, given.labels[0]))
    assert np.array_equal(sample.extra["validation"], sample.calibration)
    assert np.array_equal(sample.extra["validation_target"], ~np.asarray(sample.calibration_mask))


@pytest.mark.slow("long")
def test_accuracy_and_auc_of_thresholds_and_combinations():
    """ACC is what Hamming leaves; AUC of a detector is that of its normal laws, Phi(signal/sqrt(2))."""
    told = options(400, (0.15,))
    result = load("td4eval-baselines").run(told)
    rows = {row["method"]: row for row in verdict_rows(load("td4eval-baselines"), told, result)}
    assert len(rows) == len(td4eval.SIGNALS) + 5
    for signal in td4eval.SIGNALS:
        row = rows[f"detector {signal:g} sd, threshold"]
        assert row["accuracy"] == pytest.approx(1 - row["hamming"])
        assert abs(row["auc"] - ndtr(signal / np.sqrt(2))) < 5 * row["auc_se"]
        assert abs(row["accuracy"] - ndtr(signal / 2)) < 0.02
        assert row["verdict"].startswith("no guarantee")
    assert rows["td4eval/pooled_rank"]["verdict"] == "within"
    assert rows["td4eval/bh_max"]["fdr"] > 0.2 > rows["td4eval/bh_average"]["fdr"]


def test_a_knockoff_pool_draws_half_with_its_own_knockoffs():
    given = columns(1, 1, 5)
    sample = drawn(KnockoffPool(given.scores[0], given.knockoffs, given.labels[0], 3))
    assert sample.scores.shape == (20,)
    assert sample.extra["knockoffs"].shape == (20, 3)
    for score, own, member in zip(sample.scores, sample.extra["knockoffs"], sample.target):
        (row,) = np.flatnonzero(np.isclose(given.scores[0], float(score), atol=1e-6))
        assert np.allclose(own, given.knockoffs[row, :3], atol=1e-6)
        assert bool(member) == given.labels[0, row]


def test_a_joint_pool_calibrates_on_half_of_the_shared_members():
    given = columns(3, 3)
    shared = given.labels.all(0)
    design = jecs.joint_pool(given, 3)
    sample = drawn(design)
    assert sample.calibration.shape == (3, shared.sum() // 2)
    assert sample.scores.shape == (3, 40 - shared.sum() // 2)
    assert int(sample.target.sum()) == int((~given.labels.any(0)).sum())
    ranks = driver.dense_ranks(given.scores)
    for column in np.asarray(sample.calibration).T:
        (row,) = np.flatnonzero((ranks == column[:, None]).all(0))
        assert shared[row]


@pytest.mark.slow("long")
def test_models_beyond_k_change_nothing():
    eight = drawn(jecs.SomeModels(8))
    three = drawn(jecs.SomeModels(3))
    assert int(three.target.sum()) == int((~np.asarray(eight.extra["member"])[:3].any(0)).sum())
    same = tdd.jmcs(three.calibration, three.scores, alpha=0.2).selected
    alone = tdd.jmcs(eight.calibration[:3], eight.scores[:3], alpha=0.2).selected
    assert np.array_equal(same, alone)
    assert int(alone.sum()) > 100


@pytest.mark.parametrize("law", range(3))
def test_laws_by_number_are_the_laws(law):
    sample = drawn(ktd.AnyLaw(law, 4))
    named = drawn(PairedScores(num_tests=200, num_knockoffs=4, num_calibration=1, signal=ktd.SIGNAL, law=ktd.LAWS[law]))
    assert np.array_equal(sample.scores, named.scores)
    assert np.array_equal(sample.extra["knockoffs"], named.extra["knockoffs"])


@pytest.mark.slow("long")
def test_labelled_texts_are_of_the_same_law():
    """Half of a hundred are members, lower by the signal."""
    sample = jax.jit(jax.vmap(ktd.AnyLaw(0, 2, 1.5).draw))(jax.random.split(KEY, 200))
    scores, member = (np.asarray(sample.extra[name]) for name in ("validation", "validation_target"))
    assert scores.shape == (200, 100)
    assert member.mean() == 0.5
    assert scores[member].mean() == pytest.approx(-1.5, abs=0.1)
    assert scores[~member].mean() == pytest.approx(0, abs=0.1)


def test_labelled_texts_of_a_table_are_those_that_are_not_tested():
    given = columns(1, 1, 5)
    sample = drawn(KnockoffPool(given.scores[0], given.knockoffs, given.labels[0], 3))
    both = np.concatenate([sample.scores, sample.extra["validation"]])
    assert np.allclose(np.sort(both), np.sort(given.scores[0]), atol=1e-6)
    labels = np.concatenate([sample.target, sample.extra["validation_target"]])
    assert np.array_equal(labels[np.argsort(both)], given.labels[0][np.argsort(given.scores[0])])


def test_ordered_shards_have_the_variance_and_the_gain_that_they_say():
    design = exchange.OrderedShards(20, 3, num_shards=10, gain=0.5)
    draws = jax.jit(jax.vmap(design.draw))(jax.random.split(KEY, 500)).extra
    real = np.asarray(draws["canonical"])[:, :10]
    assert real.mean() == pytest.approx(0.5 * 99, abs=0.5)
    assert real.std() == pytest.approx(10, rel=0.05)
    assert np.asarray(draws["shuffled"]).mean() == pytest.approx(0.5 * 0.99, abs=0.3)
    assert np.asarray(draws["shards"]).sum(axis=1).tolist() == [10] * 500


def test_the_null_of_a_shard_pool_keeps_each_shard_together():
    given = columns(1, 0, 4, size=12)
    canonical, shuffled = -given.scores[0], -given.knockoffs
    sample = drawn(exchange.ShardPool(canonical, shuffled, 4, 12, 0.0))
    kept = drawn(exchange.ShardPool(canonical, shuffled, 4, 12, 1.0))
    assert bool(kept.target[0])
    assert not bool(sample.target[0])
    orders = [np.concatenate([s.extra["canonical"][:, None], s.extra["shuffled"]], 1) for s in (sample, kept)]
    assert np.allclose(np.sort(orders[0], 1), np.sort(orders[1], 1))
    assert not np.allclose(orders[0][:, 0], orders[1][:, 0])


# --- running ----------------------------------------------------------------------------------------------------------


def small(name):
    """A study on a small table: seconds, not minutes."""
    given = {
        "td4eval-alpha": columns(2),
        "ktd-draws": columns(1, 1, 1),
        "ktd-alpha": columns(1, 1, 2),
        "ktd-tradeoff": columns(1, 1, 2),
        "ktd-signal": columns(1, 1, 2),
        "ktd-baselines": columns(1, 1, 2),
        "jecs-compositions": columns(2, 2),
        "exchange-shards": columns(1, 0, 1, size=6),
    }
    few = {  # programs that compile fast
        "td4eval-alpha": ("td4eval/cauchy", "td4eval/average"),
        "ktd-draws": ("ktd/multi",),
        "jecs-compositions": ("union", "jecs"),
    }
    study = load(name)
    if name in few:
        study = dataclasses.replace(study, run=dataclasses.replace(study.run, methods=few[name]))
    return study, options(columns=given[name])


@pytest.fixture
def few_tests(monkeypatch):
    monkeypatch.setattr(exchange, "TESTS", ("t",))


@pytest.mark.usefixtures("few_tests")
@pytest.mark.parametrize(
    "name",
    [
        "td4eval-alpha", "ktd-draws", "ktd-alpha", "ktd-tradeoff", "ktd-signal", "ktd-baselines", "jecs-compositions",
        "exchange-shards",
    ],
)  # fmt: skip
@pytest.mark.slow("long")
def test_studies_of_a_given_table(name):
    study, told = small(name)
    result = study.run(told)
    rows = verdict_rows(study, told, result)
    assert len(rows) == len(result.cells) * len(result.methods)
    assert all(0 <= row["fdr"] <= 1 and 0 <= row["power"] <= 1 for row in rows)
    assert set(np.atleast_1d(result.repetitions)) == {64}
    assert max(row["power"] for row in rows) > 0 or name == "exchange-shards"
    studies.draw(result, study.figure, title=study.title, caption=study.describe(told))


@pytest.mark.parametrize("name", PTDI)
def test_studies_of_the_pool(name):
    study = load(name)
    told = options(2_000)
    rows = verdict_rows(study, told, study.run(told))
    assert {row["verdict"] for row in rows} <= {"within", "within (holds in the limit)"}
    assert max(row["power"] for row in rows) > 0.3


@pytest.mark.slow("long")
def test_bias_and_squared_error_are_those_of_the_definition():
    """The subtraction estimate of PTDI eq. 12 split by split in NumPy, and how the estimates compare."""
    told = options(2_000, (0.1,))
    result = load("ptdi-bias").run(told)
    rows = [row for row in result.rows() if row["method"] == "subtraction"]
    scores, is_member = ptdi.pool(told)
    rng = np.random.default_rng(0)
    for row in rows:
        share, errors = row["test_members"], []
        n, nulls, targets = Pool(scores, is_member, test_members=share).sizes()
        for _ in range(2_000):
            others, members = rng.permutation(scores[~is_member]), rng.permutation(scores[is_member])
            own, tested = np.sort(others[:n]), np.r_[others[n : n + nulls], members[:targets]]
            size = max(1, int(0.05 * n + 1e-9))
            edge = own[n - size - 1]
            estimate = 1 - (1 + (tested > edge).sum()) / (nulls + targets + 1) / (size / n)
            errors.append(estimate - targets / (nulls + targets))
        errors = np.array(errors)
        for name, values in (("bias", errors), ("mse", errors**2)):
            spread = np.hypot(row[f"{name}_se"], values.std() / np.sqrt(2_000))
            assert abs(row[name] - values.mean()) < 5 * spread
    by = {(row["test_members"], row["method"]): row for row in result.rows()}
    for (share, name), row in by.items():
        assert row["mse"] >= row["bias"] ** 2
        assert row["bias"] < 3 * row["bias_se"]  # conservative, as PTDI eq. 11 has it
        if name == "moment" and share < 0.9:
            assert row["mse"] < by[share, "subtraction"]["mse"]


def test_the_moment_estimate_is_that_of_storey_where_no_members_are_left_over():
    """A table with few members: nine tenths of the candidates take all of them."""
    rng = np.random.default_rng(0)
    is_member = np.arange(60) < 12
    scores = rng.normal(size=60) - 2 * is_member
    design = Pool(scores, is_member, test_members=0.9)
    assert "members" not in jax.eval_shape(design.draw, KEY).extra
    errors = jax.jit(ptdi._errors(scores, is_member, np.array([design.sizes()])))(KEY)
    of = {name: float(error[0]) for name, error in zip(ptdi.ESTIMATES, errors, strict=True)}
    assert of["moment"] == pytest.approx(of["storey"])


@pytest.mark.slow("long")
def test_thresholds_and_knockoffs_of_ktd():
    """What the study of the baselines shows at few repetitions: who keeps the level; and the axes of a tradeoff."""
    study, told = load("ktd-baselines"), options(1_000, (0.1,))
    rows = verdict_rows(study, told, study.run(told))
    assert len(rows) == 3 * 4
    by = {(row["law"], row["method"]): row for row in rows}
    for law in ktd.LAWS:
        assert by[law, ktd.VANILLA]["verdict"] == "within"
        assert by[law, "threshold/fpr"]["verdict"] == "no guarantee, above"
        assert by[law, "threshold/fdr"]["verdict"] == "no guarantee, above"
    study, told = load("ktd-signal"), options(256, (0.1, 0.5, 0.9))
    result = study.run(told)
    assert result.fdr.shape == (12, 1, 3)
    assert (np.diff(result.power, axis=2) >= 0).all()
    panels = studies.draw(result, study.figure, title="t").panels
    assert [axes.get_title("left") for axes in panels[0]] == ["normal", "exponential", "minus exponential"]


def plain_result(methods, seed=0, points=None):
    rng = np.random.default_rng(seed)
    shape = (*(() if points is None else (len(points),)), len(methods), 1)
    arrays = {
        field.name: rng.random(shape + (5,) * field.name.endswith("quantiles"))
        for field in dataclasses.fields(StudyResult)
        if field.type == "np.ndarray"
    }
    counts = 100 if points is None else np.full(len(points), 100)
    cells = tuple(points or ({},))
    return StudyResult(tuple(methods), (0.1,), cells, repetitions=counts, seconds=1.0, provenance={}, **arrays)


def test_measures_are_stacked_saved_and_read(tmp_path):
    parts = [dataclasses.replace(plain_result("ab", i), measures={"auc": np.full((2, 1), i / 10)}) for i in range(3)]
    whole = driver.stacked([{"x": i} for i in range(3)], parts)
    assert [row["auc"] for row in whole.rows()] == [0, 0, 0.1, 0.1, 0.2, 0.2]
    back = StudyResult.load(whole.save(tmp_path))
    assert list(back.measures) == ["auc"]
    assert np.array_equal(back.measures["auc"], whole.measures["auc"])
    assert StudyResult.load(plain_result("ab").save(tmp_path / "none")).measures == {}


def test_thresholds_become_cells():
    fixed = [f"{jecs.FIXED} {tau:g}" for tau in jecs.THRESHOLDS]
    result = plain_result([*fixed, jecs.ADAPTIVE, jecs.BASELINE])
    moved = jecs._by_threshold(result)
    assert moved.fdr.shape == (6, 3, 1)
    assert np.array_equal(moved.fdr[:, 0, 0], result.fdr[:6, 0])
    assert (moved.power[:, 1, 0] == result.power[6, 0]).all()
    assert (moved.power[:, 2, 0] == result.power[7, 0]).all()


def test_size_is_of_the_null_and_power_of_the_alternative():
    both = plain_result("ab", points=[{"r": r, "gain": g} for r in (2, 3) for g in (0.0, 1.0)])
    half = exchange.halves(both, [{"r": 2}, {"r": 3}])
    assert np.array_equal(half.fdr, both.fdr[0::2])
    assert np.array_equal(half.power_quantiles, both.power_quantiles[1::2])
    whole = exchange.joined([half, half])
    assert whole.fdr.shape == (4, 2, 1)
    assert [cell["r"] for cell in whole.cells] == [2, 3, 2, 3]


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_finished_study_is_read_and_another_is_refused(tmp_path):
    study, told = small("ktd-draws")
    told = dataclasses.replace(told, folder=tmp_path / "study")
    first = run_named_study(study, told, command="tdd study ktd-draws")
    assert first.computed
    assert sorted(path.name for path in told.folder.iterdir()) == [
        "inputs.json", "report.html", "results.csv", "results.parquet", "study.json",
    ]  # fmt: skip
    again = run_named_study(study, told, command="tdd study ktd-draws")
    assert not again.computed
    assert np.array_equal(again.result.fdr, first.result.fdr)
    assert again.result.provenance["command"] == "tdd study ktd-draws"
    assert again.result.provenance["table"]["source"] == "a table"
    with pytest.raises(InputError, match="holds a run of other inputs or options"):
        run_named_study(study, dataclasses.replace(told, seed=1), command="")


@pytest.mark.parametrize("exists", [False, True])
def test_options_that_cannot_be_run_leave_no_trace(tmp_path, exists):
    study, told = small("ktd-draws")
    folder = tmp_path / "study"
    if exists:
        folder.mkdir()
    with pytest.raises(InputError, match="alpha"):
        run_named_study(study, dataclasses.replace(told, folder=folder, alphas=(2.0,)), command="")
    assert folder.exists() == exists
    assert not exists or not [*folder.iterdir()]


def test_an_interrupted_study_continues(tmp_path, monkeypatch):
    study, told = small("ktd-draws")
    told = dataclasses.replace(told, folder=tmp_path / "study")
    whole = study.run(dataclasses.replace(told, folder=None))

    def stopped(options):
        study.run(options)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_named_study(dataclasses.replace(study, run=stopped), told, command="")
    assert (told.folder / "unfinished").is_dir()
    assert not (told.folder / "study.json").exists()
    done = run_named_study(study, told, command="")
    assert np.array_equal(done.result.fdr, whole.fdr)
    assert not (told.folder / "unfinished").exists()


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "scores.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "a", "b", "k1", "k2", "one", "two"])
        for i in range(12):
            missing = "" if i == 3 else i
            writer.writerow([f"i{i}", missing, -i, i + 0.5, i - 0.5, i % 2, "" if i == 5 else int(i < 6)])
    return path


def test_reading_what_a_study_needs(table):
    found = read_columns(table, Needs(knockoffs=True), scores=["a"], knockoffs=["k1", "k2"], labels=["one"])
    assert found.scores.tolist() == [[0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]]
    assert found.knockoffs.shape == (11, 2)
    assert found.labels.tolist() == [[bool(i % 2) for i in range(12) if i != 3]]
    assert "1 of 12 rows incomplete, left out" in found.source
    each = read_columns(table, Needs("several", "each"), scores=["a", "b"], labels=["one", "two"])
    assert each.labels.shape == (2, 10)
    turned = read_columns(table, Needs(), scores=["b"], labels=["one"], higher_is_member=True)
    assert turned.scores[0].tolist() == list(range(12))


@pytest.mark.parametrize(
    ("needs", "arguments", "words"),
    [
        (Needs(), {"scores": ["a", "b"], "labels": ["one"]}, "score names 2 columns; this study reads one"),
        (Needs("several"), {"scores": ["a"], "labels": ["one"]}, "at least two columns"),
        (Needs(), {"scores": ["a"]}, "label_field must name the column of known truth"),
        (Needs("several", "each"), {"scores": ["a", "b"], "labels": ["one"]}, "for each score"),
        (Needs(knockoffs=True), {"scores": ["a"], "labels": ["one"]}, "knockoffs must name"),
        (Needs(), {"scores": ["a"], "labels": ["one"], "knockoffs": ["k1"]}, "knockoffs are not read"),
        (
            Needs(knockoffs=True),
            {"labels": ["one"], "knockoffs": ["k1"]},
            "score must name the column of the originals",
        ),
        (Needs(), {"scores": ["zz"], "labels": ["one"]}, "zz"),
    ],
)
def test_what_a_table_lacks(table, needs, arguments, words):
    with pytest.raises(InputError, match=words):
        read_columns(table, needs, **arguments)


def test_a_table_with_hardly_any_whole_row(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("id,a,one\n" + "".join(f"{i},{i if i < 3 else ''},1\n" for i in range(9)))
    with pytest.raises(InputError, match="3 of 9 rows have every score and label"):
        read_columns(path, Needs(), scores=["a"], labels=["one"])


def test_a_joint_table_needs_shared_members():
    none = columns(2, 2)
    none = dataclasses.replace(none, labels=np.array([[True] * 20 + [False] * 20, [False] * 20 + [True] * 20]))
    with pytest.raises(InputError, match="0 of 40 items are members of all models"):
        jecs._design(options(columns=none))
