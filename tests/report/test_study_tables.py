"""Tables of studies: which columns there are, and where cells are set apart."""

import io

import rich.console

from tdd.report import study_tables
from tdd.study.named.record import Figure


def row(method="a", alpha=0.1, verdict="within", **cell):
    numbers = {"fdr": 0.05, "fdr_se": 0.001, "power": 0.5, "power_se": 0.01, "num_selected": 12.0}
    return {"method": method, "alpha": alpha, "verdict": verdict, **numbers, **cell}


def printed(figure, fields, rows):
    screen = rich.console.Console(width=200, file=io.StringIO(), record=True)
    screen.print(study_tables.study_table("a title", figure, fields, rows))
    return screen.export_text()


def test_every_field_of_the_cells_unless_told_otherwise():
    rows = [row(r=5, k=25, varied="k = 25")]
    whole = printed(Figure("parameter", labels={"r": "shards"}), ("varied", "r", "k"), rows)
    for words in ("varied", "k = 25", "shards", "selected", "12.0", "verdict", "within", "0.0500 ± 0.0010"):
        assert words in whole
    some = printed(Figure("parameter", columns=("r", "k"), counts=False, error="size"), ("varied", "r", "k"), rows)
    for words in ("varied", "k = 25", "selected", "12.0"):
        assert words not in some
    assert "size ± s.e." in some


def test_measures_are_columns_with_their_errors():
    rows = [row(auc=0.75, auc_se=0.002)]
    whole = printed(Figure("bars", labels={"auc": "AUC"}, measures=("auc",)), (), rows)
    assert "AUC ± s.e." in whole
    assert "0.7500 ± 0.0020" in whole
    assert "AUC" not in printed(Figure("bars", labels={"auc": "AUC"}), (), rows)


def test_lines_stand_between_cells_and_between_methods_of_many_levels():
    few = [row(method, alpha, k=k) for k in (1, 2) for method in "ab" for alpha in (0.1, 0.2)]
    assert printed(Figure("parameter"), ("k",), few).count("├") == 1
    many = [row(method, alpha, k=k) for k in (1, 2) for method in "ab" for alpha in (0.1, 0.2, 0.3, 0.4)]
    assert printed(Figure("levels"), ("k",), many).count("├") == 3
    plain = [row(method, alpha) for method in "ab" for alpha in (0.1, 0.2)]
    assert printed(Figure("levels"), (), plain).count("├") == 1
    assert printed(Figure("levels"), (), plain[::2]).count("├") == 0
