"""ReCaLL and Con-ReCall against losses of the joined tokens, and what must not be in a prefix."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from given_scores import split, with_given
from scored_models import ids, losses_of_tokens, random_texts, scored_model

import tdd
from tdd.scoring import prefixes
from tdd.validate import InputError

NAMES = ("recall", "con_recall", "con_recall:gamma=1", "loss")
UNSEEN, SEEN = random_texts(3, seed=5, shortest=4, longest=6), random_texts(2, seed=6, shortest=3, longest=5)


@pytest.fixture(scope="module")
def model():
    return scored_model(3)


def score(model, texts, scores, **options):
    given, options = split(options)
    options = {"token_budget": 64, "progress": False, **options}
    return tdd.score(model, texts, with_given(scores, **given), **options)


def without_prefixes(model):
    """The same model with whole rows only, as one from another library."""
    return (dataclasses.replace(model[0], prefix=None, hidden_after=None), *model[1:])


def expected(model, text, name, *, unseen=UNSEEN, seen=SEEN):
    tokens = ids(model[2], text)
    alone, behind, behind_members = (
        losses_of_tokens(model, ids(model[2], "".join(before)) if before else [], tokens).mean()
        for before in ((), unseen, seen)
    )
    gamma = {"con_recall": 0.5, "con_recall:gamma=1": 1.0}.get(name, 0.0)
    return alone if name == "loss" else -(behind - gamma * behind_members) / alone


@pytest.mark.parametrize("form", [lambda model: model, without_prefixes], ids=["shared", "whole rows"])
@pytest.mark.parametrize("bos", [False, True])
def test_definition(form, bos):
    model = scored_model(3, bos=bos)
    texts = random_texts(9, seed=2, shortest=2, longest=30)
    table = score(form(model), texts, NAMES, prefix=UNSEEN, member_prefix=SEEN)
    for name, (i, text) in itertools.product(("recall", "con_recall", "loss"), enumerate(texts)):
        np.testing.assert_allclose(table[name][i], expected(model, text, name), rtol=1e-5, err_msg=name)
    # with gamma=1 rounding of the losses is not small beside their difference: the losses, then the difference
    behind_members = score(form(model), texts, "recall", prefix=SEEN)["recall"]
    for i, text in enumerate(texts):
        np.testing.assert_allclose(behind_members[i], expected(model, text, "recall", unseen=SEEN), rtol=1e-5)
    np.testing.assert_allclose(table["con_recall:gamma=1"], table["recall"] - behind_members, rtol=1e-9)
    assert table.provenance["prefix"]["tokens"] == len(ids(model[2], "".join(UNSEEN)))
    assert table.provenance["member_prefix"]["texts"] == len(SEEN)


def test_no_definition_is_another(model):
    values = [expected(model, "w1 w2 w3 w4 w5", name) for name in NAMES]
    assert all(abs(a - b) > 1e-2 for a, b in itertools.combinations(values, 2))


@pytest.mark.parametrize("form", [lambda model: model, without_prefixes], ids=["shared", "whole rows"])
def test_windows_of_a_long_text_all_follow_the_prefix(model, form):
    text = random_texts(1, seed=8, shortest=120, longest=120)[0]
    before, tokens = ids(model[2], "".join(UNSEEN)), ids(model[2], text)
    longest = model[0].max_length - len(before)
    losses, first = [], 1
    while first < len(tokens):
        stop = min(first - 1 + longest, len(tokens))
        start = stop - longest
        losses += losses_of_tokens(model, before, tokens[start:stop])[first - start - 1 :].tolist()
        first = stop
    assert len(losses) == len(tokens) - 1
    table = score(form(model), [text], ("recall", "loss"), prefix=UNSEEN)
    np.testing.assert_allclose(table["recall"], -np.mean(losses) / table["loss"], rtol=1e-5)


def test_a_text_is_cut_alike_with_and_without_the_prefix(model):
    text = random_texts(1, seed=8, shortest=120, longest=120)[0]
    table = score(model, [text], "recall", prefix=UNSEEN, long_texts="truncate")
    kept = model[0].max_length - len(ids(model[2], "".join(UNSEEN)))
    assert table.num_tokens.tolist() == [kept - 1]
    cut = " ".join(text.split()[:kept])
    np.testing.assert_allclose(table["recall"], expected(model, cut, "recall"), rtol=1e-5)


def test_the_model_reads_the_prefix_once(model, monkeypatch):
    read, plain = [], prefixes.SuffixProgram.put_prefix
    monkeypatch.setattr(
        prefixes.SuffixProgram, "put_prefix", lambda self, tokens: [read.append(1), plain(self, tokens)]
    )
    score(model, random_texts(20, seed=2), "recall", prefix=UNSEEN)
    assert len(read) == 1


def test_the_store_tells_prefixes_apart(model, tmp_path):
    texts, options = random_texts(6, seed=2, longest=30), {"store": tmp_path / "store"}
    first = score(model, texts, "recall", prefix=UNSEEN, **options)
    more = score(model, [*texts, "one more"], "recall", prefix=UNSEEN, **options)
    np.testing.assert_array_equal(more["recall"][:-1], first["recall"])
    assert more.provenance["num_stored_before"] == 2 * len(texts)
    other = score(model, texts, "recall", prefix=SEEN, **options)
    assert other.provenance["num_stored_before"] == len(texts)  # without a prefix
    np.testing.assert_allclose(other["recall"][0], expected(model, texts[0], "recall", unseen=SEEN), rtol=1e-5)


def test_shards_make_the_same_table(model, tmp_path):
    texts, options = random_texts(12, seed=2, longest=30), {"prefix": UNSEEN}
    whole = score(model, texts, "recall", **options)
    for i in range(2):
        assert score(model, texts, "recall", shard=(i, 2), store=tmp_path / "store", **options) is None
    joined = score(model, texts, "recall", store=tmp_path / "store", **options)
    np.testing.assert_array_equal(joined["recall"], whole["recall"])


def test_devices_change_nothing(model):
    texts = random_texts(12, seed=2, longest=30)
    one, all_devices = (
        score(model, texts, "recall", prefix=UNSEEN, devices=devices) for devices in (1, len(jax.devices()))
    )
    np.testing.assert_array_equal(one["recall"], all_devices["recall"])


def test_whitespace_does_not_hide_a_text(model):
    with pytest.raises(InputError, match="1 of the texts to score is in prefix: '2'"):
        score(model, ["w1 w2", "\tone two three "], "recall", prefix=["one two three"])


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ("recall", {}, "'recall' needs texts that the model has not seen: give prefix="),
        ("con_recall", {"prefix": UNSEEN}, "'con_recall' needs texts that the model was trained on: give member_pref"),
        ("con_recall:gamma=0", {"prefix": UNSEEN, "member_prefix": SEEN}, "gamma=0 must be a finite number above 0"),
        ("recall", {"prefix": random_texts(1, shortest=63, longest=63)}, "prefix has 63 tokens, which leaves no room"),
        ("recall", {"prefix": ["w1", " one two three\n"]}, "1 of the texts to score is in prefix: '1'; the score of a"),
        ("con_recall", {"prefix": UNSEEN, "member_prefix": ["one two three"]}, "to score is in member_prefix: '1'"),
        ("con_recall", {"prefix": UNSEEN, "member_prefix": UNSEEN[:1]}, "1 of prefix is in member_prefix: '1'"),
    ],
)  # fmt: skip
def test_messages(model, scores, options, message):
    given, options = split(options)
    with pytest.raises(InputError, match=message):
        tdd.score(model, ["one two three"], with_given(scores, **given), progress=False, **options)
