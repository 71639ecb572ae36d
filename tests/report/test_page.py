"""The HTML page of a report: one inert file, whatever the run contains."""

import base64
import re

import pytest
from pages import HOSTILE, Reader

from tdd.report.audit import _demonstration
from tdd.report.page import to_html, write_page
from tdd.report.sections import Column, Facts, Figure, Paragraph, Points, Report, Row, Table, to_terminal


def report_of(text):
    return Report(
        text,
        text,
        (
            Paragraph(text),
            Facts(text, ((text, text),)),
            Points(text, (text,), "warning"),
            Table(text, (Column(text), Column(text, number=True)), (Row((text, text), "strong", ruled=True),), text),
        ),
        stands=False,
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_stay_inert(text):
    reader = Reader(to_html(report_of(text)))
    plain = Reader(to_html(report_of("plain")))
    assert [name for name, _ in reader.elements] == [name for name, _ in plain.elements]
    for _, attributes in reader.elements:
        assert not [name for name in attributes if name.startswith("on")]
    shown = "".join(reader.text)
    assert all(character.isprintable() or character == "\n" for character in shown)
    if text.isprintable():
        assert shown.count(text) >= 8


def test_a_broken_twin_is_seen():
    """Without escaping, the elements differ."""
    page = to_html(report_of("plain")).replace("plain", HOSTILE[0])
    assert [name for name, _ in Reader(page).elements] != [
        name for name, _ in Reader(to_html(report_of("plain"))).elements
    ]


def test_nothing_comes_from_outside():
    page = to_html(report_of("plain"))
    reader = Reader(page)
    policies = [one["content"] for one in reader.named("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert not reader.named("script")
    assert not reader.named("link")
    assert not reader.named("a")
    assert not re.search(r"url\(|@import|https?:", page)


@pytest.mark.usefixtures("pictures")
def test_headings_tables_and_pictures_can_be_read_aloud():
    from matplotlib.figure import Figure as Drawing

    picture = Figure("Scores", "What it shows.", lambda: Drawing(figsize=(2, 1)))
    report = Report("title", "verdict", (*report_of("x").sections, picture))
    reader = Reader(to_html(report))
    assert dict(reader.elements[0][1]) == {"lang": "en"} or reader.named("html") == [{"lang": "en"}]
    assert len(reader.named("h1")) == 1
    assert len(reader.named("h2")) == 4
    assert [one["alt"] for one in reader.named("img")] == ["What it shows."]
    assert all(one["scope"] in ("row", "col") for one in reader.named("th"))
    names = [one["id"] for _, one in reader.elements if "id" in one]
    assert len(set(names)) == len(names)
    assert {one["aria-labelledby"] for _, one in reader.elements if "aria-labelledby" in one} <= set(names)
    svg = base64.b64decode(reader.named("img")[0]["src"].partition(",")[2]).decode()
    assert svg.rstrip().endswith("</svg>")
    assert "<script" not in svg


def test_equal_reports_give_equal_bytes(tmp_path):
    write_page(report_of("x"), tmp_path / "a.html")
    write_page(report_of("x"), tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("width", range(40, 124, 4))
def test_numbers_and_names_are_whole_in_the_table_of_the_demonstration(width):
    """Too narrow for one of them, a table goes row by row; else columns that can spare room give it up."""
    from rich.console import Console

    row = {"score": "min_k_plus_plus", "alpha": 0.05, "num_selected": 137, "num_false": 9, "fdp": 0.066, "power": 0.7}
    table = _demonstration([row | {"mean_fdp": 0.048, "se_fdp": 0.001, "mean_power": 0.744}])
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(to_terminal(Report("t", "v", (table,))))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= max(width, 60)
    names = [column.name for column in table.columns]
    for word in " ".join([*names, *table.rows[0].cells]).split():
        assert word in shown.split()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_numbers_are_whole_in_any_terminal(width):
    from rich.console import Console

    row = Row(("min_k_plus_plus", "0.05", "139", "0.043 ± 0.001", "1,234.5"))
    columns = (Column("score"), *(Column(f"a long heading {i}", number=True) for i in range(4)))
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(to_terminal(Report("t", "v", (Table("title", columns, (row,)),))))
    shown = console.export_text()
    for number in ("0.05", "139", "0.043 ± 0.001", "1,234.5"):
        assert number in shown, shown
    assert max(map(len, shown.splitlines())) <= max(width, 60)
