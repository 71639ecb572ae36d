"""Orders as rows of tokens: windows, beginning-of-sequence tokens, shared beginnings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from word_tokenizer import word_tokenizer

from tdd.exchange.data import Shards, load_examples
from tdd.exchange.passes import Context, OrderRows, bos_tokens, context_windows
from tdd.scoring import tokenise
from tdd.scoring.tokenise import windows
from tdd.validate import InputError

VOCABULARY = 300


@given(st.integers(2, 200), st.integers(2, 40), st.integers(1, 39), st.integers(0, 1))
def test_every_token_is_scored_once_with_as_much_context_as_fits(n, room, stride, first):
    stride = min(stride, room - 1)
    made = [*context_windows(n, room, stride, first=first)]
    assert [t for one in made for t in range(one.first_target, one.stop)] == [*range(first, n)]
    for number, one in enumerate(made):
        assert one.stop - one.start == min(room, n), "every window is full"
        assert number == 0 or one.first_target - one.start >= 1
        assert number in (0, len(made) - 1) or one.stop - one.first_target == stride


@given(st.integers(2, 200), st.integers(2, 40))
def test_without_a_stride_they_are_the_windows_of_scoring(n, room):
    assert [*context_windows(n, room, None, first=1)] == [*windows(n, room)]
    assert [*context_windows(n, None, None, first=1)] == [*windows(n, None)]


def test_beginning_of_sequence():
    plain, bos = word_tokenizer(VOCABULARY), word_tokenizer(VOCABULARY, bos=True)
    assert bos_tokens(plain, "auto") == ()
    assert bos_tokens(bos, "auto") == bos_tokens(bos, "always") == (VOCABULARY - 1,)
    assert bos_tokens(bos, "never") == ()
    with pytest.raises(InputError, match="this one has none"):
        bos_tokens(plain, "always")


def test_a_tokenizer_that_does_not_know_the_probe():
    """What stands around nothing is beginning and end; only the beginning belongs before a window."""

    class Silent:
        bos_token_id = 7

        def __call__(self, texts, add_special_tokens=True):
            return {"input_ids": [[7, 8] if add_special_tokens else [] for _ in texts]}

    assert bos_tokens(Silent(), "auto") == (7,)
    Silent.bos_token_id = None
    assert bos_tokens(Silent(), "auto") == ()


def test_many_texts_are_tokenised_in_pieces(monkeypatch):
    whole = rows_of(40)
    monkeypatch.setattr(tokenise, "_BLOCK", 150)
    sizes, own = [], whole.tokenizer
    pieces = rows_of(40)
    monkeypatch.setattr(
        pieces, "tokenizer", lambda texts, **options: (sizes.append(len(texts)), own(texts, **options))[1]
    )
    for a, b in zip(whole.orders([0, 1, 2, 3]), pieces.orders([0, 1, 2, 3]), strict=True):
        assert all((one.tokens == other.tokens).all() for one, other in zip(a, b, strict=True))
    assert max(sizes) == 1, "each shard has more than 150 characters"
    assert len(sizes) == 6 + 6, "once, and once more twice its text"


def rows_of(count=12, *, num_shards=2, suffix=1.0, bos=(), room=None, stride=None, words=3):
    rng = np.random.default_rng(count)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 140, words)) for _ in range(count)]
    shards = Shards.cut(load_examples(texts), num_shards=num_shards, suffix=suffix, seed=1)
    context = Context(bos, room, stride)
    return OrderRows(shards, word_tokenizer(VOCABULARY), VOCABULARY, separator=" ", context=context)


def orders_of(rows, numbers):
    """(token ids of the text, rows) of each order of two shards."""
    places = [(shard, number) for number in numbers for shard in range(2)]
    for (shard, number), order in zip(places, rows.orders(numbers), strict=True):
        yield np.array([2 * int(word[1:]) + 1 for word in rows.shards.text(shard, number, " ").split()]), order


def test_one_window_holds_the_joined_text():
    rows = rows_of(bos=(299,))
    for ids, (row,) in orders_of(rows, [0, 1, 2]):
        assert row.first_target == 1
        assert row.tokens[0] == 299
        assert (row.tokens[1:] == ids).all()
        assert row.num_shared == 0


@pytest.mark.parametrize("bos", [(), (299,)])
def test_windows_of_a_long_shard(bos):
    rows = rows_of(bos=bos, room=7, stride=3)
    for ids, order in orders_of(rows, [0, 3]):
        seen = []
        for row in order:
            assert tuple(row.tokens[: len(bos)]) == bos
            assert len(row.tokens) == 7 + len(bos)
            seen += [*row.tokens[row.first_target :]]
        assert seen == [*ids[0 if bos else 1 :]]
    assert rows.windows_of(0) == len(rows.orders([0])[0])


@pytest.mark.parametrize("bos", [(), (299,)])
def test_what_all_orders_share_is_not_scored(bos):
    rows = rows_of(40, suffix=0.5, bos=bos)
    shared = 30 - 1  # ten examples of three words, and a word's margin
    for ids, (row,) in orders_of(rows, [0, 1, 2]):
        assert row.num_shared == row.first_target == shared + len(bos)
        assert (row.tokens[len(bos) :] == ids).all()
    windowed = rows_of(40, suffix=0.5, bos=bos, room=20, stride=5)
    for ids, order in orders_of(windowed, [0, 1]):
        assert all(row.num_shared == 0 for row in order)
        assert [token for row in order for token in row.tokens[row.first_target :]] == [*ids[shared:]]


def test_a_context_shorter_than_the_examples():
    with pytest.raises(
        InputError, match=r"12 of 12 examples are as long as the context of 3 tokens.*larger max_length"
    ):
        rows_of(room=3)
    assert rows_of(room=4).num_long == 0


def test_tokens_that_the_model_does_not_have():
    texts = ["w1 w2", "w140 w3", "w4", "w5"]
    shards = Shards.cut(load_examples(texts), num_shards=2, suffix=1.0, seed=1)
    with pytest.raises(InputError, match="token id 281, but the model has a vocabulary of 200"):
        OrderRows(shards, word_tokenizer(VOCABULARY), 200, separator=" ", context=Context((), None, None))
