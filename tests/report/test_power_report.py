"""The report and the figures of power plans: what is written where, for plans made by hand."""

import math

import numpy as np
import pytest
from rich.console import Console

from tdd.report import folder_report
from tdd.report import power as report
from tdd.report.plots import power as plots
from tdd.report.plots.sheet import save
from tdd.report.sections import to_terminal
from tdd.study.power import ExchangePlan, PowerPlan, load_plan
from tdd.validate import InputError


def row(share, alpha, n=200, m=100, **changed):
    power = min(1.0, 3 * share * alpha**0.3)
    base = {"num_calibration": n, "num_tests": m, "member_share": share, "num_members": round(share * m)}
    base |= {"num_targets": round(share * m), "alpha": alpha, "power": power, "power_se": 0.01}
    base |= {"power_q10": 0.5 * power, "power_q50": power, "power_q90": min(1.0, 1.5 * power)}
    base |= {"fdp": 0.8 * alpha, "fdp_se": 0.002, "any_selected": 0.9, "any_true": min(1.0, 2 * power)}
    base |= {"any_true_se": 0.004, "num_selected": 12.3, "num_selected_se": 0.2, "num_selected_q10": 3.0}
    base |= {"num_selected_q50": 12.0, "num_selected_q90": 20.0, "min_selections": 5, "repetitions": 1000}
    return base | {"extrapolated": False, "drawn": "without replacement"} | changed


def found(criterion, alpha, count, reason="", n=200, m=100):
    share = None if count is None else count / m
    base = {"num_calibration": n, "num_tests": m, "alpha": alpha, "criterion": criterion, "num_targets": count}
    base |= {"wanted": 0.5, "target_share": share, "member_share": share, "value": 0.512, "value_se": 0.01}
    base |= {"target_share_low": share and share - 0.01, "target_share_high": None, "extrapolated": False}
    return base | {"reason": reason}


@pytest.fixture(scope="module")
def plan():
    shares, alphas = (0.01, 0.1, 0.5, 1.0), (0.05, 0.2)
    rows = tuple(row(share, alpha, n) for n in (50, 200) for share in shares for alpha in alphas)
    rows = (*rows[:-1], row(1.0, 0.2, extrapolated=True, drawn="smoothed pool", min_selections=101))
    smallest = (
        found("power", 0.05, 34),
        found("power", 0.2, None, "signal: the scores separate too little"),
        found("any_true", 0.05, 12),
    )
    about = {"source": "a pool: 300 [red]members", "method": "ptdi/storey", "null": "nonmember", "targets": "members"}
    about |= {"wanted": {"power": 0.5, "any_true": 0.8}, "alphas": list(alphas), "seed": 3, "seconds": 1.25}
    return PowerPlan(rows, rows, smallest, about | {"warnings": ["the pool is small"]})


@pytest.fixture(scope="module")
def saved(plan, tmp_path_factory):
    plan.save(folder := tmp_path_factory.mktemp("saved"))
    return folder


@pytest.fixture(scope="module")
def order():
    def one(r, k, test, power, effect):
        base = {"num_shards": r, "num_shuffles": k, "test": test, "alpha": 0.05, "power": power, "power_se": 0.01}
        base |= {"reaches": power >= 0.8, "smallest_effect": effect, "smallest_effect_low": effect and effect - 0.1}
        base |= {"smallest_effect_high": None, "log10_floor": -math.inf if test == "t" else -7.25}
        return base | {"calls": r * (k + 1), "tokens": 100.0 * r * (k + 1), "extrapolated": k == 20, "repetitions": 9}

    rows = (one(10, 5, "t", 0.4, 0.9), one(10, 5, "exact", 0.5, 0.8), one(50, 20, "t", 0.9, 0.3))
    rows = (*rows, one(50, 20, "exact", 0.7, None))
    cheapest = ({"test": "t", "alpha": 0.05, "row": rows[2]}, {"test": "exact", "alpha": 0.05, "row": None})
    about = {"source": "ten shards", "measured_effect": {"mean": 0.71, "median": 0.68}, "tests": ["t", "exact"]}
    about |= {"alphas": [0.05], "wanted": 0.8, "shard_tokens": 100.0, "seed": 0, "seconds": 2.0, "warnings": []}
    return ExchangePlan(rows, cheapest, about)


def printed(made, width=180):
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(to_terminal(made))
    return capture.get()


def line_of(text, *words):
    return next(line for line in text.splitlines() if all(word in line for word in words))


def test_the_report_of_a_plan(plan):
    text = printed(report.power_plan_report(plan))
    assert "Scores: a pool: 300 [red]members." in text  # names are no markup
    cells = [cell.strip() for cell in line_of(text, "50 (50%)", "0.05").split("│")[1:-1]]
    assert cells[:5] == ["50", "100", "50 (50%)", "0.05", "0.611 ± 0.010"]
    assert cells[5:] == ["0.31-0.92", "0.040 ± 0.002", "0.900", "1.000", "12.3", "3-20", "5", "without replacement"]
    assert "none" in line_of(text, "extrapolated")
    assert "33% to -" in line_of(text, "34%", "expected power ≥")
    assert "0.512 ± 0.010 at most: signal: the scores separate too little" in line_of(text, "none", "at most")
    assert "!  The pool is small." in text
    assert max(map(len, text.splitlines())) <= 180


def test_the_report_of_clean_items_and_of_knockoffs(plan):
    clean = plan.about | {"null": "member", "targets": "clean items", "method": "td4eval/pooled_rank"}
    text = printed(report.power_plan_report(PowerPlan(plan.rows, plan.curve, plan.smallest, clean)))
    assert "Smallest detectable fraction of clean items" in text
    copies = plan.about | {"method": "ktd/multi"}
    text = printed(report.power_plan_report(PowerPlan(plan.rows, plan.curve, (), copies)))
    assert "┃     n ┃" not in text
    assert "Smallest" not in text


def test_the_report_of_canonical_order(order):
    text = printed(report.exchange_plan_report(order))
    cells = [cell.strip() for cell in line_of(text, "0.500 ± 0.010").split("│")[1:-1]]
    assert cells == ["60", "6,000", "10", "5", "exact", "0.05", "0.500 ± 0.010", "0.80", "0.70-", "5.6e-08", ""]
    assert "none" in line_of(text, "50", "exact", "extrapolated")
    assert (
        "Power 0.8 with the test 't' at α = 0.05 needs 50 shards with 20 shuffles (or documents with private versions)"
        ": 1,050 model calls, 105,000 tokens." in text
    )
    assert "No setting here gives the test 'exact' at α = 0.05 power 0.8." in text
    assert "mean 0.71, median 0.68" in text
    assert max(map(len, text.splitlines())) <= 180


@pytest.mark.slow("long")
def test_the_figure_of_a_plan(plan, tmp_path):
    drawn = plots.power_sheet(plan)
    assert len(drawn.panels) == 2
    left, right = drawn.panels[1]
    curve = left.get_lines()[0]
    np.testing.assert_allclose(curve.get_xdata(), (0.01, 0.1, 0.5, 1.0))
    np.testing.assert_allclose(curve.get_ydata(), [x["power"] for x in plan.rows if x["alpha"] == 0.05][:4])
    assert left.get_xscale() == "log"
    assert any(np.allclose(each.get_xdata(), 0.34) for each in left.get_lines() if len(each.get_xdata()) == 2)
    assert any(np.allclose(each.get_xdata(), 0.12) for each in right.get_lines() if len(each.get_xdata()) == 2)
    hollow = [each for axes in drawn.panels[1] for each in axes.get_lines() if each.get_markerfacecolor() == "white"]
    assert any(len(each.get_xdata()) for each in hollow)
    labels = [text.get_text() for text in drawn.figure.legends[0].get_texts()]
    assert labels == ["α = 0.05", "α = 0.2", "10 to 90% of the audits", "wanted", "extrapolated"]
    save(drawn, tmp_path / "a.png")
    save(plots.power_sheet(plan), tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_nothing_of_the_figure_lies_outside(plan, order):
    for drawn in (plots.power_sheet(plan), plots.exchange_sheet(order)):
        canvas = drawn.figure.canvas
        canvas.draw()
        width, height = canvas.get_width_height()
        for panels in drawn.panels:
            for axes in panels:
                box = axes.get_tightbbox()
                assert box.x0 >= 0
                assert box.y0 >= 0
                assert box.x1 <= width
                assert box.y1 <= height


def test_the_figure_of_canonical_order(order):
    drawn = plots.exchange_sheet(order)
    assert len(drawn.panels) == 2
    for (left, right), name in zip(drawn.panels, ("t", "exact"), strict=True):
        assert left.get_title(loc="left") == f"power of {name}, α = 0.05"
        assert [text.get_text() for text in left.texts] == ["k = 5", "k = 20"]
        assert right.get_ylim()[0] == 0
    bare = tuple(x | {"smallest_effect": None} for x in order.rows)
    assert len(plots.exchange_sheet(ExchangePlan(bare, order.cheapest, order.about)).panels[0]) == 1


@pytest.mark.parametrize("width", [80, 60])
def test_no_number_is_cut_in_a_narrow_terminal(plan, order, width):
    for made in (report.power_plan_report(plan), report.exchange_plan_report(order)):
        text = printed(made, width)
        assert max(map(len, text.splitlines())) <= width
    assert "0.611 ± 0.010" in printed(report.power_plan_report(plan), width)
    assert "0.500 ± 0.010" in printed(report.exchange_plan_report(order), width)


@pytest.mark.usefixtures("pictures")
def test_a_plan_is_read_as_it_was_written(plan, order, saved, tmp_path):
    order.save(tmp_path)
    for folder, made in ((saved, plan), (tmp_path, order)):
        again = load_plan(folder)
        assert type(again) is type(made)
        assert printed(again.report()) == printed(made.report())


def test_a_damaged_plan_is_refused(saved, tmp_path):
    whole, place = (saved / "power.json").read_text(), tmp_path / "power.json"
    place.write_text(whole.replace('"schema": 1', '"schema": 9'))
    with pytest.raises(InputError, match="has schema 9, this version reads 1"):
        load_plan(tmp_path)
    place.write_text(whole.replace('"seed": 3', '"seed": 4'))
    with pytest.raises(InputError, match="does not fit its SHA-256; plan again"):
        load_plan(tmp_path)


def test_a_folder_holds_one_record(plan, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="holds a run; name another folder"):
        plan.save(tmp_path)
    (tmp_path / "power.json").write_text("{}")
    with pytest.raises(InputError, match="holds a run and a power plan"):
        folder_report(tmp_path)
