"""Texts that both roles share against random divisions: its level with quotations, repeats and groups, and leaks."""

import numpy as np
import pytest
from scipy import stats

from tdd.audit.overlap import _links, _num_across, sharing
from tdd.texts.near import near_pairs

RUNS, LEVELS = 200, (0.01, 0.05, 0.2)


def words(rng, size):
    return " ".join(f"w{k}" for k in rng.integers(0, 5_000, size))


def quoting(rng, size, pool):
    """Texts of which a third quote one of the passages of the pool, and a tenth repeat an earlier text."""
    texts = []
    for i in range(size):
        quote = [pool[rng.integers(len(pool))]] if rng.uniform() < 0.3 else []
        again = i and rng.uniform() < 0.1
        texts.append(texts[rng.integers(i)] if again else " ".join([words(rng, 5), *quote, words(rng, 5)]))
    return texts


def p_values(draw):
    rng = np.random.default_rng(0)
    return np.array([draw(rng, i) for i in range(RUNS)])


def too_many(p, false_alarm_level):
    tails = [stats.binom.sf((p <= level).sum() - 1, RUNS, level) for level in LEVELS]
    return min(tails) <= false_alarm_level / len(LEVELS)


@pytest.mark.slow("repetitions")
@pytest.mark.guarantee(checks=1)
def test_level_where_texts_quote_and_repeat(false_alarm_level):
    shares = []

    def draw(rng, seed):
        pool = [words(rng, 35) for _ in range(20)]
        texts = quoting(rng, 40, pool)
        found = sharing(texts[:15], texts[15:], seed=seed)
        shares.append(found.num_shared / 40)
        return found.p_value

    assert not too_many(p_values(draw), false_alarm_level)
    assert np.mean(np.array(shares) > 0.01) > 0.9  # the twin: a count alone would fail nearly every time


@pytest.mark.slow("repetitions")
@pytest.mark.guarantee(checks=1)
def test_level_where_groups_have_passages_in_common(false_alarm_level):
    """Two editions of each of ten books, in random roles: text by text they are in one role too often or too rarely."""
    alone = []

    def draw(rng, seed):
        passages = [[words(rng, 35) for _ in range(4)] for _ in range(10)]
        editions = [[f"{words(rng, 5)} {passage}" for passage in book] for book in passages for _ in range(2)]
        order = rng.permutation(20)
        texts = [text for g in order for text in editions[g]]
        group = np.repeat(order, 4).tolist()
        alone.append(sharing(texts[:40], texts[40:], seed=seed).p_value)
        return sharing(texts[:40], texts[40:], seed=seed, groups=(group[:40], group[40:])).p_value

    assert not too_many(p_values(draw), false_alarm_level)
    assert too_many(np.array(alone), false_alarm_level)  # the twin


def test_leaks_are_seen_and_templates_are_not():
    rng = np.random.default_rng(1)
    candidates = [words(rng, 60) for _ in range(30)]
    halves = [" ".join(one.split()[:35]) for one in candidates[:12]]
    leaked = sharing(halves + [words(rng, 40) for _ in range(18)], candidates, seed=0)
    assert leaked.p_value <= 0.005
    assert (leaked.num_shared, leaked.num_draws) == (24, 999)
    assert leaked.expected == pytest.approx(24 * 30 / 59, rel=0.1)
    prompt = words(rng, 40)
    template = sharing(*([f"{prompt} {words(rng, 60)}" for _ in range(30)] for _ in range(2)), seed=0)
    assert (template.p_value, template.num_shared) == (1, 0)
    assert sharing([], [], seed=0).p_value == sharing(["a"], ["b"], seed=0).p_value == 1


def test_copies_and_near_copies_are_links():
    rng = np.random.default_rng(2)
    long = words(rng, 80)
    near = " ".join(["other", *long.split()[1:]])
    texts = [long, "a word", "A  word", near, long, "another thing entirely", "a word"]
    own = np.array([True, True, False, False, True, False, True])
    link, text = _links(texts, 0.8, near_pairs)
    assert _num_across(link, text, own) == 6  # all but the fifth of the list, which stands alone
    assert _num_across(link, text, ~own) == 6
    assert _num_across(link, text, np.zeros(7, bool)) == 0


def test_counts_by_hand():
    rng = np.random.default_rng(3)
    for _ in range(20):
        link, text = rng.integers(0, 8, 30), rng.integers(0, 12, 30)
        own = rng.uniform(size=12) < 0.5
        across = {
            t
            for t, a in zip(text, link, strict=True)
            for s, b in zip(text, link, strict=True)
            if a == b and own[t] != own[s]
        }
        assert _num_across(link, text, own) == len(across)
