"""Tokens, cuts, windows and batch shapes."""

import json
import re
import types

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from scored_models import random_texts, scored_model
from word_tokenizer import word_tokenizer

import tdd
from tdd.lab.tokens import END_OF_TEXT, train_tokenizer
from tdd.models.configuration import read_tokenizer
from tdd.scoring import inputs, tokenise
from tdd.scoring.buckets import bucket_lengths, plan
from tdd.scoring.tokenise import encode, prepends_bos, token_ids, windows
from tdd.validate import InputError


def test_special_tokens_are_kept_and_a_bos_is_noticed():
    plain = encode(word_tokenizer(20), ["w1 W2 w3"])
    assert plain.tokens[0].tolist() == [3, 4, 7]
    assert not plain.prepends_bos
    with_bos = encode(word_tokenizer(20, bos=True), ["w1 W2 w3"])
    assert with_bos.tokens[0].tolist() == [19, 3, 4, 7]
    assert with_bos.prepends_bos


def test_a_token_at_the_end_is_no_beginning():
    def closing(texts, add_special_tokens=True):
        return {"input_ids": [[5, 6, *[1] * add_special_tokens] for _ in texts]}

    assert not prepends_bos(closing)


def test_scored_bytes_leave_out_the_token_without_context():
    assert encode(word_tokenizer(20), ["w1 W2 w3"]).scored_bytes.tolist() == [len(" W2 w3")]
    assert encode(word_tokenizer(20, bos=True), ["w1 W2 w3"]).scored_bytes.tolist() == [len("w1 W2 w3")]


@pytest.mark.parametrize(("bos", "kept"), [(False, "w1 W2"), (True, "w1")])
def test_a_cut_text_ends_where_its_tokens_end(bos, kept):
    encoded = encode(word_tokenizer(20, bos=bos), ["w1 W2 w3", "w1"], max_tokens=2)
    assert [len(ids) for ids in encoded.tokens] == [2, 1 + bos]
    assert encoded.kept == (kept, "w1")


def test_a_tokenizer_that_does_not_tell_its_characters():
    """Counts of bytes are unknown, and refused where they are needed; so is a cut."""

    def letters(texts, add_special_tokens=True):
        return {"input_ids": [[ord(c) for c in text] for text in texts]}

    encoded = encode(letters, ["abcdef", "xyz"])
    assert [len(ids) for ids in encoded.tokens] == [6, 3]
    assert encoded.kept == ("abcdef", "xyz")
    with pytest.raises(InputError, match=r"compared per byte of text, and the tokenizer .* decode"):
        encoded.check_scored_bytes()
    with pytest.raises(InputError, match=r"'abcdef' has 6 tokens and is cut after 4, but the tokenizer .* decode"):
        encode(letters, ["abc", "abcdef"], max_tokens=4)


def test_a_tokenizer_without_offsets_is_decoded():
    class Letters:
        """One token a character."""

        def __call__(self, texts, add_special_tokens=True):
            return {"input_ids": [[ord(c) for c in text] for text in texts]}

        def decode(self, ids, skip_special_tokens=False):
            return "".join(map(chr, ids))

    encoded = encode(Letters(), ["abcdef", "xyz"], max_tokens=4)
    assert encoded.kept == ("abcd", "xyz")
    assert encoded.scored_bytes.tolist() == [3, 2]
    assert not prepends_bos(Letters())


def test_a_tokenizer_of_another_kind_is_named():
    with pytest.raises(InputError, match="must return a mapping with 'input_ids'"):
        encode(lambda texts, add_special_tokens: [1, 2], ["a"])


TEXTS = ["w1 w2 w3 w4 w5", "w6", "w7 w8"]


def padding(side, size=None, mask=True):
    """A tokenizer whose rows are filled up with 0, to the longest or to a length."""
    own = word_tokenizer(20, bos=True)

    def padded(texts, add_special_tokens=True):
        rows = [list(row) for row in own(texts, add_special_tokens=add_special_tokens)["input_ids"]]
        length = size or max(map(len, rows))
        fill = [[0] * (length - len(row)) for row in rows]
        ids = [[*row, *more] if side == "right" else [*more, *row] for row, more in zip(rows, fill, strict=True)]
        found = {"input_ids": np.array(ids) if size else ids}
        real = [[1] * len(row) + [0] * len(more) for row, more in zip(rows, fill, strict=True)]
        return {**found, "attention_mask": real if side == "right" else [row[::-1] for row in real]} if mask else found

    padded.decode = own.decode
    return padded


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", [None, 30])
def test_padding_is_left_out_where_the_mask_says_so(side, size):
    plain, padded = encode(word_tokenizer(20, bos=True), TEXTS), encode(padding(side, size), TEXTS)
    assert [ids.tolist() for ids in padded.tokens] == [ids.tolist() for ids in plain.tokens]
    assert (padded.kept, padded.prepends_bos) == (plain.kept, True)
    np.testing.assert_array_equal(padded.scored_bytes, plain.scored_bytes)


@pytest.mark.parametrize("side", ["left", "right"])
def test_spans_of_padded_rows_are_those_of_the_text(side):
    """A wrapper around a tokenizer of transformers that pads returns encodings in which padding has places too."""
    own = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(
            {w: i for i, w in enumerate(["<pad>", "<unk>", "a", "short", "one", "here", "long", "text"])}, "<unk>"
        )
    )
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, pad_token="<pad>", unk_token="<unk>", padding_side=side
    )

    def padded(texts, add_special_tokens=True):
        return theirs(texts, padding=True, add_special_tokens=add_special_tokens)

    texts = ["a long text here a long text here", "a short one here", ""]
    for most in (None, 3):
        plain, found = (encode(tokenizer, texts, max_tokens=most) for tokenizer in (theirs, padded))
        assert [ids.tolist() for ids in found.tokens] == [ids.tolist() for ids in plain.tokens]
        assert found.kept == plain.kept
        assert found.scored_bytes.tolist() == plain.scored_bytes.tolist()


def cut(texts, add_special_tokens=True):
    return {"input_ids": [[ord(c) for c in text[:9]] for text in texts]}


def of_eights(texts, add_special_tokens=True):
    """Each text is filled up by itself."""
    rows = word_tokenizer(20)(texts, add_special_tokens=add_special_tokens)["input_ids"]
    return {"input_ids": [[*row, *[0] * (-len(row) % 8)] for row in rows]}


def of_each(ids):
    return lambda texts, add_special_tokens=True: {"input_ids": [ids for _ in texts]}


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (padding("right", mask=False), "gives the text 'w6' 2 tokens alone and 6 beside others"),
        (padding("left", 30, mask=False), "as many tokens as twice this text .30.: let it neither cut texts nor fill"),
        (cut, "the text 'w1 w2 w3 w4 w5' as many tokens as twice this text .9."),
        (of_eights, "the text 'a' as many tokens as twice this text .8."),
        (of_each(["1", "2"]), r"a list of whole numbers for each text, got \['1', '2'\] for 'a'"),
        (of_each(3.7 * np.arange(5)), "a list of whole numbers for each text, got array"),
        (of_each(None), "a list of whole numbers for each text, got None"),
        (of_each(7), "a list of whole numbers for each text, got 7"),
        (of_each([1, 2**40]), "a token id beyond 32 bits for the text 'a'"),
        (lambda texts: {"input_ids": [[1]]}, "must take the keyword add_special_tokens"),
        ("gpt2", "tokenizer must be one of transformers, or a function .* got str"),
        (tokenizers.Tokenizer(tokenizers.models.BPE()), "PreTrainedTokenizerFast.tokenizer_object"),
        (lambda texts, add_special_tokens: {"input_ids": [[1]] * len(texts), "attention_mask": [[1, 0]] * len(texts)},
         "an attention mask of shape .2,. beside 1 token ids"),
        (lambda texts, add_special_tokens: {"input_ids": [[1]] * len(texts), "attention_mask": [[1]]},
         "returned 'attention_mask' for 1 of"),
    ],
)  # fmt: skip
def test_what_a_tokenizer_must_not_return(tokenizer, message):
    with pytest.raises(InputError, match=message):
        encode(tokenizer, TEXTS)


def test_a_special_token_written_in_a_text_is_text():
    """Somebody who writes <|endoftext|> into a text must not end it for the model."""
    tokenizer = train_tokenizer(["the end of the text", "one more text"], vocab_size=260)
    control = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    text = f"the end{END_OF_TEXT}of it"
    assert control in tokenizer(text)["input_ids"]
    encoded = encode(tokenizer, [text])
    assert control not in encoded.tokens[0]
    assert tokenizer.decode(encoded.tokens[0].tolist()) == encoded.kept[0] == text
    assert control not in token_ids(tokenizer, [text], add_special_tokens=False)[0]


@pytest.mark.parametrize("strategy", ["BatchLongest", {"Fixed": 12}])
def test_padding_and_truncation_of_tokenizer_json_change_no_token(strategy, tmp_path):
    tokenizer = train_tokenizer(["the end of the text", "one more text"], vocab_size=260)
    tokenizer.save_pretrained(tmp_path)
    place = tmp_path / "tokenizer.json"
    content = json.loads(place.read_text())
    content["padding"] = {"strategy": strategy, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0}
    content["padding"] |= {"pad_type_id": 0, "pad_token": END_OF_TEXT}
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    place.write_text(json.dumps(content))
    padded, texts = read_tokenizer(tmp_path, 260), ["one", "the end of the text"]
    for plain, other in zip(encode(tokenizer, texts).tokens, encode(padded, texts).tokens, strict=True):
        assert plain.tolist() == other.tolist()


def test_texts_are_tokenised_in_blocks(monkeypatch):
    """What a tokenizer returns, some hundred bytes a token, is in memory for one block at a time."""
    own, sizes = word_tokenizer(20), []

    def counted(texts, add_special_tokens=True):
        sizes.append(len(texts))
        return own(texts, add_special_tokens=add_special_tokens)

    counted.decode = own.decode
    texts = [f"w{i} w1" for i in range(9)]
    whole = encode(counted, texts)
    monkeypatch.setattr(tokenise, "_BLOCK", 12)
    sizes.clear()
    blocks = encode(counted, texts)
    assert sizes == [1, 1, *[2, 1, 1] * 4, 1], "probes for a beginning, then two texts at a time, and these alone"
    assert [ids.tolist() for ids in blocks.tokens] == [ids.tolist() for ids in whole.tokens]
    assert blocks.kept == whole.kept == tuple(texts)


def test_a_tokenizer_that_panics_is_refused():
    """tokenizers' PanicException is no Exception."""

    class PanicException(BaseException):
        pass

    def tokenizer(texts, add_special_tokens=True):
        raise PanicException("Onig: Regex search error: retry-limit-in-match over")

    with pytest.raises(InputError, match=r"gives up on the texts from 'xx' on: Onig.*mend or replace tokenizer.json"):
        token_ids(tokenizer, ["xx"], add_special_tokens=False)


@settings(max_examples=200, deadline=None)
@given(num_tokens=st.integers(2, 300), max_length=st.one_of(st.none(), st.integers(2, 80)))
def test_windows_score_every_token_once(num_tokens, max_length):
    found = list(windows(num_tokens, max_length))
    targets = [t for window in found for t in range(window.first_target, window.stop)]
    assert targets == list(range(1, num_tokens))
    for window in found:
        assert window.start < window.first_target  # context for every target
        assert window.stop - window.start <= (max_length or num_tokens)
    if max_length is not None and num_tokens >= max_length:
        assert all(window.stop - window.start == max_length for window in found)  # the last one too


def test_the_last_window_is_extended_to_the_left():
    assert [tuple(window) for window in windows(11, 4)] == [(0, 1, 4), (3, 4, 7), (6, 7, 10), (7, 10, 11)]


def brute_force(lengths, count, limit):
    from itertools import combinations

    rounded = np.minimum(-(-lengths // 8) * 8, limit)
    distinct = np.unique(rounded)
    best = np.inf
    for size in range(1, count + 1):
        for chosen in combinations(distinct, size):
            if chosen[-1] == distinct[-1]:
                best = min(best, np.array(chosen)[np.searchsorted(chosen, rounded)].sum())
    return best


@pytest.mark.parametrize("seed", range(5))
def test_bucket_lengths_waste_the_least(seed):
    lengths = np.random.default_rng(seed).integers(2, 98, 30)
    buckets = bucket_lengths(lengths, 3, limit=97)
    assert len(buckets) <= 3
    assert buckets[-1] >= lengths.max() or buckets[-1] == 97
    assert buckets[np.searchsorted(buckets, lengths)].sum() == brute_force(lengths, 3, 97)


def test_a_model_of_unknown_length_gets_no_more_than_the_longest_row():
    assert bucket_lengths(np.array([5, 20, 60]), 3).tolist() == [8, 24, 60]
    assert max(batch.length for batch in plan({"text": np.array([5, 20, 61])}, token_budget=99, compact=True)) == 61


def test_a_bucket_has_its_price():
    lengths = np.array([8] * 10 + [16] * 10)
    assert bucket_lengths(lengths, 8).tolist() == [8, 16]
    assert bucket_lengths(lengths, 8, price=81).tolist() == [16]


def test_very_long_rows_stay_cheap_to_plan():
    buckets = bucket_lengths(np.arange(2, 130_000), 8, limit=131_072)
    assert len(buckets) == 8
    assert buckets[-1] >= 129_999


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), budget=st.integers(1, 600), compact=st.booleans())
def test_a_plan_covers_every_row_once(seed, budget, compact):
    rng = np.random.default_rng(seed)
    lengths = {name: rng.integers(2, 90, rng.integers(0, 40)) for name in ("text", "lowercase")}
    lengths["text"] = np.append(lengths["text"], 5)
    batches = plan(lengths, token_budget=budget, limit=89, compact=compact)
    for name, rows in lengths.items():
        seen = np.concatenate([batch.rows for batch in batches if batch.kind == name] or [np.zeros(0, int)])
        assert sorted(seen) == list(range(len(rows)))
    for batch in batches:
        assert 0 < len(batch.rows) <= batch.size
        assert lengths[batch.kind][batch.rows].max() <= batch.length <= 89
        if batch.capacity is None:
            assert batch.size == 1 or batch.size * batch.length <= budget
        else:
            assert compact
            assert (lengths[batch.kind][batch.rows] - 1).sum() <= batch.capacity <= max(budget, batch.length)
            assert batch.size == 1 or batch.size * batch.length <= 2 * budget
    assert len({batch.shape[1:] for batch in batches}) <= 8


@pytest.mark.parametrize(
    ("compact", "count", "most"), [(False, 200, 0.18), (True, 200, 0.04), (True, 40, 0.04), (True, 1000, 0.02)]
)
def test_padding_of_the_wikimia_mix_is_small(compact, count, most):
    """Texts of 32, 64, 128, 256 words in the shares of WikiMIA, 1.38 tokens a word with 10% spread."""
    rng = np.random.default_rng(0)
    words = rng.choice([32, 64, 128, 256], count, p=[0.47, 0.33, 0.15, 0.05])
    lengths = np.round(words * rng.normal(1.38, 0.1, count)).astype(int)
    batches = plan({"text": lengths}, token_budget=2048, limit=1024, compact=compact)
    real = sum(batch.num_real(lengths) for batch in batches)
    assert 1 - real / sum(batch.num_tokens for batch in batches) < most
    assert len({batch.shape for batch in batches}) <= 8


def test_a_tokenizer_that_does_not_know_the_words_is_named(caplog):
    known = random_texts(9, seed=1, shortest=20)
    model = scored_model()
    model[2].unk_token = "W0"
    tdd.score(model, known, "loss")
    assert "unknown token" not in caplog.text
    tdd.score(model, [*known, "words of another model " * 40], "loss")
    assert re.search(r"\d\d% of the tokens in the text pass are the unknown token, in 1 of 10 texts: is", caplog.text)


@pytest.mark.parametrize(
    "special", [{"unk": 3, "eos": [0, 3]}, {"unk": np.int64(3), "eos": np.array([3, 5])}, {"unk": None}, {}]
)
def test_what_stands_for_another_end_is_no_unknown_token(special, caplog):
    tokenizer = types.SimpleNamespace(**{f"{name}_token_id": value for name, value in special.items()})
    inputs._say_unknown(tokenizer, [[3, 3, 3]], "text")
    assert not caplog.text


def test_attributes_of_a_tokenizer_that_fail_stop_nothing(caplog):
    class Failing:
        unk_token_id = property(lambda self: 1 / 0)

    inputs._say_unknown(Failing(), [[3, 3, 3]], "text")
    inputs._say_unknown(types.SimpleNamespace(unk_token_id=3), [[3, 3, 3], [1]], "text")
    assert "75% of the tokens in the text pass are the unknown token, in 1 of 2 texts" in caplog.text
