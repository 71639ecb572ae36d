"""Totals are exact sums of what each repetition gave; results say what NumPy says of the same repetitions."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

import tdd
from tdd.kernels import tally
from tdd.study.results import QUANTILES, StudyResult, Totals

update = jax.jit(tally.update)
METHODS, ALPHAS, ITEMS = ("a", "b"), (0.1, 0.2, 0.3), 40


def repetitions(count, seed=0):
    """False, selected [method, alpha, count] and targets [count] as a study could give them."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, ITEMS + 1, count)
    true = (rng.random((2, 3, count)) * (targets + 1)).astype(int)
    false = (rng.random((2, 3, count)) ** 4 * (ITEMS - targets + 1)).astype(int)
    return false, false + true, targets


def added(totals, false, selected, targets):
    arrays = [jnp.asarray(x, jnp.int32) for x in (false, selected, targets)]
    return totals.add(update(tally.zero((2, 3)), *arrays, jnp.int32(ITEMS)))


def proportions(false, selected, targets):
    """[metric, method, alpha, count] in float64."""
    true = selected - false
    return np.stack(
        [
            false / np.maximum(selected, 1),
            true / np.maximum(targets, 1),
            (false + targets - true) / ITEMS,
            selected / ITEMS,
        ]
    )


def result_of(data, chunks=1, **options):
    totals = Totals.zero((2, 3))
    for part in np.array_split(np.arange(data[0].shape[-1]), chunks):
        totals = added(totals, *(x[..., part] for x in data))
    return Totals.result([totals], methods=METHODS, alphas=ALPHAS, num_items=ITEMS, **options), totals


def test_means_errors_and_quantiles():
    data = repetitions(3_000)
    found, _ = result_of(data)
    fdp, power, hamming, share = proportions(*data)
    root = np.sqrt(3_000)
    for name, values in (("fdr", fdp), ("power", power), ("hamming", hamming), ("num_selected", share * ITEMS)):
        scale = ITEMS if name == "num_selected" else 1
        np.testing.assert_allclose(getattr(found, name), values.mean(-1), atol=2e-7 * scale)
        np.testing.assert_allclose(getattr(found, f"{name}_se"), values.std(-1, ddof=1) / root, rtol=1e-5)
    for name, values in (("fdp", fdp), ("power", power), ("hamming", hamming)):
        expected = np.quantile(values, QUANTILES, axis=-1, method="inverted_cdf")
        got = getattr(found, f"{name}_quantiles")
        assert got.shape == (2, 3, 5)
        assert np.abs(got - np.moveaxis(expected, 0, -1)).max() <= 1 / 2048 + 1e-9
    counts = np.quantile(data[1], QUANTILES, axis=-1, method="inverted_cdf")
    np.testing.assert_array_equal(found.num_selected_quantiles, np.moveaxis(counts, 0, -1))
    assert found.repetitions == 3_000


def test_totals_do_not_depend_on_the_order_or_the_cuts():
    data = repetitions(500)
    _, once = result_of(data)
    _, parts = result_of(tuple(x[..., ::-1] for x in data), chunks=7)
    for a, b in zip(once.to_arrays().values(), parts.to_arrays().values()):
        np.testing.assert_array_equal(a, b)
    again = Totals.from_arrays(once.to_arrays())
    assert again.repetitions == 500
    np.testing.assert_array_equal(again.sums, once.sums)


def test_a_leading_axis_over_devices_is_summed():
    data = repetitions(64)
    arrays = [jnp.asarray(x, jnp.int32) for x in data]
    halves = [
        update(tally.zero((2, 3)), *(x[..., part] for x in arrays), jnp.int32(ITEMS))
        for part in (slice(0, 40), slice(40, 64))
    ]
    stacked = tally.Tally(*(jnp.stack(leaves) for leaves in zip(*halves)))
    got, (_, expected) = Totals.zero((2, 3)).add(stacked), result_of(data)
    assert got.repetitions == 64
    np.testing.assert_array_equal(got.sums, expected.sums)
    np.testing.assert_array_equal(got.histogram, expected.histogram)


def test_sums_beyond_32_bits():
    """A billion repetitions with power 1: no sum wraps, the mean stays 1 and the error 0."""
    one = update(tally.zero((1, 1)), *(jnp.full((1, 1, 1024), v) for v in (0, 5)), jnp.int32(5), jnp.int32(5))
    totals = Totals.zero((1, 1))
    large = tally.Tally(one.repetitions, one.sums, one.histogram)
    for _ in range(20):
        totals = Totals(totals.repetitions * 2, totals.sums * 2, totals.histogram * 2).add(large)
    assert totals.repetitions == (2**20 - 1) * 1024
    assert totals.means()[0, 0].tolist() == [0, 1, 0, 1]
    assert totals.standard_errors()[0, 0].tolist() == [0, 0, 0, 0]
    assert (totals.standard_errors(cautious=True) > 0).all()


def test_cautious_errors_are_those_of_two_more():
    false, selected, targets = repetitions(50)
    _, totals = result_of((false, selected, targets))
    fdp = proportions(false, selected, targets)[0]
    more = np.concatenate([fdp, np.zeros((2, 3, 1)), np.ones((2, 3, 1))], axis=-1)
    expected = more.std(-1, ddof=1) / np.sqrt(52)
    np.testing.assert_allclose(totals.standard_errors(cautious=True)[..., 0], expected, rtol=1e-5)


@pytest.mark.parametrize("grid", [False, True])
def test_save_and_load(tmp_path, grid):
    cells = [{"signal": 1.0, "law": "normal"}, {"signal": 2.5, "law": "exponential"}] if grid else None
    totals = [result_of(repetitions(100, seed))[1] for seed in range(2 if grid else 1)]
    made = Totals.result(
        totals, methods=METHODS, alphas=ALPHAS, num_items=ITEMS, cells=cells, seconds=1.5, provenance={"seed": 3}
    )
    again = StudyResult.load(made.save(tmp_path / "deep" / "study"))
    for name, value in vars(made).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(again, name), value, strict=True, err_msg=name)
        else:
            assert getattr(again, name) == value, name
    assert made.fdr.shape == ((2, 2, 3) if grid else (2, 3))
    folder = tmp_path / "deep" / "study"
    assert {path.name for path in folder.iterdir()} == {"report.html", "results.parquet", "results.csv", "study.json"}
    rows, table = made.rows(), pq.read_table(folder / "results.parquet").to_pylist()
    assert rows == table
    assert len(rows) == (12 if grid else 6)
    assert rows[-1]["alpha"] == 0.3
    assert rows[-1]["method"] == "b"
    assert rows[-1]["fdp_q95"] == made.fdp_quantiles[..., -1].ravel()[-1]
    with open(folder / "results.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [float(row["power_se"]) for row in written] == [row["power_se"] for row in rows]
    assert json.loads((folder / "study.json").read_text())["provenance"] == {"seed": 3}


def test_cells_of_mixed_values_can_be_written(tmp_path):
    totals = [result_of(repetitions(10, seed))[1] for seed in range(3)]
    cells = [{"x": None, "y": 1}, {"x": 2.5, "y": 0.5}, {"x": (1, 2), "y": np.float32(0.25)}]
    made = Totals.result(totals, methods=METHODS, alphas=ALPHAS, num_items=ITEMS, cells=cells)
    table = pq.read_table(made.save(tmp_path) / "results.parquet").to_pylist()
    assert [row["x"] for row in table[::6]] == [None, "2.5", "(1, 2)"]
    assert [row["y"] for row in table[::6]] == [1, 0.5, 0.25]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("study.json", "{"),
        ("study.json", "[]"),
        ("study.json", "{}"),
        ("results.parquet", ""),
        ("results.parquet", "P"),
    ],
)
def test_load_of_a_damaged_study(tmp_path, name, content):
    totals = [result_of(repetitions(10, 0))[1]]
    folder = Totals.result(totals, methods=METHODS, alphas=ALPHAS, num_items=ITEMS).save(tmp_path / "study")
    (folder / name).write_text(content)
    with pytest.raises(
        tdd.InputError,
        match=r"study.json (has schema|cannot be read)|study holds a damaged study .*; remove the folder",
    ):
        StudyResult.load(folder)


def test_an_edited_table_of_a_study_is_refused(tmp_path):
    totals = [result_of(repetitions(10, 0))[1]]
    folder = Totals.result(totals, methods=METHODS, alphas=ALPHAS, num_items=ITEMS).save(tmp_path / "study")
    table = pq.read_table(folder / "results.parquet")
    column = table.column_names.index("power")
    pq.write_table(table.set_column(column, "power", table["fdr"]), folder / "results.parquet")
    with pytest.raises(tdd.InputError, match=r"results.parquet is damaged or was edited: .* in study.json"):
        StudyResult.load(folder)


def test_load_says_what_is_missing(tmp_path):
    with pytest.raises(tdd.InputError, match=r"holds no finished study: study.json and results.parquet missing"):
        StudyResult.load(tmp_path)
