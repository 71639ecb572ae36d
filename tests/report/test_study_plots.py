"""Figures of studies: readable without colour, nothing cut off, the same bytes every time."""

import dataclasses
import functools

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tdd.report.plots import sheet, studies
from tdd.report.plots.single_repetition import _stop
from tdd.study.named.record import Example, Figure
from tdd.study.results import StudyResult

LEVELS = (0.1, 0.2, 0.3)


def result(methods=("none", "subtraction"), points=None, alphas=LEVELS):
    """A result whose numbers say where they belong: fdr = cell + method/10 + alpha/100."""
    shape = (1 if points is None else len(points), len(methods), len(alphas))
    i, j, k = np.indices(shape)
    mean = 0.02 + 0.1 * i / shape[0] + 0.05 * j + np.asarray(alphas)[k] / 2
    quantiles = np.clip(mean[..., None] + np.array([-0.2, -0.1, 0, 0.1, 0.2]), 0, 1)
    arrays = {
        field.name: quantiles if field.name.endswith("quantiles") else mean if "_se" not in field.name else mean / 50
        for field in dataclasses.fields(StudyResult)
        if field.type == "np.ndarray"
    }
    if points is None:
        arrays = {name: array[0] for name, array in arrays.items()}
    return StudyResult(
        methods=tuple(methods),
        alphas=tuple(alphas),
        cells=tuple(points or ({},)),
        repetitions=1_000 if points is None else np.full(len(points), 1_000),
        seconds=1.0,
        provenance={},
        **arrays,
    )


GRID = [{"law": law, "k": k} for law in ("normal", "exponential", "minus exponential") for k in (1, 5, 50)]
FIGURES = {
    "levels": (result(), Figure("levels", labels={"none": "vanilla", "subtraction": "scaled"})),
    "levels, cells": (
        result(points=[{"pi": 0.1}, {"pi": 0.9}]),
        Figure("levels", series="pi", panels="method", labels={"pi": "π"}),
    ),
    "levels, lines": (result(methods=tuple("abcdefg"), alphas=tuple(np.arange(1, 10) / 20)), Figure("levels")),
    "bands": (
        result(points=[{"rho": 0.1}, {"rho": 1.0}]),
        Figure("bands", series="", panels="rho", labels={"rho": "ρ"}),
    ),
    "parameter": (result(points=GRID), Figure("parameter", panels="law", x="k", x_label="knockoffs")),
    "parameter, one panel": (result(points=GRID[:3]), Figure("parameter", x="k", level=0.3, error="GCR")),
    "tradeoff": (
        result(points=GRID, alphas=tuple(np.arange(1, 10) / 10)),
        Figure("tradeoff", series="k", panels="law", labels={"k": "k"}),
    ),
    "bars": (result(methods=("union", "jmcs", "jecs")), Figure("bars", error="GCR")),
}
RNG = np.random.default_rng(0)
P_VALUES = np.sort(np.round(RNG.random(60) ** 2 * 40 + 0.5) / 41)
EXAMPLES = {
    "staircase": Example(
        "staircase",
        {"p_values": {"a": P_VALUES, "b": P_VALUES / 2}, "false": RNG.random(60) < 0.5, "alpha": 0.2},
        "one",
        "a title",
    ),
    "envelope": Example(
        "envelope",
        {
            "p_values": P_VALUES,
            "false": RNG.random(60) < 0.5,
            "x": P_VALUES,
            "value": P_VALUES**2,
            "tau": 0.3,
            "slope": 0.5,
            "cuts": {"JMCS: 0 selected": 0.0, "JECS: 9 selected": 0.08},
        },
        "one",
        "a title",
    ),
}


def drawn_anew(name):
    if name in EXAMPLES:
        return studies.draw_example(EXAMPLES[name])
    data, figure = FIGURES[name]
    return studies.draw(data, figure, title="a title", caption="the design")


drawn = functools.cache(drawn_anew)  # for tests that look at it only


def caption_of(page):
    (caption,) = page.figure.texts
    return caption.get_text().replace("\n", " ")


def axes_of(drawn_sheet):
    return [axes for row in drawn_sheet.panels for axes in row]


@pytest.mark.parametrize(("name", "kind"), [("levels", "svg"), ("envelope", "svg"), ("bars", "png")])
def test_files_are_the_same_every_time(name, kind, tmp_path):
    before = dict(matplotlib.rcParams)
    first, second = (sheet.save(drawn_anew(name), tmp_path / f"{i}.{kind}").read_bytes() for i in range(2))
    assert first == second
    assert first[:4] == (b"\x89PNG" if kind == "png" else b"<?xm")
    assert b"<dc:date>" not in first
    assert dict(matplotlib.rcParams) == before
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [f".{kind}"] * 2


@pytest.mark.parametrize("name", [*FIGURES, *EXAMPLES])
def test_nothing_is_cut_off_and_words_do_not_overlap(name):
    page = drawn(name)
    with sheet.style():
        page.figure.draw_without_rendering()
        renderer = page.figure.canvas.get_renderer()
        frame = page.figure.bbox
        texts = [*page.figure.texts]
        for legend in page.figure.legends:
            texts += [legend.get_title(), *legend.get_texts()]
        for axes in axes_of(page):
            texts += [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                shown = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
                texts += [tick.label1 for tick in shown]
        boxes = [
            (text.get_text(), text.get_window_extent(renderer))
            for text in texts
            if text.get_text() and text.get_visible()
        ]
    assert len(boxes) > 10
    outside = [word for word, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > frame.x1 or box.y1 > frame.y1]
    assert not outside
    clashes = [
        (a, b)
        for i, (a, one) in enumerate(boxes)
        for b, other in boxes[i + 1 :]
        if min(one.x1, other.x1) - max(one.x0, other.x0) > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1
    ]
    assert not clashes


def test_series_differ_without_colour_and_in_grey():
    looks = [sheet.stroke(i) for i in range(7)]
    assert len({look.marker for look in looks}) == 7
    assert len({str(look.dashes) for look in looks}) == 7
    assert len({look.hatch for look in looks}) == 7
    many = [sheet.stroke(i) for i in range(20)]
    assert len({(look.colour, look.marker, str(look.dashes), look.hatch) for look in many}) == 20
    first = [float(np.dot(to_rgb(look.colour), (0.2126, 0.7152, 0.0722))) for look in looks[:4]]
    assert min(abs(a - b) for i, a in enumerate(first) for b in first[i + 1 :]) > 0.03


def test_lines_hold_the_numbers_and_the_diagonal():
    data, _ = FIGURES["levels"]
    left, right = axes_of(drawn("levels"))
    lines = [line for line in left.get_lines() if len(line.get_xdata()) == len(LEVELS)]
    for i in range(2):
        assert any(np.allclose(line.get_ydata(), data.fdr[i]) for line in lines)
    (diagonal,) = [line for line in left.get_lines() if len(line.get_xdata()) == 2]
    assert np.array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    heights = [bar.get_height() for bar in right.patches]
    assert np.allclose(np.sort(heights), np.sort(data.power.ravel()))


def test_panels_hold_their_own_cells():
    data, _ = FIGURES["parameter"]
    page = drawn("parameter")
    for j, law in enumerate(("normal", "exponential")):
        assert page.panels[0][j].get_title("left") == f"FDR, {law}"
        rows = [i for i, cell in enumerate(data.cells) if cell["law"] == law]
        lines = [line for line in page.panels[0][j].get_lines() if len(line.get_xdata()) == 3]
        assert any(np.allclose(line.get_ydata(), data.fdr[rows, 1, 0]) for line in lines)
        assert page.panels[0][j].get_xscale() == "log"
        low, high = page.panels[0][j].get_xlim()
        assert 0.5 < low < 1
        assert 50 < high < 100


def test_a_tradeoff_runs_along_the_levels():
    """Power against error rate, a line a series, each panel its own cells; the caption says which levels are marked."""
    data, _ = FIGURES["tradeoff"]
    page = drawn("tradeoff")
    for j in range(3):
        lines = page.panels[0][j].get_lines()
        for i, line in enumerate(lines):
            assert np.array_equal(line.get_xdata(), data.fdr[3 * j + i, 1])
            assert np.array_equal(line.get_ydata(), data.power[3 * j + i, 1])
        assert len(lines) == 3
    assert page.panels[0][0].get_xlabel() == "FDR"
    assert page.panels[0][0].get_ylabel() == "power"
    assert "levels α = 0.1, 0.2" in caption_of(page)


def test_measures_are_drawn_in_place_of_rates():
    data = result(points=GRID[:3])
    bias, error = np.linspace(-0.2, 0.1, data.fdr.size).reshape(data.fdr.shape), np.full(data.fdr.shape, 0.01)
    data = dataclasses.replace(data, measures={"bias": bias, "bias_se": error, "mse": bias**2 + 0.1, "mse_se": error})
    figure = Figure("parameter", x="k", fields=("bias", "mse"), labels={"mse": "MSE"})
    ((left, right),) = studies.draw(data, figure, title="t").panels
    assert left.get_ylabel() == "bias, ± 2 s.e."
    assert right.get_title("left") == "MSE"
    assert any(np.allclose(line.get_ydata(), bias[:, 1, 0]) for line in left.get_lines() if len(line.get_ydata()) == 3)
    assert left.get_ylim()[0] < -0.2
    assert right.get_ylim()[0] == 0


def test_a_bound_is_drawn_beside_its_number():
    """One row of panels a number; the bound of the power in the last row, named in the legend."""
    bounded = result(points=GRID)
    measures = {"weight": bounded.fdr, "weight_se": bounded.fdr_se, "power_bound": bounded.power / 2}
    figure = Figure("parameter", panels="law", x="k", fields=("weight", "power"), labels={"power_bound": "a bound"})
    page = studies.draw(dataclasses.replace(bounded, measures=measures), figure, title="t")
    assert [len(row) for row in page.panels] == [3, 3]
    for i, axes in enumerate(page.panels[1]):
        found = [np.asarray(line.get_ydata(), float) for line in axes.lines]
        wanted = bounded.power[3 * i : 3 * i + 3, 0, 0] / 2
        assert any(len(line) == 3 and np.allclose(line, wanted) for line in found)
    assert "a bound" in [text.get_text() for legend in page.figure.legends for text in legend.get_texts()]


def test_the_caption_counts_repetitions():
    assert "1,000 repetitions." in caption_of(drawn("levels"))
    data = dataclasses.replace(FIGURES["bands"][0], repetitions=np.array([500, 2_000]))
    page = studies.draw(data, FIGURES["bands"][1], title="t")
    assert "500 to 2,000 repetitions in each cell." in caption_of(page)


def test_the_staircase_stops_where_the_step_up_procedure_does():
    import tdd

    for alpha in (0.05, 0.2, 0.5):
        expected = int(tdd.bh(P_VALUES, alpha).num_rejected)
        assert _stop(P_VALUES, alpha) == expected
    left, _ = axes_of(drawn("staircase"))
    assert left.get_title("left").startswith(f"a: {int(tdd.bh(P_VALUES, 0.2).num_rejected)} selected")


def test_cells_are_found_by_field_and_value():
    data, figure = FIGURES["levels, cells"]
    rows = studies.picks(data, figure)
    assert [heading for heading, _ in rows] == ["none", "subtraction"]
    assert [(pick.label, pick.cells, pick.method) for pick in rows[1][1]] == [
        ("π = 0.1", (0,), 1),
        ("π = 0.9", (1,), 1),
    ]
    assert studies.values(data, "fdr").shape == (2, 2, 3)
    assert studies.values(result(), "fdp_quantiles").shape == (1, 2, 3, 5)
