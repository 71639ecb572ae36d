"""Large tables by Arrow and small ones by Python's strict reader: the same columns, numbers, places and messages."""

import csv
import gzip
import hashlib
import io
import math
import random
import struct

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tdd import tables
from tdd.runs import plain_csv
from tdd.runs.plain_csv import StringColumn
from tdd.tables import load_score_table
from tdd.texts import files, load_texts
from tdd.texts import rows as text_checks
from tdd.validate import InputError

CELLS = st.text(st.sampled_from("ab1 ,\"\n\r\0é'\ufeff\t\x1c\u2028"), max_size=4)
HARD = [
    b"sep=,\na,b\n1,2\n",
    b"a,b\n1,2\n\n3,4\n",
    b"a,b\r1,2\r\n",
    b"a\r\rb\n\nc\n",
    b'a,b\n"1\n",2\n',
    b'a,b\n"1""2",2\n',
    b'a,b\n1"2,3\n',
    b'a,b\n1,"2"x\n',
    b'a,b\n1,"2\n',
    b"a,b\n1\n",
    b"a,b\n1,2,3\n",
    b"a,a\n1,2\n",
    b"a,b\n\xff,2\n",
    b"a,b\n1,\0\n",
    b"\xef\xbb\xbfa,b\n1,2\n",
    b"a\n\xef\xbb\xbf1\n",
    b"\na\n1\n",
    b"a\n\n",
    b"a,b",
    b"",
]
PLAIN = [
    b"a,b\n1,2\n",
    b"a,b\r\n1,2\r\n3,4",
    b'"a","b"\n"1","x,y"\n"",2\n',
    b"a\n \n",
    b'a\n""\n',
    "a,é\n1,\u2028\n".encode(),
]


def strict(data):
    """What the strict reader makes of a file without byte-order mark: fields, columns, places; or its message."""
    try:
        rows = files._read_csv("t", data.decode())
    except (InputError, UnicodeDecodeError) as error:
        return str(error)
    return [rows.fields, [[*rows.column(name)] for name in rows.fields], [rows.place(i) for i in range(rows.num_rows)]]


def plain(data, read=plain_csv.read_plain_csv):
    """The same by Arrow, or None where it gives up."""
    columns = read(data)
    if columns is None:
        return None
    rows = files._rows_of_lines("t", columns)
    return [rows.fields, [[*rows.column(name)] for name in rows.fields], [rows.place(i) for i in range(rows.num_rows)]]


def written(rows, end, quoting):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, quoting=quoting).writerows(rows)
    return text.getvalue().encode()


@given(st.text(st.sampled_from("ab1,,\"\n\n\r\0é'\ufeff \t"), max_size=24).map(str.encode))
@example(b"a\nb\n\xed\xa0\x80\n")
@settings(max_examples=200)
def test_any_content_is_read_alike_or_left(data):
    assert plain(data) in (None, strict(data))


@given(
    st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1)),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_any_table_is_read_alike_or_left(rows, end, quoting):
    data = written(rows, end, quoting)
    assert plain(data) in (None, strict(data))


@pytest.mark.parametrize("data", HARD)
def test_what_only_the_strict_reader_can_tell_is_left(data):
    assert plain(data) is None


@pytest.mark.parametrize("data", PLAIN)
def test_a_plain_table_is_read(data):
    assert plain(data) == strict(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'"a","b"\n"",1\r\n1,"x,y"', True),
        (b'a,b\n"1\n",2\n', False),
        (b'a,b\n"1""2",2\n', False),
        (b'a,b\n1"2,3"\n', False),
        (b'a,b\n1,"2"x\n', False),
        (b'a,b\n1,"2\n', False),
    ],
)
def test_plain_quotes(data, expected):
    """Arrow divides a large file into blocks at the ends of lines, so that none may lie in a field."""
    assert plain_csv._plainly_quoted(data) == expected


@pytest.mark.parametrize("check", ["quotes", "lines"])
def test_the_agreement_can_fail(monkeypatch, check):
    """Twins of the reader that do not look at quotes, or at the number of lines."""
    if check == "quotes":
        monkeypatch.setattr(plain_csv, "_plainly_quoted", lambda data: True)
        twin = plain_csv.read_plain_csv
    else:
        twin = lambda data: plain_csv.read_plain_csv(data.replace(b"\n\n", b"\n"))  # noqa: E731
    assert not all(plain(data, twin) in (None, strict(data)) for data in HARD)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_file_is_read_alike_at_any_size(tmp_path, monkeypatch, mark, end, ending):
    rows = [("id", "role", "loss", "label")]
    rows += [(f"é{i}", "calibration" if i % 2 else "candidate", f"{i / 7!r}" if i % 5 else "NA", "") for i in range(99)]
    data = mark + written(rows, end, csv.QUOTE_MINIMAL)
    path = tmp_path / f"t{ending}"
    path.write_bytes(gzip.compress(data) if ending == ".csv.gz" else data)
    small = load_score_table(path, label_field="label")
    monkeypatch.setattr(plain_csv, "LARGE", 0)
    monkeypatch.setattr(files, "_read_csv", None)  # not asked
    large = load_score_table(path, label_field="label")
    assert (large.ids, large.sha256, large.source) == (small.ids, small.sha256, small.source)
    np.testing.assert_array_equal(large.roles, small.roles)
    np.testing.assert_array_equal(large.labels, small.labels)
    np.testing.assert_array_equal(large.scores["loss"], small.scores["loss"])
    assert load_texts(path, text_field="role").texts[:2] == ("candidate", "calibration")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x,candidate,oops", "score column 'loss' holds 'oops' at line 4, no number"),
        ("x,candidate,inf", "score column 'loss' is infinite at line 4 (1 such rows)"),
        ("x,Candidate,1", "role column 'role' holds 'Candidate' at line 4; expected 'calibration' for calibration"),
        (",candidate,1", "the id at line 4 must be a non-empty string"),
        ("a,candidate,1", "ids must be unique; repeated: 'a' at line 2 and line 4"),
        ("x,candidate", "line 4 is not valid CSV: 2 columns where the header has 3"),
        ("x,candidate,\xff", "line 4 is not UTF-8 (byte 0xff)"),
        ('x,candidate,"1"2', "line 4 is not valid CSV"),
    ],
)
def test_messages_name_the_line_at_any_size(tmp_path, monkeypatch, line, words):
    path = tmp_path / "t.csv"
    path.write_bytes(f"id,role,loss\na,calibration,1\nb,candidate,2\n{line}\n".encode("latin-1"))
    said = []
    for large in (2**20, 0):
        monkeypatch.setattr(plain_csv, "LARGE", large)
        with pytest.raises(InputError) as raised:
            load_score_table(path)
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert words in said[0]


def column(values, size=3):
    """The strings in Arrow's memory, in several chunks."""
    parts = [pyarrow.array(values[i : i + size], pyarrow.string()) for i in range(0, len(values), size)]
    return StringColumn(pyarrow.chunked_array(parts, pyarrow.string()))


def outcome(check, values, *arguments):
    """Of a check of a column: the bits of its result, or its message."""
    try:
        found = check("t", *arguments[:1], values, lambda index: f"row {index}", *arguments[1:])
    except InputError as error:
        return str(error)
    if isinstance(found, np.ndarray) and found.dtype == np.float64:
        return [math.isnan(x) or struct.pack("<d", x) for x in found]
    return found.tolist() if isinstance(found, np.ndarray) else found


NUMBERS = st.one_of(
    st.floats().map(repr),
    st.floats(width=32).map(lambda x: f"{x:.30g}"),
    st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.integers(-(10**40), 10**40).map(str),
    st.integers(1, 2**52).map(lambda bits: repr(struct.unpack("<d", struct.pack("<q", bits))[0])),  # subnormal
    st.sampled_from(
        ["", "NA", " nan ", "None", "inf", "-Infinity", "1e999", "1e-999", " 1.5", "2\t", "+.5", "-0", "7."]
    ),
    st.text(st.sampled_from("0123456789+-.eE_ \txinfaNA()d٣１"), max_size=6),
)


@given(st.lists(NUMBERS, min_size=1, max_size=7))
@example(["1", "nan(ab)"])
@example(["1", "1_000"])
@example(["0x10"])
@settings(max_examples=100)
def test_numbers_have_the_bits_of_float(values):
    assert outcome(tables._score_column, column(values), "s") == outcome(tables._score_column, values, "s")


def test_numbers_of_arrow_alone_differ(monkeypatch):
    monkeypatch.setattr(StringColumn, "decimals", lambda self: (decimals(self)[0], np.zeros(len(self), bool)))
    for values in (["1", "nan(ab)"], ["1", "x"], ["1", "1e999"]):
        twin = outcome(tables._score_column, column(values), "s")
        assert twin != outcome(tables._score_column, values, "s") or "infinite" in twin


decimals = StringColumn.decimals


def test_floats_in_memory_keep_their_bits():
    values = [5e-324, -0.0, 0.1, float("nan"), 1.7976931348623157e308]
    mixed = [*values, 1]  # one by one
    assert outcome(tables._score_column, values, "s") == outcome(tables._score_column, mixed, "s")[:-1]


ROLES = {"calibration": "c", "candidate": "x", "member": "m"}
WORDS = st.sampled_from(["c", "x", "m", " c", "x ", "", "C", "other"])


@given(st.lists(WORDS, min_size=1, max_size=9), st.booleans(), st.booleans())
def test_roles_are_the_same(values, rest, calibrated):
    words = {**ROLES, "candidate": None} if rest else ROLES
    results = [outcome(tables._role_column, given, "role", words, calibrated) for given in (column(values), values)]
    assert results[0] == results[1]
    if isinstance(results[0], list):
        known = {word: role for role, word in words.items() if word is not None}
        assert results[0] == [known.get(value.strip(), "candidate") for value in values]


@given(st.lists(st.sampled_from(["0", "1", " 1", "0.0", "TRUE", "false", "", " ", "2"]), min_size=1, max_size=7))
def test_labels_are_the_same(values):
    for missing in (None, -1):

        def labels(source, values, place, missing=missing):
            return text_checks.label_column(source, values, place, missing=missing)

        found = outcome(labels, column(values))
        assert found == outcome(labels, values)
        good = {"0": 0, "1": 1, " 1": 1, "0.0": 0, "TRUE": 1, "false": 0} | ({} if missing is None else {"": -1})
        bad = [i for i, value in enumerate(values) if value not in good]
        assert f"at row {bad[0]} must be 1" in found if bad else found == tuple(good[value] for value in values)


@given(st.lists(st.text(st.sampled_from("abé "), max_size=2), min_size=1, max_size=7))
def test_identifiers_and_groups_are_the_same(values):
    for check, arguments in ((text_checks.identifier_column, ()), (text_checks.group_column, ("book",))):
        found = outcome(check, column(values), *arguments)
        assert found == outcome(check, values, *arguments)
        assert isinstance(found, str) or found == tuple(values)


def test_identifiers_of_other_types_are_looked_at_one_by_one():
    assert outcome(text_checks.identifier_column, ["a", 7, np.int64(8)]) == ("a", "7", "8")
    for bad in (True, None, 1.5, ["x"], "\ud800"):
        assert "the id at row 1" in outcome(text_checks.identifier_column, ["a", bad])


def test_a_string_column_is_a_sequence():
    values = ["a", "b", "a", "c", "d"]
    found = column(values, size=2)
    assert [*found] == values
    assert (len(found), found[3], found[-1], found[1:3], "c" in found) == (5, "c", "d", ["b", "a"], True)
    assert found.take(np.array([4, 0])) == ["d", "a"]
    words, codes = found.coded()
    assert words == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(codes, [0, 1, 0, 2, 3])


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()])
@pytest.mark.parametrize("last", ["4", None])
def test_parquet(tmp_path, kind, last):
    values = ["1", "2", "3", last]
    table = pyarrow.table({"id": pyarrow.array("abcd"), "s": pyarrow.array(values, kind)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    rows = files.read_path(tmp_path / "t.parquet")
    assert isinstance(rows.column("s"), StringColumn) == (last is not None)
    assert [*rows.column("s")] == values


def test_the_hash_is_that_of_word_after_word(monkeypatch):
    monkeypatch.setattr(tables, "_HASHED_TOGETHER", 3)
    ids, roles, loss = [f"é{i}" for i in range(7)], ["calibration"] * 3 + ["candidate"] * 4, np.arange(7) / 3
    table = load_score_table({"id": ids, "role": roles, "loss": loss})
    digest = hashlib.sha256()
    for words in (ids, roles, (), ("loss",)):
        digest.update(len(words).to_bytes(8, "little"))
        for word in words:
            digest.update(len(word.encode()).to_bytes(8, "little") + word.encode())
    digest.update(np.full(7, -1, "<i8").tobytes() + loss.astype("<f8").tobytes())
    assert table.sha256 == digest.hexdigest()


def test_lines_are_those_of_python():
    """The ends of lines alone and together; what else divides lines elsewhere does not."""
    rng = random.Random(0)
    for _ in range(2_000):
        content = "".join(rng.choices(["a", ",", '"', "\n", "\r", "\r\n", "\u2028", "\x0b"], k=rng.randint(0, 12)))
        assert [*plain_csv.lines(content)] == [*io.StringIO(content, newline="")]
