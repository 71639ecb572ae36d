"""The data owner's test from a table to a folder: equal to the test over scores, checked, continued, refused."""

import functools
import json
import re
from decimal import Decimal
from fractions import Fraction

import jax
import numpy as np
import pytest
from scored_models import random_texts, scored_model

import tdd
from tdd.audit.owner_dataset import group_means
from tdd.cli import main
from tdd.demo.data import demo_files, load_calibration, load_candidates
from tdd.report import folder_report
from tdd.validate import InputError

DOCUMENTS, PRIVATE, SET = 12, 4, 24


def table(published, private):
    """A row for each version, the published one at another place in each document."""
    rows = []
    for i, text in enumerate(published):
        mine = [(other, 0) for other in private[PRIVATE * i : PRIVATE * (i + 1)]]
        mine.insert(i % (PRIVATE + 1), (text, 1))
        rows += [{"text": text, "document": f"d{i}", "published": bit} for text, bit in mine]
    return rows


@pytest.fixture(scope="module")
def texts():
    """Members and non-members of the packaged model."""
    candidates = load_candidates()
    members = [text for text, label in zip(candidates.texts, candidates.labels, strict=True) if label]
    others = [text for text, label in zip(candidates.texts, candidates.labels, strict=True) if not label]
    return members, [*others, *load_calibration().texts]


@pytest.fixture(scope="module")
def trained_on(texts):
    members, others = texts
    return table(members[:DOCUMENTS], others)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Every text is scored once."""
    return tmp_path_factory.mktemp("owner") / "store"


@pytest.fixture(scope="module")
def run(store):
    options = {"store": store, "progress": False}
    return functools.partial(tdd.run_version_test, str(demo_files().checkpoint), **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("owner") / "run"


@pytest.fixture(scope="module")
def found(run, trained_on, folder):
    """The test of versions that were trained on, with its folder."""
    return run(trained_on, out=folder)


def test_published_members_are_found_and_others_are_not(run, texts, found):
    _, others = texts
    assert found.verdict_stands
    assert found.run["result"]["rejected"]
    assert found.p_value < 1e-4
    unseen = run(table(others[-DOCUMENTS:], others))
    assert not unseen.run["result"]["rejected"]
    assert "No evidence" in unseen.run["outcome"]


@pytest.mark.parametrize("test", ["rank_sum", "exact"])
def test_the_p_value_is_that_of_the_scores(test):
    texts = random_texts(20, seed=3, shortest=8)
    rows = [{"text": text, "document": str(i % 5), "published": int(i < 5)} for i, text in enumerate(texts)]
    model = scored_model(2)
    scores = tdd.score(model, texts, "loss", progress=False)["loss"].reshape(4, 5).T
    wanted = tdd.version_test(scores[:, 0], scores[:, 1:], test=test, key=jax.random.key(7))
    found = tdd.run_version_test(model, rows, test=test, seed=7, progress=False)
    assert found.p_value == float(wanted.p_value)
    assert found.rows["rank"].tolist() == wanted.shard_ranks.tolist()
    np.testing.assert_array_equal(found.rows["score"], scores[:, 0])


def test_a_folder_is_continued_and_shown_again(run, trained_on, found, folder):
    record, report = folder_report(folder, pictures=True)
    assert record["result"] == found.run["result"]
    assert report.verdict == found.run["outcome"]
    assert run(trained_on, out=folder).run["result"] == found.run["result"]
    for other in ({"score": "min_k"}, {"score": tdd.scores.ReCall(["green hill under stars"])}):
        with pytest.raises(InputError, match="other inputs or options"):
            run(trained_on, out=folder, **other)


def test_a_p_value_of_one_twentieth_is_at_most_the_level():
    """1/20 is .05 in float32, and larger than .05 in float64."""
    model, words = scored_model(2), random_texts(20, seed=3, shortest=8)
    losses = tdd.score(model, words, "loss", progress=False)["loss"]
    words.insert(0, words.pop(int(np.argmin(losses))))
    documents = [{"text": text, "document": "a", "published": int(not i)} for i, text in enumerate(words)]
    found = tdd.run_version_test(model, documents, progress=False)
    assert found.p_value > 0.05
    assert found.run["result"]["rejected"]
    assert not any("nothing can be found" in warning for warning in found.run["warnings"])


def test_the_command(store, trained_on, tmp_path, capsys):
    """Originals that are always the longest give no verdict, though the p-value alone would accuse."""
    place = tmp_path / "versions.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in trained_on))
    command = ["versions", str(demo_files().checkpoint), str(place), "--store", str(store), "--quiet"]
    assert main([*command, "--fail-on-detection", "--out", str(tmp_path / "run")]) == 1
    assert "Evidence at level 5% that the model was trained on the published versions" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    longer = [{**row, "text": row["text"] * (1 + row["published"])} for row in trained_on]
    place.write_text("".join(json.dumps(row) + "\n" for row in longer))
    assert main([*command, "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"].startswith("No verdict")
    assert told["result"]["rejected"]
    (warning,) = told["warnings"]
    assert re.search(r"in their (length|compressibility): [\d,.]+ .* on average, against [\d,.]+ ", warning)


def rows(*published):
    return [
        {"text": f"{i} a text of some words", "document": name, "published": bit}
        for i, (name, bit) in enumerate(published)
    ]


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        (rows(("a", 1), ("a", 1)), {}, "document 'a' has 2 published versions; every document has exactly one"),
        (rows(("a", 1), ("a", 0), ("b", 0)), {}, "document 'b' has 0 published"),
        (rows(("a", 1), ("a", 0), ("b", 1)), {}, "document 'b' has 0 private versions and 'a' has 1"),
        (rows(("a", 1), ("b", 1)), {}, "no document has a private version"),
        (rows(("a", 1), ("a", 0)), {"document_field": "doc"}, "no field document_field='doc'"),
        (rows(("a", 1), ("a", 0)), {"tset": "t"}, "no option 'tset'"),
        (
            rows(("a", 1), ("a", 2)),
            {},
            r"at index 1 must be 1 \(published\) or 0 \(not\), not 2",
        ),
        (rows(("a", 1), (None, 0)), {}, "document field 'document' is empty at index 1"),
        (rows(("a", 1), ("a", 0)), {"alpha": 2}, "alpha"),
        (rows(("a", 1), ("a", 0)), {"test": "permutation"}, "test must be one of"),
    ],
)
def test_messages(documents, options, message):
    with pytest.raises(InputError, match=message):
        tdd.run_version_test(scored_model(2), documents, progress=False, **options)


def test_what_cannot_be_found_and_copies_are_said(tmp_path):
    texts = random_texts(2, seed=3, shortest=8)
    documents = [{"text": texts[i], "document": "a", "published": int(not n)} for n, i in enumerate((0, 0, 1))]
    options = {"out": tmp_path, "progress": False}
    run = tdd.run_version_test(scored_model(2), documents, score=tdd.scores.ReCall(["w1 w2 w3"]), **options).run
    warnings = run["warnings"]
    assert any("the smallest p-value to expect from these sizes is 0.333, above" in warning for warning in warnings)
    assert any("1 documents have a private version that is equal" in warning for warning in warnings)
    assert "prefix" in run["options"]
    assert any("that prefix" in point for point in run["open_points"])
    with pytest.raises(InputError, match="other inputs or options"):
        tdd.run_version_test(scored_model(2), documents, score=tdd.scores.ReCall(["w3 w2 w1"]), **options)


@pytest.fixture(scope="module")
def dataset(store):
    options = {"num_splits": 2, "score": ("loss", "min_k"), "store": store, "progress": False}
    return functools.partial(tdd.run_dataset_inference, str(demo_files().checkpoint), **options)


@pytest.mark.usefixtures("pictures")
def test_a_set_that_was_trained_on_is_found(dataset, texts, tmp_path):
    members, others = texts
    found = dataset(members[:SET], others[:SET], out=tmp_path / "run", seed=3)
    assert found.verdict_stands
    assert found.run["result"]["rejected"]
    scores = np.stack([found.rows["loss"], found.rows["min_k"]])
    wanted = tdd.dataset_inference(scores[:, :SET], scores[:, SET:], key=jax.random.key(3), num_splits=2)
    assert found.p_value == float(wanted.p_value)
    record, report = folder_report(tmp_path / "run", pictures=True)
    assert (record["result"], report.verdict) == (found.run["result"], found.run["outcome"])
    assert (tmp_path / "run" / "report.html").read_text("utf-8") == found.to_html()


def test_held_out_members_do_not_accuse(dataset, texts):
    members, others = texts
    found = dataset(others[:SET], members[:SET])
    assert found.p_value <= 0.05
    assert found.verdict_stands
    assert not found.run["result"]["rejected"]
    assert found.run["outcome"].startswith("No evidence at level 5% that the model was trained on the suspect texts")
    assert any("held-out texts have the lower scores" in warning for warning in found.run["warnings"])


def test_copies_in_a_set_and_sets_too_small_are_said():
    texts = random_texts(8, seed=3, shortest=8)
    found = tdd.run_dataset_inference(
        scored_model(2), [*texts[:3], texts[0]], texts[4:], score="loss", num_splits=3, progress=False
    )
    assert not found.verdict_stands
    assert "No verdict: 1 suspect texts are copies of others in their set, which are not" in found.run["outcome"]
    assert any("to expect from these sizes is 0.25, above the level 5%" in warning for warning in found.run["warnings"])
    assert found.p_value > 0.2  # 0.25, but for the chance of the draws


@pytest.mark.parametrize("alpha", [Fraction(1, 20), Decimal("0.05")], ids=["fraction", "decimal"])
def test_a_level_of_another_type_is_a_number_in_the_run(tmp_path, alpha):
    texts = random_texts(8, seed=3, shortest=8)
    documents = [{"text": text, "document": i // 2, "published": i % 2} for i, text in enumerate(texts)]
    tdd.run_version_test(scored_model(2), documents, alpha=alpha, out=tmp_path / "run", progress=False)
    record, report = folder_report(tmp_path / "run")
    assert record["options"]["alpha"] == 0.05
    assert "level 5%" in report.verdict


def rows_of(texts, name, size=2):
    return [{"text": text, "book": f"{name}{i // size}"} for i, text in enumerate(texts)]


def test_groups_are_tested_by_their_means(dataset, texts, tmp_path):
    members, others = texts
    sets = rows_of(members[: 2 * SET], "m"), rows_of([*others[: 2 * SET - 1], others[0]], "o")
    found = dataset(*sets, group_field="book", seed=3, out=tmp_path / "run")
    scores = np.stack([found.rows["loss"], found.rows["min_k"]]).reshape(2, 2 * SET, 2).mean(2)
    wanted = tdd.dataset_inference(scores[:, :SET], scores[:, SET:], key=jax.random.key(3), num_splits=2)
    assert found.p_value == float(wanted.p_value)
    assert (found.run["result"]["num_suspect"], found.run["result"]["num_heldout"]) == (SET, SET)
    assert found.run["verdict"]["failed"][0].startswith("1 held-out texts are copies")
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "24 suspect, 24 held out" in page
    assert folder_report(tmp_path / "run")[1].verdict == found.run["outcome"]
    with pytest.raises(InputError, match="holds a run of other inputs"):
        dataset(*sets, seed=3, out=tmp_path / "run")


def test_means_of_groups_leave_out_what_has_no_score():
    scores = np.array([[1.0, np.nan, 4.0, np.nan], [0.0, 1.0, 2.0, 3.0]])
    means = group_means(scores, ["a", "b", "a", "a"])
    np.testing.assert_array_equal(means, [[2.5, np.nan], [5 / 3, 1]])


@pytest.mark.parametrize(
    ("suspect", "heldout", "message"),
    [
        (rows_of("abcdefgh", "x"), rows_of("ijklmnop", "x"), "group 'x0' is in both sets .4 are."),
        (rows_of("abcdef", "x"), rows_of("ijklmnop", "y"), "suspect needs at least 4 groups, got 3"),
        (rows_of("abcdefgh", "x"), rows_of("abcdefghij", "y"), "suspect: each of the 8 texts is a held-out text too"),
    ],
)
def test_messages_of_groups(dataset, suspect, heldout, message):
    with pytest.raises(InputError, match=message):
        dataset(suspect, heldout, group_field="book")


def test_sets_of_two_kinds_give_no_verdict(dataset, texts):
    members, others = texts
    found = dataset([text.upper() for text in members[:SET]], others[:SET])
    assert not found.verdict_stands
    assert found.run["outcome"].startswith("No verdict: suspect and held-out texts can be told apart")
    said = " ".join(found.run["warnings"])
    assert "24 of 24 held-out texts and 0 of 24 suspect texts have a lower-case letter" in said
    assert "held-out texts and suspect texts differ" in said
    assert "calibration" not in said
    assert "candidate" not in said
    assert fact(found, "decision") == "none: a check speaks against the assumptions"
    assert fact(found, "p-value").endswith(" (not valid: a check failed)")
    assert fact(found, "check without the model").endswith(", at most the level of 1%")


def fact(found, name):
    """The value beside a name in the report."""
    (facts,) = (section for section in found.report().sections if section.title == "The test")
    return dict(facts.rows)[name]


@pytest.mark.parametrize(("test", "warned"), [("t", True), ("rank_sum", False)])
def test_few_documents_of_a_t_test(test, warned):
    texts = random_texts(20, seed=3, shortest=8)
    rows = [{"text": text, "document": str(i % 10), "published": int(i < 10)} for i, text in enumerate(texts)]
    found = tdd.run_version_test(scored_model(2), rows, test=test, progress=False)
    assert any("relies on many documents, and there are 10" in one for one in found.run["warnings"]) == warned
    assert fact(found, "documents") == "10, with 1 private version each"


@pytest.mark.parametrize(
    ("suspect", "options", "message"),
    [
        (3, {}, "suspect needs at least 4 texts, got 3"),
        (8, {"test": "welch"}, "test must be one of 'permutation', 't'"),
        (8, {"num_splits": 0}, "num_splits"),
        (8, {"socre": "loss"}, "no option 'socre'"),
    ],
)
def test_messages_of_data_sets(suspect, options, message):
    texts = random_texts(16, seed=3, shortest=8)
    with pytest.raises(InputError, match=message):
        tdd.run_dataset_inference(scored_model(2), texts[:suspect], texts[8:], progress=False, **options)
