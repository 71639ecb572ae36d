import csv
import gzip
import json
import logging
import os
import re

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tdd.records import Texts
from tdd.texts import hash_texts, load_texts
from tdd.texts.rows import FORMATS
from tdd.validate import InputError

TEXTS = ("The first text.", 'A "quoted", second\ntext\u2028with odd line ends.', "Ünïcödé — третий 文本 🙂")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0a1b\nsize 12345\n"
UNICODE = st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(lambda text: not text.isspace())


def write(path, content):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def records(field="text"):
    return [{"id": f"t{i}", field: text, "label": i % 2} for i, text in enumerate(TEXTS)]


def write_csv(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def message(source, **options):
    with pytest.raises(InputError) as raised:
        load_texts(source, **options)
    return str(raised.value)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "json", "json.gz", "csv", "tsv", "parquet", "ndjson"])
def test_every_format_gives_the_same_texts(tmp_path, kind):
    path = tmp_path / f"data.{kind}"
    if kind in ("csv", "tsv"):
        write_csv(path, records(), "," if kind == "csv" else "\t")
    elif kind == "parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pytest.importorskip("pyarrow").Table.from_pylist(records()), path)
    else:
        write(path, json.dumps(records()) if kind.startswith("json.") or kind == "json" else jsonl(records()))
    for source in (path, str(path)):
        texts = load_texts(source, label_field="label")
        assert texts == Texts(("t0", "t1", "t2"), TEXTS, (0, 1, 0), str(path), hash_texts(texts.ids, TEXTS))


def test_an_object_that_holds_the_array(tmp_path):
    path = write(tmp_path / "a.json", json.dumps({"data": records()}))
    assert load_texts(path).texts == TEXTS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '[{"text": "a"},\n{"text": "b"}]\n'),
        ("a.jsonl", '\n{\n"data": [{"text": "a"}, {"text": "b"}]\n}'),
        ("a.json", '{"version": "1.1", "data": [{"text": "a"}, {"text": "b"}]}'),
        ("a.json", '{"text": ["a", "b"], "choices": [["x", "y"], ["z"]]}'),
        ("a.json", '{"choices": [{"text": "a"}, {"text": "b"}]}'),
        ("a.json", '{"text": ["a", "b"], "choices": [{"text": ["x", "y"]}, {"text": ["z"]}]}'),
        ("a.json", '{"text": ["a", "b"], "prompt_logprobs": [-1.5, -2.5]}'),
        ("a.csv", "sep=,\ntext\na\nb\n"),
        ("a.csv", "text,,\na,, \nb,,\n"),
        ("a.tsv", "id\ttext\n1\ta\n2\tb\n".encode("utf-16")),
    ],
)
def test_what_other_programs_write_is_read(tmp_path, name, content):
    assert load_texts(write(tmp_path / name, content)).texts == ("a", "b")


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('"Stop, he said.\t1\nI will not"\t0\nno marks\t1\n', ('"Stop, he said.', 'I will not"', "no marks")),
        ('"I would, like"\t1\nI, not\t0\n', ("I would, like", "I, not")),
        ('"He said ""hi"""\t1\n"I, not"\t0\n', ('He said "hi"', "I, not")),
        ('"def f(x):\n\treturn x"\t1\n"\tpass\n"\t2\n', ("def f(x):\n\treturn x", "\tpass\n")),
        ('"two\nlines"\t1\nI, not\t0\n', ("two\nlines", "I, not")),
        ('say "hi" now\t1\n', ('say "hi" now',)),
    ],
    ids=["never closed", "closed", "marks", "tabs and lines", "lines", "inside"],
)  # fmt: skip
def test_quotation_marks_of_a_tsv(tmp_path, content, texts):
    """GLUE's tables have no quoting, those of CSV's writers do."""
    assert load_texts(write(tmp_path / "a.tsv", f"text\tlabel\n{content}")).texts == texts


def test_an_open_quotation_is_named_where_it_opens(tmp_path):
    assert "line 3 is not valid CSV" in message(write(tmp_path / "a.csv", 'text,n\na,1\n"b,2\nc"d,3\n'))


def test_a_header_in_quotes_and_one_column_are_in_the_quoting_of_csv(tmp_path):
    assert load_texts(write(tmp_path / "a.tsv", '"text"\t"n"\n"a\tb\n"\t1\nc\t2\n')).texts == ("a\tb\n", "c")
    assert load_texts(write(tmp_path / "b.tsv", 'text\n"a\nb"\nc\n')).texts == ("a\nb", "c")


@pytest.mark.parametrize(
    ("kind", "content"),
    [("txt", "one\rtwo\r"), ("csv", "text\rone\rtwo\r"), ("jsonl", '{"text": "one"}\r{"text": "two"}')],
)
def test_lines_may_end_with_carriage_returns_alone(tmp_path, kind, content):
    assert load_texts(write(tmp_path / f"lines.{kind}", content)).texts == ("one", "two")


@pytest.mark.parametrize("kind", ["txt", "txt.gz"])
def test_txt_has_one_text_a_line(tmp_path, kind):
    texts = load_texts(write(tmp_path / f"lines.{kind}", "one\r\n two\u2028still two\n\n \n"))
    assert texts.texts == ("one", " two\u2028still two")
    assert texts.ids == ("1", "2")
    assert texts.labels == ()


def test_folder_has_one_text_a_file(tmp_path):
    write(tmp_path / "b.txt", "second\n\nparagraph\n")
    write(tmp_path / "a.txt", "first")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "c.txt.gz", "third\r\n")
    write(tmp_path / "ignored.md", "no")
    texts = load_texts(tmp_path)
    assert texts.ids == ("a.txt", "b.txt", "sub/c.txt.gz")
    assert texts.texts == ("first", "second\n\nparagraph", "third")


def test_python_objects():
    expected = load_texts(list(TEXTS))
    assert expected.ids == ("1", "2", "3")
    assert expected.source == "memory"
    columns = {"text": list(TEXTS), "id": ["1", "2", "3"]}
    for source in (TEXTS, iter(TEXTS), np.array(TEXTS), columns, [{"text": text} for text in TEXTS]):
        assert load_texts(source) == expected
    assert load_texts(expected) is expected


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(records())
    for source, ids in ((frame, ("t0", "t1", "t2")), (frame["text"], ("1", "2", "3"))):
        texts = load_texts(source)
        assert (texts.texts, texts.ids) == (TEXTS, ids)
    assert load_texts(frame, label_field="label").labels == (0, 1, 0)
    assert load_texts(frame.set_index("id")) == load_texts(frame), "an index with a name is a field"
    assert load_texts(frame.set_index(["id", "label"]).iloc[:2]).ids == load_texts(frame).ids[:2]
    assert load_texts(frame.drop(columns="id").iloc[1:]).ids[0] == "1", "other indices are no identifiers"
    assert "index 1 has no text" in message(pandas.Series(["a", None, "b"], dtype="string"))
    assert "index 1 has no text" in message(pandas.DataFrame({"text": ["a", np.nan, "b"]}))


def test_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(records())
    assert load_texts(frame, label_field="label").labels == (0, 1, 0)
    assert load_texts(frame).texts == load_texts(frame["text"]).texts == TEXTS


def test_pyarrow():
    table = pytest.importorskip("pyarrow").Table.from_pylist(records())
    assert load_texts(table, label_field="label").labels == (0, 1, 0)
    assert load_texts(table).texts == load_texts(table["text"]).texts == TEXTS


def test_datasets():
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_list(records())
    assert load_texts(dataset, label_field="label").labels == (0, 1, 0)
    assert load_texts(dataset).texts == load_texts(dataset["text"]).texts == TEXTS
    assert load_texts(dataset.to_iterable_dataset()).ids == ("t0", "t1", "t2")
    assert "several tables (train, test)" in message(datasets.DatasetDict(train=dataset, test=dataset))


def test_the_only_common_field_is_read_and_logged(tmp_path, caplog):
    path = write(tmp_path / "x.jsonl", jsonl(records("input")))
    with caplog.at_level(logging.INFO, logger="tdd"):
        assert load_texts(path).texts == TEXTS
    assert "reading the texts from 'input'" in caplog.text


def test_ambiguous_or_missing_text_field():
    found = message([{"input": "a", "passage": "b", "n": 1}])
    assert "any of input, passage" in found
    assert "fields found: input, passage, n" in found
    assert "no text field 'text'; fields found: prompt" in message([{"prompt": "a"}])
    assert "no text field 'body'; fields found: input" in message([{"input": "a"}], text_field="body")
    assert load_texts([{"input": "a", "passage": "b"}], text_field="passage").texts == ("b",)


def test_ids():
    rows = [{"text": "a", "key": 7}, {"text": "b", "key": 8}]
    assert load_texts(rows, id_field="key").ids == ("7", "8")
    assert "id_field='name'; fields found: text, key" in message(rows, id_field="name")
    assert "no named fields" in message(["a"], id_field="name")
    repeated = message({"text": list("abcdefghi"), "id": [1, 1, 1, 2, 2, 3, 3, 4, 4]})
    assert "'1' at index 0 and index 1" in repeated
    assert "'3' at index 5 and index 6; '4'" in repeated
    assert message({"text": list("abcdefgh"), "id": [5] * 8}).endswith("and 2 more")
    for bad in (None, "", 1.5, True, [1]):
        assert "the id at index 0 must be a non-empty string or a whole number" in message([{"text": "a", "id": bad}])


def test_labels():
    def labels(*values):
        return load_texts({"text": ["a"] * len(values), "label": list(values)}, label_field="label").labels

    assert labels(0, 1, True, False, "1", " 0", 1.0, "0.0", np.int64(1)) == (0, 1, 1, 0, 1, 0, 1, 0, 1)
    for bad in (2, None, "member", -1, 0.5):
        with pytest.raises(InputError, match=r"label at index 0 must be 1 \(member\) or 0"):
            labels(bad)
    assert "label_field='y'; fields found: text" in message([{"text": "a"}], label_field="y")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", "", "empty"),
        ("a.jsonl", "\n\n", "empty"),
        ("a.json", " ", "empty"),
        ("a.json", "[]", "empty"),
        ("a.csv", "id,text\n", "empty"),
        ("a.txt", "\n", "empty"),
        ("a.jsonl", '{"text": "a"}\n\n{"text": "b"\n', "line 3 is not JSON"),
        ("a.jsonl", '{"text": "a"}\n"b"\n', "line 2 is not an object with named fields but a value of type str"),
        ("a.jsonl", "[" * 100_000, "line 1 is not JSON"),
        ("a.jsonl", "version \ud800".encode("utf-8", "surrogatepass"), "line 1 is not UTF-8"),
        ("a.jsonl", '{"text": "a"}\n{"txt": "b"}\n', "line 2 has no text"),
        ("a.jsonl", '{"text": "a"}\n{"text": 5}\n', "text at line 2 is a value of type int, no string: 5"),
        ("a.jsonl", '\n{"text": "a"}\n{"text": " \\t"}', "text at line 3 is empty"),
        ("a.jsonl", '{"text": "\\ud800"}', "text at line 1 holds half a surrogate pair"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}', "line 2 is not UTF-8 (byte 0xe9)"),
        ("a.txt", "one\ntwo\n".encode("utf-16-le"), "8 of 16 bytes are zero, as in UTF-16 without a byte-order mark"),
        ("a.jsonl.gz", b'{"text": "a"}\n\xff', "line 2 is not UTF-8"),
        ("a.txt", "a\n\nb\n", "text at line 2 is empty"),
        ("a.json", '{"words": "a"}', "must be an array"),
        ("a.json", '{"data": ["a"], "other": 1}', "must be an array"),
        ("a.json", '{"a": [{"text": "x"}], "b": [{"text": "y"}], "c": 1}', "found is an object with the fields a, b"),
        ("a.json", '{"text": {"0": "a"}, "id": {"0": 1}}', 'to_json(orient="records")'),
        ("a.json", '{"text": "x", "spans": [{"text": "y"}]}', "found is an object with the fields text, spans"),
        ("a.txt", "a\nb".encode("utf-32"), "line 1 is not UTF-8"),
        *((f"a.{ending}", POINTER, "pointer of Git LFS, not the file: run git lfs") for ending in FORMATS),
        ("a.csv", "id;score\n1;0,5\n", "2 columns where the header has 1 (one column: save the file with commas"),
        ("a.tsv", "text\t\t\na\t\tb\nc\td\t\n", "several columns are called ''"),
        ("a.json", '["a", 1]', "element 1 is not an object"),
        ("a.json", '{"text": "a"}\n{"text": "b"}\n', "format='jsonl'"),
        ("a.csv", 'id,text\n1,"a\nb"\n2,c,d\n', "line 4 is not valid CSV: 3 columns where the header has 2"),
        ("a.csv", 'id,text\n1,"a\n', "is not valid CSV"),
        ("a.csv", "id,text,id\n1,a,2\n", "several columns are called 'id'; rename all but one"),
        ("a.jsonl", '{"text": "a"}\n{"text": "b", "text": "c"}', "line 2 is not JSON (the key 'text' is there 2 times"),
        ("a.json", '[{"text": "a", "of": {"x": 1, "x": 2}}]', "the key 'x' is there 2 times in one object"),
        ("a.csv", 'id,text\n1,"a\nb"\n2,\n', "text at line 4 is empty"),
        ("a.parquet", b"PAR1 not really PAR1", "not a readable Parquet file"),
        (
            "a.xlsx",
            "x",
            "save the table as .csv or .parquet; supported: .jsonl, .json, .csv, .tsv, .parquet, .arrow, .eval, .txt",
        ),
        ("noextension", "x", "no extension; supported"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, expected):
    path = write(tmp_path / name, content)
    found = message(path)
    assert str(path) in found
    assert expected in found


def test_two_columns_of_one_name(tmp_path):
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    table = pyarrow.Table.from_arrays(columns, names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert "a.parquet: several columns are called 'text'" in message(tmp_path / "a.parquet")
    assert "several columns are called 'text'" in message(table)


def test_a_folder_whose_link_leads_out_of_it(tmp_path):
    write(tmp_path / "secret.txt", "not among the texts")
    (tmp_path / "texts").mkdir()
    write(tmp_path / "texts" / "a.txt", "first")
    (tmp_path / "texts" / "b.txt").symlink_to(tmp_path / "texts" / "a.txt")
    assert load_texts(tmp_path / "texts").ids == ("a.txt", "b.txt"), "a link within the folder"
    (tmp_path / "texts" / "c.txt").symlink_to(tmp_path / "secret.txt")
    found = message(tmp_path / "texts")
    assert "c.txt is a link out of the folder" in found
    assert "secret.txt" in found


def test_what_decompresses_to_far_more_than_texts_do(tmp_path, monkeypatch):
    monkeypatch.setattr("tdd.texts.compressed.LARGEST_DECOMPRESSED", 10_000)
    bomb = write(tmp_path / "a.txt.gz", "a" * 1_000_000)
    assert re.search(r"a.txt.gz: its 1,0\d\d bytes decompress to more than 10\d,\d00, as no text does", message(bomb))
    assert load_texts(write(tmp_path / "b.txt.gz", "a" * 9_000)).texts == ("a" * 9_000,)
    table = pyarrow.table({"text": ["a" * 1_000_000]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    assert "a.parquet: its" in message(tmp_path / "a.parquet")
    repeated = pyarrow.table({"text": ["a"] * 1_000_000})  # a run of equal values takes no bytes at all
    pyarrow.parquet.write_table(repeated, tmp_path / "b.parquet")
    assert "b.parquet: its" in message(tmp_path / "b.parquet")


def test_a_pipe_in_the_file_system_is_refused(tmp_path):
    """It would wait for a writer for ever; those of a shell have theirs."""
    os.mkfifo(tmp_path / "a.txt")
    assert "a.txt is neither a file nor a folder but a named pipe or a device" in message(tmp_path / "a.txt")
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\n")
    os.close(writer)
    assert load_texts(f"/dev/fd/{reader}", format="txt").texts == ("one", "two")
    os.close(reader)


def test_other_bad_sources(tmp_path):
    assert "no such file or folder: '/no/such.jsonl'" in message("/no/such.jsonl")
    assert "pass a list of strings" in message("A text that somebody\nmeant as a text.")
    assert "it is empty" in message(tmp_path)
    write(tmp_path / "a.md", "x")
    assert "it holds a.md" in message(tmp_path)
    assert "not known; supported: jsonl" in message(tmp_path / "a.md", format="docx")
    assert load_texts(tmp_path / "a.md", format="txt").texts == ("x",)
    truncated = tmp_path / "b.txt.gz"
    truncated.write_bytes(gzip.compress(b"text " * 1000)[:-20])
    assert "cannot be read" in message(truncated)
    for value in (3, None, b"bytes", {"a set"}):
        assert "cannot read rows from" in message(value)
    assert "empty" in message([])
    assert "index 1 is a value of type int" in message(["a", 3])
    assert "index 1 is not an object" in message([{"text": "a"}, "b"])
    assert "unequal length: {'text': 1, 'id': 2}" in message({"text": ["a"], "id": [1, 2]})
    assert "'text' is one value" in message({"text": "a"})


def test_truncated_parquet(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    pq.write_table(pytest.importorskip("pyarrow").table({"text": ["word " * 500 + str(i) for i in range(50)]}), path)
    path.write_bytes(path.read_bytes()[:-40])
    assert "not a readable Parquet file" in message(path)


def test_long_csv_fields_are_read_and_the_limit_restored(tmp_path):
    limit = csv.field_size_limit()
    path = write_csv(tmp_path / "x.csv", [{"text": "x" * (limit + 10)}])
    assert len(load_texts(path).texts[0]) == limit + 10
    assert csv.field_size_limit() == limit


def test_byte_order_mark_is_no_part_of_a_field(tmp_path):
    assert load_texts(write(tmp_path / "x.csv", "\ufefftext\na\n")).texts == ("a",)


def test_hash_is_of_ids_and_texts():
    # printf of 8-byte length, "1", 8-byte length, "a"; piped into sha256sum
    assert load_texts(["a"]).sha256 == "415731d648dc4502281c89ab8e01302291ef1f93f3f00904f1a800341cbf8746"
    hashes = {
        load_texts(rows).sha256
        for rows in (["ab"], ["a", "b"], ["b", "a"], [{"id": "x", "text": "ab"}], [{"id": "a", "text": "b1"}])
    }
    assert len(hashes) == 5


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(UNICODE, min_size=1, max_size=5))
def test_round_trip(tmp_path, texts):
    rows = [{"id": i, "text": text} for i, text in enumerate(texts)]
    path = write(tmp_path / "x.jsonl", jsonl(rows))
    assert load_texts(path).texts == tuple(texts)
    assert load_texts(write_csv(tmp_path / "x.csv", rows)).texts == tuple(texts)


def test_no_table_library_is_imported():
    import subprocess
    import sys

    code = (
        "import sys; from tdd.texts import load_texts; load_texts(['a']); "
        "print([n for n in ('pandas', 'polars', 'datasets', 'pyarrow', 'sklearn') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_parquet_file_whose_strings_are_no_unicode(tmp_path):
    import pyarrow
    import pyarrow.parquet

    offsets, data = np.array([0, 2, 4], np.int32), b"ab\xff\xfe"
    strings = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
    )
    pyarrow.parquet.write_table(pyarrow.table({"text": strings}), tmp_path / "texts.parquet")
    with pytest.raises(InputError, match=r"texts\.parquet"):
        load_texts(tmp_path / "texts.parquet")


@pytest.mark.parametrize(("mark", "advice"), [(";", "save the file with commas"), ("\t", "name the file .tsv")])
def test_a_csv_with_other_marks_says_what_to_do(tmp_path, mark, advice):
    path = write(tmp_path / "a.csv", f"id{mark}text\na{mark}b\n")
    assert advice in message(path)
