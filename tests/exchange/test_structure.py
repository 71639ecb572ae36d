"""Order structure without a model: exact levels on random orders, power on sorted ones, what counts as sorted."""

import itertools

import guarantees
import numpy as np
import pytest
from scipy.stats import spearmanr

from tdd.exchange.structure import (
    _codes,
    _in_units,
    _properties,
    _statistic,
    duplicates,
    order_structure,
    sortedness,
    two_sided,
)
from tdd.validate import InputError

RNG = np.random.default_rng(0)
TOPICS = [" ".join(RNG.choice([f"t{t}x{i}" for i in range(60)], 12)) for t in range(8) for _ in range(30)]


def mixed(seed=0):
    order = np.random.default_rng(seed).permutation(len(TOPICS))
    return [TOPICS[i] for i in order]


def one(texts, name, bounds=None, **options):
    found = order_structure(texts, bounds or [(0, len(texts))], seed=0, **options)
    return next(test for test in found.tests if test.name == name)


def p_of(values):
    """The smallest p-value of several properties times their number, from [property][..., 1 + B] sums."""
    return np.minimum(1, len(values) * np.min([two_sided(row[..., 0], row[..., 1:]) for row in values], axis=0))


def random_orders(found, size, repetitions=100_000, draws=19):
    """Sums of each property in random published orders and in `draws` shuffles of each, in one array a property."""
    rng = np.random.default_rng(5)
    parts = []
    for _ in range(10):
        orders = np.argsort(rng.random((repetitions // 10, draws + 1, size)), axis=-1)
        parts.append([_statistic(one.kind, one.values[0], orders) for one in found])
    return [np.concatenate(rows) for rows in zip(*parts, strict=True)]


def reached(p, level):
    return guarantees.given(p <= level + 1e-9)


@pytest.fixture(scope="module")
def sums():
    texts = ["b 3", "a 1", "a 1", "c long text 2", "d 2 a", "b 3 a", "e 7"]
    found = _properties(texts, {"label": [0, 1, 1, 0, 0, 1, 0]}, [(0, 7)])
    assert [one.name for one in found] == ["neighbours", "lengths", "alphabet", "numbers", "field label"]
    return random_orders(found, 7)


@pytest.mark.guarantee(checks=3)
def test_p_values_are_super_uniform_on_exchangeable_data(sums, false_alarm_level):
    p = p_of(sums)
    for t in (0.1, 0.3, 0.5):
        guarantees.assert_at_most(reached(p, t), t, guarantees.Budget(false_alarm_level, guarantees.LONG))


@pytest.mark.guarantee(checks=1)
def test_the_order_itself_counts(false_alarm_level):
    """The broken twin: without the published order among the draws the p-value is too small."""
    found = [one for one in _properties(TOPICS[:20], {}, [(0, 20)]) if one.name == "neighbours"]
    row = random_orders(found, 20, repetitions=20_000)[0]
    p = 2 * np.minimum(*((np.sign(row[:, 1:] - row[:, :1]) * side >= 0).sum(axis=1) for side in (1, -1))) / 19
    guarantees.assert_exceeds(reached(p, 0.22), 0.22, guarantees.Budget(false_alarm_level, guarantees.LONG))


@pytest.mark.guarantee(checks=1)
def test_no_bonferroni_is_caught(sums, false_alarm_level):
    p = np.min([two_sided(row[:, 0], row[:, 1:]) for row in sums], axis=0)
    guarantees.assert_exceeds(reached(p, 0.1), 0.1, guarantees.Budget(false_alarm_level, guarantees.LONG))


@pytest.mark.guarantee(checks=1)
@pytest.mark.slow("long")
def test_the_whole_call_holds_its_level(false_alarm_level):
    p = np.array(
        [order_structure(mixed(i)[:24], [(0, 12), (12, 24)], seed=i, num_draws=39).p_value for i in range(600)]
    )
    guarantees.assert_at_most(reached(p, 0.3), 0.3, guarantees.Budget(false_alarm_level, guarantees.LONG))
    assert p.min() < 0.3


def test_sorted_by_topic_is_found_and_shuffled_is_not():
    bounds = [(i, i + 60) for i in range(0, 240, 60)]
    found = order_structure(TOPICS, bounds, seed=0)
    assert found.p_value <= 0.01
    assert one(TOPICS, "neighbours", bounds).observed > 2 * one(TOPICS, "neighbours", bounds).expected
    assert order_structure(mixed(), bounds, seed=0).p_value > 0.05


def test_topics_that_change_only_between_shards_do_no_harm():
    """Shuffles stay within shards: an order that is random there is random enough."""
    assert order_structure(TOPICS, [(i, i + 30) for i in range(0, 240, 30)], seed=0).p_value > 0.05


def test_alternating_labels_are_found():
    labels = [i % 2 for i in range(240)]
    found = one(mixed(), "field label", fields={"label": labels})
    assert found.observed == 0
    assert found.expected == pytest.approx(0.5, abs=0.02)
    assert found.p_value == 2 / 3000


def test_fields_that_hardly_repeat_are_left_out():
    found = order_structure(mixed(), [(0, 240)], seed=0, fields={"id": range(240)})
    assert "field id" not in [test.name for test in found.tests]


@pytest.mark.parametrize(
    ("name", "key"), [("lengths", len), ("alphabet", str.lower), ("numbers", lambda text: int(text.split()[-1]))]
)
def test_trends_within_shards_are_found(name, key):
    rng = np.random.default_rng(1)
    texts = [f"{'abcdefghij'[i]}{'x' * int(n)} {k}" for i, n, k in zip(*rng.integers(0, [[10], [10], [99]], (3, 300)))]
    texts.sort(key=key)
    assert one(texts, name, [(i, i + 50) for i in range(0, 300, 50)]).p_value == 2 / 3000


def test_properties_are_what_they_are_called():
    texts = mixed()[:40]
    lengths = [len(text) for text in texts]
    assert one(texts, "lengths").observed == pytest.approx(spearmanr(range(40), lengths)[0], abs=1e-12)
    ascending = np.mean([(a < b) + (a == b) / 2 for a, b in itertools.pairwise(texts)])
    assert one(texts, "alphabet").observed == pytest.approx(ascending)
    labels = [i // 7 for i in range(40)]
    same = np.mean([a == b for a, b in itertools.pairwise(labels)])
    assert one(texts, "field label", fields={"label": labels}).observed == pytest.approx(same)


def test_cosines_of_neighbours_against_scikit_learn():
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = mixed()[:40]
    rows = TfidfVectorizer(token_pattern=r"\S+", sublinear_tf=True).fit_transform(texts).toarray()
    expected = np.mean(np.sum(rows[1:] * rows[:-1], axis=1))
    assert one(texts, "neighbours").observed == pytest.approx(expected, abs=1e-6)
    found = _properties(texts, {}, [(0, 40)])[0]
    assert _in_units(found, [40])(_statistic("alike", found.values[0], np.arange(40))) == pytest.approx(
        expected, abs=1e-6
    )


def test_two_sided_p_values_by_hand():
    assert two_sided(5, np.array([1, 2, 3, 4, 4, 3, 2, 1, 0])) == 0.2
    assert two_sided(0, np.array([1, 2, 3, 4, 4, 3, 2, 1, 0])) == 0.4
    assert two_sided(1, np.array([1, 1, 1])) == 1


@pytest.mark.parametrize(
    ("texts", "bounds"), [(["a"] * 6, [(0, 3), (3, 6)]), (["a", "b"], [(0, 1), (1, 2)]), (["...", "?"], [(0, 2)])]
)
def test_nothing_to_see_is_no_evidence(texts, bounds):
    assert order_structure(texts, bounds, seed=0).p_value == 1


def test_the_seed_decides_and_a_bad_number_of_draws_is_refused():
    found = [order_structure(mixed(), [(0, 240)], seed=seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    with pytest.raises(InputError, match="num_draws must be a whole number"):
        order_structure(mixed(), [(0, 240)], seed=0, num_draws=0)


def test_large_shards_and_files_are_looked_at_in_blocks():
    texts = [f"{i * 7919 % 30011}" for i in range(30_000)]
    found = order_structure(texts, [(0, 29_000), (29_000, 30_000)], seed=0, num_draws=9)
    assert 10_000 <= found.num_examples <= 20_000


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([*"abcdefg"], "by text, ascending"),
        ([*"gfedcba"], "by text, descending"),
        ([*"aBcDeFg"], "by text without case, ascending"),
        (["z", "yy", "xx", "aaa", "bbb", "zzzz", "yyyyy", "xxxxx", "x" * 6, "a" * 7], "by length, ascending"),
        (
            [f"Q{i}. {'xyz'[i % 3]}" for i in (2, 10, 11, 30, 31, 40, 100)],
            "by the first number in each text, ascending",
        ),
        ([*"abcdef"], None),  # two of six texts' 720 orders: no news
        (["a", "a", "a", "a", "b"], None),
        (["a"] * 9, None),
        (["a", "c", "b", "d", "ee", "f", "g"], None),
    ],
)
def test_sortedness(texts, words):
    assert sortedness(texts) == words


def test_random_orders_are_hardly_ever_called_sorted():
    """The chance is at most .05 for each of four keys; of five texts 2/120 for each of their two keys at most."""
    rng = np.random.default_rng(0)
    texts = ["aa1", "b2", "cccc3", "ddd4", "eeeee5"]
    hits = [sortedness([texts[i] for i in rng.permutation(5)]) is not None for _ in range(2_000)]
    assert np.mean(hits) < 0.08


def test_duplicates_are_counted_where_they_are():
    texts = ["a cat", "a dog", "a cat", "A  cat", "a bird of prey sits", "a dog"]
    found = duplicates(texts, [(0, 3), (3, 6)])
    assert (found.num_distinct, found.num_groups, found.largest_group) == (4, 2, 2)
    assert found.num_within_shards == 1
    assert found.num_near == 3  # "a cat" twice and "A  cat"
    assert found.share == pytest.approx(5 / 6)
    assert duplicates(texts).num_within_shards == 2


def test_near_duplicates_of_long_texts():
    rng = np.random.default_rng(0)
    words = [str(word) for word in rng.integers(0, 5_000, 200)]
    texts = [" ".join(words), " ".join([*words[:-1], "other"]), " ".join(words[::-1])]
    found = duplicates(texts)
    assert (found.num_near, found.num_distinct, found.complete) == (2, 3, True)
    with pytest.raises(InputError, match="near"):
        duplicates(texts, near=0)


def test_duplicates_of_nothing_and_of_one_text():
    assert duplicates([]).share == 0
    assert duplicates(["a"] * 5).largest_group == 5
    assert _codes(["b", "a", "b"]).tolist() == [1, 0, 1]
