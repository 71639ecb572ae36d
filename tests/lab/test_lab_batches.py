"""Batches: everything once an epoch, few shapes, the same order from any point."""

import numpy as np
import pytest

from tdd import InputError
from tdd.lab.tokens import Batches, encode


class Characters:
    """A tokenizer of one id a character."""

    def __call__(self, texts, add_special_tokens=True):
        return {"input_ids": [[ord(character) for character in text] for text in texts]}


def rows_of(lengths):
    return [np.full(length, index + 1, np.int32) for index, length in enumerate(lengths)]


LENGTHS = list(np.random.default_rng(0).integers(2, 90, 53))


def batches(seed=3, **options):
    chosen = {"batch_size": 4, "num_buckets": 3, "max_length": 128} | options
    return Batches(rows_of(LENGTHS), seed=seed, **chosen)


def test_every_row_once_an_epoch_in_few_shapes():
    seen = list(batches().epoch(0))
    assert len(seen) == batches().per_epoch
    assert len({batch.tokens.shape for batch in seen}) <= 3
    assert all(batch.tokens.shape == batch.mask.shape for batch in seen)
    ids = np.concatenate([batch.tokens.max(axis=1) for batch in seen])
    assert sorted(ids[ids > 0]) == list(range(1, 54))
    assert sum(batch.mask.sum() for batch in seen) == sum(LENGTHS) - 53


def test_only_targets_that_follow_a_token_are_scored():
    for batch in batches().in_order():
        assert not batch.mask[:, 0].any()
        np.testing.assert_array_equal(batch.mask[:, 1:], batch.tokens[:, 1:] > 0)


def test_order_depends_on_seed_and_epoch_and_not_on_the_starting_point():
    whole = list(batches().epoch(2))
    later = list(batches().epoch(2, start=5))
    for ours, theirs in zip(whole[5:], later, strict=True):
        np.testing.assert_array_equal(ours.tokens, theirs.tokens)
    firsts = [
        next(iter(made.epoch(epoch))).tokens.tobytes()
        for made, epoch in ((batches(), 2), (batches(), 3), (batches(seed=4), 2))
    ]
    assert len(set(firsts)) == 3


def test_buckets_never_exceed_the_models_positions():
    limited = batches(max_length=89, num_buckets=1)
    assert {batch.tokens.shape for batch in limited.in_order()} == {(4, 89)}


@pytest.mark.parametrize("lengths", [[2], [16, 16, 16], [2, 90]])
def test_edge_sizes(lengths):
    made = Batches(rows_of(lengths), batch_size=4, num_buckets=5, max_length=100, seed=0)
    assert sum(batch.mask.sum() for batch in made.epoch(0)) == sum(lengths) - len(lengths)


def test_long_texts_are_cut_into_windows():
    windows = encode("texts", Characters(), ["abcdefg", "hi"], max_length=3, vocab_size=200)
    assert ["".join(map(chr, window)) for window in windows] == ["abc", "def", "hi"]


def test_bad_texts_are_named():
    with pytest.raises(InputError, match=r"texts\[1\] has 1 token"):
        encode("texts", Characters(), ["ab", "c"], max_length=8, vocab_size=200)
    with pytest.raises(InputError, match=r"token id 122.*100 entries"):
        encode("texts", Characters(), ["az"], max_length=8, vocab_size=100)
