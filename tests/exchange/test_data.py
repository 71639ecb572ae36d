"""Data sets whose order is tested: sources, templates, errors."""

import json
import pathlib

import pytest

from tdd.exchange.data import load_examples, load_sets
from tdd.records import Texts
from tdd.validate import InputError

ROWS = [{"q": "one?", "a": 1, "ok": True}, {"q": "two {x}?", "a": 2, "ok": False}, {"q": "three?", "a": 1, "ok": True}]


def test_rows_through_a_template():
    found = load_examples(ROWS, template="Q: {q} {{A}}: {a} {ok}")
    assert found.examples == ("Q: one? {A}: 1 true", "Q: two {x}? {A}: 2 false", "Q: three? {A}: 1 true")
    assert found.name == "data 1"
    assert len(found) == 3


def test_fields_are_names_and_nothing_else():
    """`str.format` would look for attributes, items and positions."""
    rows = [
        {"q": "one", "q.id": 7, "0": "zero", "q[0]": [1], "a b": "{q}"},
        {"q": "x"} | dict.fromkeys(["q.id", "0", "q[0]", "a b"], 1),
    ]
    found = load_examples(rows, template="{q} {q.id} {0} {q[0]} {a b} {q}")
    assert found.examples == ("one 7 zero [1] {q} one", "x 1 1 1 1 x")


def test_the_whole_row_as_it_stands_in_the_file(tmp_path):
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    found = load_examples(path, template="json")
    assert found.examples == tuple(lines)
    assert found.name == "questions"


def test_texts_lists_and_order_decide_the_hash():
    a, b = load_examples(["x y", "z"]), load_examples(["z", "x y"])
    assert a.examples == ("x y", "z")
    assert a.sha256 != b.sha256
    assert a.sha256 == load_examples(Texts(("7", "8"), ("x y", "z"))).sha256


def test_fields_with_few_values_are_kept_for_the_checks():
    rows = [{"text": f"t {i}", "label": i % 2, "unique": i, "none": None} for i in range(8)]
    assert load_examples(rows).fields == {"label": (0, 1) * 4}


def test_ids_are_not_needed_and_may_repeat():
    assert load_examples([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}]).examples == ("a", "b")


def test_several_data_sets(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("a\nb\n")
    assert [one.name for one in load_sets([path, Texts(("1", "2"), ("c", "d"), source="dir/two.csv")])] == [
        "one",
        "two.csv",
    ]
    assert [one.name for one in load_sets({"x": ["a", "b"], "y": path})] == ["x", "y"]
    assert [one.name for one in load_sets(str(path))] == ["one"]
    assert len(load_sets(["a", "b"])) == 1, "a list of strings is one data set"
    with pytest.raises(InputError, match="two data sets are called 'one'"):
        load_sets([path, pathlib.Path(str(path))])
    with pytest.raises(InputError, match="names no data set"):
        load_sets({})


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (ROWS, {"template": "{q} {b}"}, r"asks for \{b\}, which is not the plain name of a field.*'q', 'a', 'ok'"),
        (ROWS, {"template": "{q.__class__}"}, r"asks for \{q.__class__\}"),
        (ROWS, {"template": "{q!r}"}, r"asks for \{q!r\}"),
        (ROWS, {"template": "{q:>9}"}, r"asks for \{q:>9\}"),
        (ROWS, {"template": "no field"}, "names no field, so all examples would be equal"),
        (ROWS, {"template": "{q"}, "cannot be read"),
        (ROWS, {"template": 3}, "template must be a string"),
        (["a", "b"], {"template": "json"}, "bare texts"),
        (["a", "b"], {"template": "{text}"}, "none: its rows are bare texts"),
        ([{"q": "a"}, {"b": 1}], {"template": "{q}"}, r"item 1|index 1|row 2|\[1\]"),
        (["a", "a", "a"], {}, "all 3 examples are equal"),
        ([{"q": " ", "a": ""}, {"q": "b", "a": "c"}], {"template": "{q}{a}"}, "the text at .* is empty"),
        ([{"q": "\ud800"}, {"q": "b"}], {"template": "{q}"}, "the text at .* surrogate"),
        (Texts(("1", "2"), ("a", " ")), {}, "example 2 is empty"),
        (Texts(("1",), ("a",)), {"template": "{text}"}, "Texts have none"),
    ],
)
def test_errors(source, options, words):
    with pytest.raises(InputError, match=words):
        load_examples(source, **options)


def test_td4eval_is_a_template_by_name():
    """The form of the paper's table 6."""
    rows = [
        {"question": "What is the capital of France?", "answer": "Paris."},
        {"question": "And {of} Italy?", "answer": 1},
    ]
    found = load_examples(rows, template="td4eval").examples
    assert found[0] == "### Question:\nWhat is the capital of France?\n### Answer:\nParis."
    assert found[1] == "### Question:\nAnd {of} Italy?\n### Answer:\n1"
    with pytest.raises(InputError, match=r"asks for \{question\}"):
        load_examples([{"q": "a", "answer": "b"}, {"q": "c", "answer": "d"}], template="td4eval")
