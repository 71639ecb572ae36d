"""The test of canonical order on log-probabilities that are there already."""

import json

import numpy as np
import pytest

from tdd import InputError, exchangeability
from tdd.cli import main
from tdd.exchange.result import order_of_log_probs, read_log_probs

RNG = np.random.default_rng(0)
CANONICAL, SHUFFLED = RNG.normal(size=20) + 1.5, RNG.normal(size=(20, 19))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "quiz.csv"
    rows = [["data", "canonical", *(f"shuffle{i}" for i in range(19))]]
    rows += [["one", own, *others] for own, others in zip(CANONICAL, SHUFFLED, strict=True)]
    rows += [["two", others[0], *others] for others in SHUFFLED]
    path.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return path


@pytest.mark.slow("long")
def test_table_and_archive_give_the_p_values_of_the_call(table, tmp_path, capsys):
    held = read_log_probs(table)
    assert [*held] == ["one", "two"]
    found = order_of_log_probs(held, test="rank_sum")
    expected = exchangeability(CANONICAL, SHUFFLED, test="rank_sum")
    assert found["data"][0]["p_value"] == pytest.approx(float(expected.p_value))
    assert [one["rejected"] for one in found["data"]] == [True, False]
    assert found["guarantee"]["controls"] == expected.guarantee.controls
    (one, two) = held.values()
    arrays = {"canonical_0": one[0], "shuffled_0": one[1], "canonical_1": two[0], "shuffled_1": two[1]}
    np.savez(tmp_path / "log_probs.npz", names=np.array(["one", "two"]), **arrays)
    shown = []
    for path in (table, tmp_path / "log_probs.npz"):
        assert main(["exchange", "--log-probs", str(path), "--json", "--fail-on-detection"]) == 1
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0]["data"] == shown[1]["data"]
    assert main(["exchange", "--log-probs", str(table)]) == 0
    assert "of 1 of 2 data sets depend on the published order" in " ".join(capsys.readouterr().out.split())


def test_data_sets_without_a_p_value_are_not_counted_as_tested(table, tmp_path, capsys):
    """NaN everywhere is no test, and the sentence says so."""
    (header, *rows) = [line.split(",") for line in table.read_text().splitlines()]
    for absent, words in (
        (("one", "two"), "No verdict: no data set has a p-value."),
        (("one",), "was found in 1 data set at level 5%. That does not show absence from the training data. No verdict "
         "is given on 1 of 2 data sets, which have no p-value."),
    ):  # fmt: skip
        path = tmp_path / "absent.csv"
        changed = [[row[0], *["nan"] * (len(row) - 1)] if row[0] in absent else row for row in rows]
        path.write_text("\n".join(",".join(row) for row in [header, *changed]) + "\n")
        assert main(["exchange", "--log-probs", str(path)]) == 0
        assert words in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n", "a column 'canonical' is needed"),
        ("canonical,shuffle_1\n1,x\n", "line 2: every cell must be a number"),
        ("canonical,shuffle_1\n1\n", "line 2"),
        ("canonical\n1\n", r"shuffled \[shards, shuffles\], got \(1,\) and \(1, 0\)"),
    ],
)
def test_messages(tmp_path, content, words):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InputError, match=words):
        order_of_log_probs(read_log_probs(tmp_path / "t.csv"))


def test_no_archive_and_no_model(tmp_path, capsys):
    (tmp_path / "t.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(InputError, match=r"not a log_probs\.npz"):
        read_log_probs(tmp_path / "t.npz")
    np.savez(tmp_path / "u.npz", names=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match=r"not a log_probs\.npz"):
        read_log_probs(tmp_path / "u.npz")  # pickled objects are never read
    for arguments, words in (
        ([], "a model and a data set are needed"),
        (["model", "--log-probs", "x.npz"], "takes no model"),
        (["--log-probs", "absent.npz"], "no such file"),
    ):
        assert main(["exchange", *arguments]) == 2
        assert words in capsys.readouterr().err
