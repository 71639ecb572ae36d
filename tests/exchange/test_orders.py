"""Shards and the draws of their orders."""

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdd.exchange.data import ExampleSet, Shards, shard_bounds
from tdd.exchange.passes import waves
from tdd.validate import InputError


def examples(count, name="d"):
    return ExampleSet(name, tuple(f"e{i}" for i in range(count)), "memory", f"{count:064x}")


@given(st.integers(1, 300), st.integers(1, 40))
def test_shards_are_contiguous_and_even(num_examples, num_shards):
    bounds = shard_bounds(num_examples, num_shards)
    assert [*itertools.chain.from_iterable(range(*one) for one in bounds)] == [*range(num_examples)]
    sizes = [stop - first for first, stop in bounds]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


def test_orders_do_not_depend_on_how_many_are_drawn_nor_on_other_data():
    a = Shards.cut(examples(12), num_shards=3, suffix=1.0, seed=5)
    again = Shards.cut(examples(12), num_shards=3, suffix=1.0, seed=5)
    later = [a.order(1, b) for b in (7, 2)]
    assert (later[1] == again.order(1, 2)).all()
    assert (later[0] == again.order(1, 7)).all()
    assert (a.order(1, 0) == [4, 5, 6, 7]).all()
    other = Shards.cut(examples(12), num_shards=3, suffix=1.0, seed=6)
    assert any((a.order(s, b) != other.order(s, b)).any() for s in range(3) for b in range(1, 9))
    assert len({tuple(a.order(s, b) - 4 * s) for s in range(3) for b in range(1, 30)}) > 20


@pytest.mark.parametrize(("suffix", "free"), [(1.0, 5), (0.5, 3), (0.4, 2), (0.01, 2)])
def test_a_suffix_is_permuted_and_nothing_else(suffix, free):
    shards = Shards.cut(examples(10), num_shards=2, suffix=suffix, seed=0)
    assert shards.num_free(1) == free
    for b in range(1, 20):
        order = shards.order(1, b)
        assert (order[: 5 - free] == np.arange(5, 10)[: 5 - free]).all()
        assert sorted(order) == [5, 6, 7, 8, 9]
    kept = shards.fixed_text(1, " ")
    assert kept == " ".join(f"e{i}" for i in range(5, 10 - free))
    assert shards.text(1, 3, " ").startswith(kept)


def test_draws_are_uniform_over_the_group_with_the_identity():
    """Chi-squared over the 6 orders of 3 free examples, 6,000 draws: 99.9999% quantile of 5 degrees of freedom."""
    shards = Shards.cut(examples(8), num_shards=2, suffix=0.75, seed=3)
    counts = collections.Counter(tuple(shards.order(0, b)) for b in range(1, 6_001))
    assert len(counts) == 6
    assert (0, 1, 2, 3) in counts
    assert sum((count - 1_000) ** 2 / 1_000 for count in counts.values()) < 35.9


def test_too_few_examples():
    with pytest.raises(InputError, match=r"7 examples for num_shards=4: shards of a single example.*num_shards=3"):
        Shards.cut(examples(7), num_shards=4, suffix=1.0, seed=0)
    with pytest.raises(InputError, match="fewer examples than shards"):
        Shards.cut(examples(3), num_shards=4, suffix=1.0, seed=0)
    with pytest.raises(InputError, match="needs two examples at least"):
        Shards.cut(examples(1), num_shards=1, suffix=1.0, seed=0)


def test_large_data_sets_are_shuffled_in_smaller_waves():
    assert waves(50) == waves(50, num_tokens=600_000) == ((1, 51),)
    for num_tokens, most in ((2**21, 16), (2**30, 8)):
        found = waves(50, looks=(1, 20), num_tokens=num_tokens)
        assert [shuffle for first, stop in found for shuffle in range(first, stop)] == [*range(1, 51)]
        assert max(stop - first for first, stop in found) <= most
        assert {2, 21} <= {stop for _, stop in found}
