"""Results in notebooks and pipelines: a fragment of HTML, Markdown, figures, a data frame."""

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

import tdd
from tests.report.test_page import Reader
from tests.report.test_study_report import result_of


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    path = tmp_path_factory.mktemp("display") / "scores.csv"
    rows = [
        f"<b>x{i}</b>,{'calibration' if i < 60 else 'candidate'},{(i * 37) % 101 - 90 * (i > 80)}" for i in range(100)
    ]
    path.write_text("\n".join(["id,role,loss", *rows]))
    return tdd.select(path, alpha=0.5, role_field="role")


def test_a_notebook_shows_the_report(audit):
    shown = Reader(audit._repr_html_())
    assert len(shown.named("h1")) == 1
    assert {name for name, _ in shown.elements}.isdisjoint({"html", "head", "body", "style", "script", "b"})
    assert audit.run["outcome"] in "".join(shown.text)
    assert audit._repr_html_().strip() in audit.to_html()


def test_one_line_in_a_terminal(audit):
    assert repr(audit) == f"<Audit: Selection from a table of scores: {audit.run['outcome']}>"
    assert repr(result_of({"k": 1})) == "<StudyResult: A study of error rates and power>"


def test_pipelines(audit):
    assert audit.to_markdown().startswith("# Selection from a table of scores\n\n**")
    figures = audit.figures()
    assert list(figures) == ["Scores", "P-values", "Bound for every cut"]
    assert all(isinstance(figure, Figure) for figure in figures.values())
    frame = audit.to_pandas()
    assert list(frame["id"]) == [f"<b>x{i}</b>" for i in range(60, 100)]
    assert frame["selected"].sum() == len(audit.selected_ids) > 0
    np.testing.assert_array_equal(frame["p_value"], audit.items["p_value"])


def test_a_study():
    frame = result_of({"k": 1}, {"k": 2}, alphas=(0.1, 0.2)).to_pandas()
    assert list(frame["k"]) == [1, 1, 2, 2]
    assert (frame["fdr"] == 0.05).all()


def test_without_pandas(audit, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        audit.to_pandas()
