"""The study of the five tests: each decides as the public call, sizes and powers stand in their cells."""

import jax
import numpy as np
import pytest

import tdd
from tdd.report.plots import studies
from tdd.study.designs import SkewedShards
from tdd.study.named import exchange, load
from tdd.study.named.driver import verdict_rows
from tdd.study.named.record import Columns, StudyOptions

KEY = jax.random.key(3)
STUDY = load("exchange-tests")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(exchange, "SIZES", ((10, 4),))
    skewed, few = exchange.SETTINGS[2:]
    monkeypatch.setattr(exchange, "SETTINGS", (skewed, (few[0], "lognormal", 20.0, few[3])))
    monkeypatch.setattr(exchange, "NUM_DRAWS", 199)


@pytest.mark.parametrize("test", exchange.TESTS)
def test_every_test_is_the_public_one(test):
    design = exchange.TestedShards(SkewedShards(num_shards=4, num_shuffles=5, signal=0.5), num_draws=300)
    extra = jax.jit(design.draw)(KEY).extra
    drawing = jax.random.split(KEY)[1]
    expected = tdd.exchangeability(extra["canonical"], extra["shuffled"], test=test, key=drawing, num_draws=300)
    if test in ("exact", "combined"):  # other draws
        assert float(extra["p"][test]) == pytest.approx(float(expected.p_value), abs=0.1)
    else:
        assert float(extra["p"][test]) == pytest.approx(float(expected.p_value), rel=1e-5)
    p = float(extra["p"][test])
    told = {"key": KEY, "scores": None, "calibration": None, "extra": extra, "test": test}
    assert [bool(exchange._decide_tested(alpha=alpha, **told)[0]) for alpha in (p * 0.99, p * 1.01)] == [False, True]


@pytest.mark.usefixtures("small")
@pytest.mark.slow("long")
def test_sizes_stand_beside_powers_and_a_null_is_run_once():
    told = StudyOptions(repetitions=2_048, alphas=(0.05,))
    result = STUDY.run(told)
    rows = verdict_rows(STUDY, told, result)
    assert [cell["panel"] for cell in result.cells] == ["lognormal", "few shards"]
    assert {cell["calls"] for cell in result.cells} == {50}
    np.testing.assert_array_equal(result.fdr[0], result.fdr[1])
    assert set(result.repetitions) == {2_048}
    by_name = {(row["panel"], row["method"].partition("/")[2]): row for row in rows}
    assert by_name["lognormal", "t"]["verdict"] == "above (holds in the limit)"
    assert all(row["verdict"] == "within" for (_, name), row in by_name.items() if name != "t")
    power = {name: row["power"] for name, row in by_name.items()}
    assert power["lognormal", "rank_sum"] > power["lognormal", "permutation"] + 0.1
    assert power["few shards", "exact"] > power["few shards", "rank_sum"] + 0.1
    studies.draw(result, STUDY.figure, title=STUDY.title, caption=STUDY.describe(told))


@pytest.mark.slow("long")
def test_a_given_table_is_tested_with_all_its_shards(monkeypatch):
    monkeypatch.setattr(exchange, "TESTS", ("rank_sum", "t"))
    rng = np.random.default_rng(0)
    shuffled = rng.exponential(size=(6, 3))  # loss-like
    columns = Columns("a table", "0" * 64, ("s",), -np.ones((1, 6)), np.zeros((0, 6), bool), shuffled)
    told = StudyOptions(repetitions=256, alphas=(0.05,), columns=columns)
    result = STUDY.run(told)
    assert [dict(cell) for cell in result.cells] == [
        {"panel": "the table", "num_shards": 6, "num_shuffles": 3, "calls": 24}
    ]
    assert result.power[0, 0, 0] == 1  # its canonical orders beat every shuffle
    assert result.fdr[0, 0, 0] < 0.1
    assert "a table: all its shards" in STUDY.describe(told)
