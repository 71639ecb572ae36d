"""Reports of studies: which columns there are, where cells are set apart, what the verdict says."""

import numpy as np
import pytest

from tdd.report import study as report
from tdd.report.sections import Table
from tdd.study.named.record import Figure
from tdd.study.results import StudyResult
from tdd.validate import InputError


def result_of(*cells, methods=("a",), alphas=(0.1,), **more):
    shape = (len(cells), len(methods), len(alphas))
    numbers = {"fdr": 0.05, "fdr_se": 0.001, "power": 0.5, "power_se": 0.01, "num_selected": 12.0}
    numbers |= {"num_selected_se": 0.1, "hamming": 0.2, "hamming_se": 0.01}
    spread = {f"{name}_quantiles": np.zeros((*shape, 5)) for name in ("fdp", "power", "hamming", "num_selected")}
    arrays = {name: np.full(shape, value) for name, value in numbers.items()}
    rest = {"repetitions": np.full(len(cells), 10), "seconds": 1.0, "provenance": {}}
    return StudyResult(methods=methods, alphas=alphas, cells=cells, **arrays | spread | rest | more)


def table_of(figure, result, verdicts=None):
    return report._table(result, figure, verdicts)


def heads(table):
    return [column.name for column in table.columns]


def test_every_field_of_the_cells_unless_told_otherwise():
    result = result_of({"varied": "k = 25", "r": 5, "k": 25})
    whole = table_of(Figure("parameter", labels={"r": "shards"}), result, ["within"])
    assert heads(whole) == ["varied", "shards", "k", "method", "α", "FDR ± s.e.", "power ± s.e.", "selected", "bound"]
    assert whole.rows[0].cells == (
        "k = 25",
        "5",
        "25",
        "a",
        "0.1",
        "0.0500 ± 0.0010",
        "0.5000 ± 0.0100",
        "12.0",
        "within",
    )
    some = table_of(Figure("parameter", columns=("r", "k"), counts=False, error="size"), result)
    assert heads(some) == ["r", "k", "method", "α", "size ± s.e.", "power ± s.e."]


def test_measures_are_columns_with_their_errors():
    measures = {"auc": np.full((1, 1, 1), 0.75), "auc_se": np.full((1, 1, 1), 0.002)}
    result = result_of({}, measures=measures)
    whole = table_of(Figure("bars", labels={"auc": "AUC"}, measures=("auc",)), result)
    assert "AUC ± s.e." in heads(whole)
    assert "0.7500 ± 0.0020" in whole.rows[0].cells
    assert "AUC ± s.e." not in heads(table_of(Figure("bars", labels={"auc": "AUC"}), result))


def ruled(table):
    return sum(row.ruled for row in table.rows)


def test_lines_stand_between_cells_and_between_methods_of_many_levels():
    cells = ({"k": 1}, {"k": 2})
    assert ruled(table_of(Figure("parameter"), result_of(*cells, methods=("a", "b"), alphas=(0.1, 0.2)))) == 1
    many = result_of(*cells, methods=("a", "b"), alphas=(0.1, 0.2, 0.3, 0.4))
    assert ruled(table_of(Figure("levels"), many)) == 3
    assert ruled(table_of(Figure("levels"), result_of({}, methods=("a", "b"), alphas=(0.1, 0.2)))) == 1
    assert ruled(table_of(Figure("levels"), result_of({}, methods=("a", "b")))) == 0


@pytest.mark.parametrize(
    ("verdicts", "words", "stands"),
    [
        (["within", "within"], "None of 2 measured values of the FDR exceeds its bound by more than three", True),
        (["within", "ABOVE"], "1 of 2 measured values of the FDR exceed a bound that should hold, by more than", False),
        (["within", "no guarantee, above"], "None of 1 measured value of the FDR exceeds its bound", True),
        (["no guarantee", "no guarantee"], "No method here claims a bound on its FDR.", True),
        (["above (holds in the limit)", "within"], "standard errors, a bound that holds in the limit.", True),
        (["not measured", "not measured"], "One repetition has no standard error", True),
    ],
)
def test_the_verdict_counts_the_bounds_that_hold(verdicts, words, stands):
    shown = report.study_report(result_of({}, methods=("a", "b"), provenance={"verdicts": verdicts}))
    assert words in shown.verdict
    assert shown.stands is stands


def test_a_study_without_a_name_has_a_table_and_a_figure():
    shown = report.study_report(result_of({"k": 1}, {"k": 2}, alphas=(0.1, 0.2)))
    assert shown.verdict == ""
    assert [row.cells[0] for table in shown.sections if isinstance(table, Table) for row in table.rows] == list("1122")
    (table,) = [section for section in shown.sections if isinstance(section, Table)]
    assert "Hamming distance / m ± s.e." in [column.name for column in table.columns]
    figure = next(section for section in shown.sections if type(section).__name__ == "Figure")
    assert len(figure.draw().axes) == 6  # FDR, power and Hamming distance of two cells


@pytest.mark.usefixtures("pictures")
def test_a_result_of_other_hands(tmp_path):
    """A name that no study has, no time, one repetition, a grid of arrays: shown, saved, read and shown again."""
    nan = np.full((2, 1, 2), np.nan)
    cells = ({"n": np.arange(2)}, {"n": np.arange(3)})
    result = result_of(
        *cells, alphas=(0.1, 0.2), provenance={"study": "mine", "title": "x"}, seconds=np.nan, fdr_se=nan
    )
    result.save(tmp_path)
    for shown in (result, StudyResult.load(tmp_path)):
        assert "<h1>" in shown.to_html()
        assert "nan" not in shown.to_markdown()
    (tmp_path / "study.json").write_text((tmp_path / "study.json").read_text().replace('"mine"', '"ours"'))
    with pytest.raises(InputError, match="does not fit its SHA-256"):
        StudyResult.load(tmp_path)
