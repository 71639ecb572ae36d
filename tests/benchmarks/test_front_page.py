"""The picture of README.md shows what the report of the demonstration says today."""

import io

import pytest
from PIL import Image

import tdd
from benchmarks import front_page
from tdd.audit import assemble
from tdd.audit.decide import SimultaneousBounds
from tdd.report.sections import Column, Facts, Help, Paragraph, Points, Report, Row, Table

ONLY_SCORES = "Only scores were seen: "
IN_PART = "Checked only in part: "


@pytest.fixture(scope="module")
def shown():
    return front_page.texts_in(front_page.PICTURE)


def again(scores, alpha=0.1):
    """The first screen, decided from the scores alone."""
    header, *rows = [line.split(",") for line in scores.splitlines()]
    table = dict(zip(header, zip(*rows, strict=True), strict=True))
    table = {"role": [*table["role"]], "loss": [*map(float, table["loss"])], "label": [*map(int, table["label"])]}
    return front_page.words_of(tdd.select(table, alpha=alpha, score="loss", label_field="label").report())


def of_scores_alone(words):
    """The words but for the title and the points on what was checked of the texts, which a selection has not seen."""
    return [line for line in words.splitlines()[1:] if not line.startswith((ONLY_SCORES, IN_PART))]


def test_the_words_without_the_bound_are_those_of_today(shown, monkeypatch):
    """The bound on the number of members takes seconds; its sentence comes first."""
    monkeypatch.setattr(assemble, "simultaneous_bounds", lambda *_: SimultaneousBounds(False, "", 0.05))
    words, scores = shown
    (first, *rest), (drawn, *others) = of_scores_alone(again(scores)), of_scores_alone(words)
    assert drawn.endswith(first)
    assert rest == others


@pytest.mark.slow("long")
def test_the_words_are_those_of_today(shown):
    words, scores = shown
    found = again(scores)
    assert words.startswith("Audit of the model checkpoint\n")
    assert ONLY_SCORES in found
    assert IN_PART in words
    assert of_scores_alone(found) == of_scores_alone(words)
    assert of_scores_alone(again(scores, alpha=0.2)) != of_scores_alone(words), "a broken twin"


def test_the_alternative_text_says_the_same(shown):
    page = (front_page.PICTURE.parents[2] / "README.md").read_text("utf-8")
    alternative = page.partition('demo.png"')[2].partition('alt="')[2].partition('"')[0]
    said = " ".join(alternative.split())
    words = shown[0].replace("\n", " ")
    for number in ("at least 152 of", "350 candidates", "with confidence 95%"):
        assert number in said
        assert number in words
    assert "190 are selected at level 10%" in said
    assert "190 of 350 candidates are selected as suspected training data at level 10%" in words


def test_words_end_before_the_first_table_and_are_kept(tmp_path):
    sections = (
        Help("help", (("", "a line"), ("term", "meaning"))), Points("points", ("one", "two")),
        Facts("facts", (("a", "b"),)), Table("table", (Column("c"),), (Row(("d",)),)), Paragraph("late"),
    )  # fmt: skip
    words = front_page.words_of(Report("title – α", "verdict", sections))
    assert words.splitlines() == [
        "title – α", "verdict", "help", "a line", "term: meaning", "points", "one", "two", "facts", "a: b",
    ]  # fmt: skip
    with io.BytesIO() as drawn:
        Image.new("RGBA", (8, 4), "white").save(drawn, "PNG")
        front_page.write_picture(drawn.getvalue(), words, "role,loss", tmp_path / "p.png")
    assert front_page.texts_in(tmp_path / "p.png") == (words, "role,loss")
    with Image.open(tmp_path / "p.png") as image:
        assert (image.size, image.convert("RGB").getpixel((0, 0))) == ((8, 4), (255, 255, 255))


def test_a_machine_without_a_browser_is_told(monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SystemExit):
        front_page.main([])
    assert "name one with --browser" in capsys.readouterr().err
