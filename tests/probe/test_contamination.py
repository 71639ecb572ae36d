"""A watched benchmark: the alarm, the estimate of when the leak began, the bounds; with references and by its order.

The model is a table of bigram logits, so that what it has "learnt" is written into it by hand.
"""

import dataclasses
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd import InputError
from tdd.kernels.trajectories import spending
from tdd.probe import benchmark
from tdd.probe.benchmark import contamination, rises, shard_rises, start_of_rise

V, LENGTH = 60, 12
LOOKS = 10


def bigrams(params, tokens):
    """A language model whose parameters are its logits."""
    return params[tokens]


def items(count, seed):
    return np.random.default_rng(seed).integers(0, V, (count, LENGTH))


def table():
    return np.zeros((V, V), np.float32)


def drift(rng):
    """What training on other data does: the table wanders."""
    return rng.normal(0, 0.3, (V, V)).astype(np.float32)


def learn(params, rows, amount):
    params = params.copy()
    for row in rows:
        np.add.at(params, (row[:-1], row[1:]), amount)
    return params


def without_token_seven(params):
    return np.where(np.arange(V)[:, None] == 7, np.float32(np.nan), params)


def run(watch, leaked=(), begin=LOOKS, amount=0.4, seed=0, looks=LOOKS):
    """A run of `looks` looks in which `leaked` rows are learnt after look `begin` (from 0)."""
    rng, params = np.random.default_rng(seed), table()
    for look in range(looks):
        params = params + drift(rng)
        if look > begin:
            params = learn(params, leaked, amount)
        watch(10 * look, params)
    return watch


def watch_of(rows, reference=None, **options):
    defaults = {"every": 10, "num_steps": 10 * (LOOKS - 1) + 1, "num_draws": 999, "token_budget": 512}
    return contamination(bigrams, rows, reference, **{**defaults, **options})


BENCHMARK, REFERENCE = items(40, 1), items(120, 2)


def anew(watch):
    """The same watch, and its compiled programs, before the first look."""
    watch.load_state_dict(watch.fresh)
    return watch


@pytest.fixture(scope="module")
def by_reference():
    watch = watch_of(BENCHMARK, REFERENCE)
    watch.fresh = watch.state_dict()
    return watch


@pytest.fixture(scope="module")
def by_order():
    watch = watch_of(BENCHMARK, num_shards=10, num_shuffles=5)
    watch.fresh = watch.state_dict()
    return watch


@pytest.fixture
def leaked(by_reference):
    """Half of the items leak between the looks at steps 30 and 40."""
    return run(anew(by_reference), BENCHMARK[:20], begin=3)


def test_the_bounds_of_each_look_have_draws_of_their_own(leaked, monkeypatch):
    keys, of = [], benchmark.fdp_bounds

    def drawn(*given, key, **options):
        keys.append(jax.random.key_data(key).tolist())
        return of(*given, key=key, **options)

    monkeypatch.setattr(benchmark, "fdp_bounds", drawn)
    for look in (2, 3, 3):
        leaked._bounds(look, leaked.history[look - 1].flagged)
    assert keys[0] != keys[1] == keys[2]


def test_a_leak_is_reported_with_its_time_its_fraction_and_its_items(leaked):
    leak = leaked.leak()
    assert leaked.alarm
    assert 40 <= leak.alarm <= 60
    assert leak.alarm == leaked.first_alarm
    assert leak.began == (30, 40)
    assert leak.step == 10 * (LOOKS - 1)
    assert 12 <= leak.num_leaked <= 20
    assert leak.fraction == leak.num_leaked / 40
    p_values = leaked.history[-1].result.p_values
    assert leak.fraction_estimate == pytest.approx(max(leak.fraction, 1 - (1 + (p_values >= 0.5).sum()) / 20))
    assert 0.3 <= leak.fraction_estimate <= 0.7
    assert leak.confidence == 0.95
    assert len(set(leak.items) & {str(i) for i in range(1, 21)}) >= 18
    flagged = np.stack([record.flagged for record in leaked.history])
    assert (flagged[1:] >= flagged[:-1]).all()  # what one look flags stays flagged
    wrong = len(set(leak.items) - {str(i) for i in range(1, 21)})
    assert wrong <= leak.num_false < len(leak.items) / 2
    assert "before step" in str(leak)
    assert "between steps 30 and 40" in str(leak)
    assert f"{len(leak.items)} items are named; if the assumptions hold, at most" in str(leak)
    assert str(leak).endswith("wrongly (confidence 95%).")
    assert "1 item is named" in str(dataclasses.replace(leak, items=("7",)))


@pytest.mark.slow("long")
def test_bounds_in_closed_form_where_a_look_would_take_too_many_draws(leaked, monkeypatch):
    drawn = leaked.leak()
    monkeypatch.setattr(benchmark, "_MOST_DRAWN", 0)
    closed = leaked.leak()
    assert 0 < closed.num_leaked <= drawn.num_leaked <= 20
    assert drawn.num_false <= closed.num_false <= len(closed.items)
    assert closed.items == drawn.items


def test_looks_off_the_schedule_are_marked(by_reference, tmp_path):
    watch = anew(by_reference)
    for step in (0, 10, 30, 40):  # the look at 20 was left out
        watch(step, table())
    assert [record.on_schedule for record in watch.history] == [True, True, False, True]
    assert "off the schedule" in watch.history[2].warnings[0]
    assert "due at step 20" in watch.history[2].warnings[0]
    watch.save(tmp_path)
    points = json.loads((tmp_path / "run.json").read_text())["open_points"]
    assert any(point.startswith("1 look is off the schedule of 10 steps, the first at step 30") for point in points)


def test_a_clean_run_is_silent(by_reference):
    watch = run(anew(by_reference), items(20, 3), begin=3)
    assert not watch.alarm
    assert watch.leak() is None
    assert len(watch.history) == LOOKS


@pytest.mark.slow("long")
def test_a_model_that_knew_the_benchmark_before_the_first_look(by_reference):
    watch = run(anew(by_reference), BENCHMARK, begin=-1, amount=3.0, looks=3)
    assert watch.leak().began == (None, 0)
    assert "before the first look" in str(watch.leak())


@pytest.mark.slow("long")
def test_the_bounds_share_one_level_over_all_looks():
    for horizon in (7, None):
        shares = [float(spending(t, horizon) - spending(t - 1, horizon)) for t in range(1, 200)]
        assert min(shares) >= 0
        assert sum(shares) <= 1 + 1e-6


def test_a_restored_watch_goes_on_and_looks_beyond_the_last_one_change_no_bound(leaked, tmp_path):
    leaked.save(tmp_path / "watch")
    before = leaked.leak()
    again = watch_of(BENCHMARK, REFERENCE)
    again.restore(tmp_path / "watch")
    assert again.leak() == before
    assert again(10 * (LOOKS - 1), None) is None
    again(10 * LOOKS, learn(table(), BENCHMARK, 5.0))
    assert len(again.history) == LOOKS + 1
    assert again.leak() == before


@pytest.mark.slow("long")
def test_scores_that_are_not_finite_leave_the_rest_as_it_is(by_reference):
    """One token's logits are NaN from look 6 on: items with it drop out, the alarm stands."""
    watch, rng, params = anew(by_reference), np.random.default_rng(0), table()
    for look in range(LOOKS):
        params = params + drift(rng)
        params = learn(params, BENCHMARK, 0.4) if look > 3 else params
        watch(10 * look, params if look < 6 else without_token_seven(params))
    leak = watch.leak()
    assert leak.began[1] <= leak.alarm
    assert 10 < leak.num_leaked <= 40
    lost = {str(i + 1) for i, row in enumerate(BENCHMARK) if 7 in row[:-1]}
    assert lost
    assert not lost & set(leak.items)


@pytest.mark.parametrize("most_drawn", [None, 0], ids=["drawn", "closed"])
def test_a_flagged_item_without_a_score_counts_as_wrong(by_reference, most_drawn, monkeypatch):
    """Earlier looks flagged it; at the look of the bounds nothing is known of it."""
    watch = anew(by_reference)
    params = learn(table(), BENCHMARK[:20], 2.0)
    watch(0, params)
    watch(10, without_token_seven(params))
    lost = np.isnan(watch.history[1].result.suspect_scores)
    if most_drawn is not None:
        monkeypatch.setattr(benchmark, "_MOST_DRAWN", most_drawn)
    assert 0 < lost.sum() < 40
    assert watch._bounds(2, lost)[0] == lost.sum()
    known = ~lost & (np.arange(40) < 20)
    assert watch._bounds(2, known | lost)[0] == watch._bounds(2, known)[0] + lost.sum()
    few = known & (np.cumsum(known) == 1)
    assert watch._bounds(2, few)[0] <= 1


# When it began.


@pytest.mark.parametrize("with_before", [False, True])
def test_rises_are_standardised_over_all_labellings(with_before):
    rng = np.random.default_rng(0)
    scores = rng.exponential(size=(2, 7)) if with_before else rng.exponential(size=(1, 7))
    found = []
    for suspects in itertools.combinations(range(7), 3):
        order = [*suspects, *(i for i in range(7) if i not in suspects)]
        found.append(rises(scores[:, order], 3)[-1])
    assert np.mean(found) == pytest.approx(0, abs=1e-12)
    assert np.var(found) == pytest.approx(1)


def test_shard_rises_are_standardised_over_all_relabellings():
    scores = np.random.default_rng(0).exponential(size=(2, 3, 3))
    found = []
    for chosen in itertools.product(range(3), repeat=3):
        moved = scores.copy()
        for shard, b in enumerate(chosen):
            moved[:, shard, [0, b]] = moved[:, shard, [b, 0]]
        found.append(shard_rises(moved))
    assert np.mean(found, axis=0) == pytest.approx(0, abs=1e-12)
    assert np.var(found, axis=0) == pytest.approx(1)


@pytest.mark.slow("long")
def test_rises_of_what_only_drifts_are_uncorrelated_and_those_of_a_leak_are_not():
    rng = np.random.default_rng(1)
    level = rng.normal(size=(4_000, 1, 30))
    paths = 3 + level + np.cumsum(rng.normal(0, 0.2, (4_000, 6, 30)), axis=1)
    z = np.array([rises(path, 12) for path in paths])
    correlations = np.corrcoef(z.T) - np.eye(6)
    assert np.abs(correlations).max() < 0.08
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(4_000)
    leaked = paths.copy()
    leaked[:, 3:, :12] -= 0.2
    assert np.array([rises(path, 12) for path in leaked])[:, 3].mean() > 2


@pytest.mark.parametrize("seed", range(5))
def test_the_start_is_the_most_likely_one(seed):
    z = np.random.default_rng(seed).normal(size=9) + np.r_[np.zeros(5), np.full(4, 1.5)]
    likelihoods = []
    for s in range(9):
        mean = max(0, z[s:].mean())
        likelihoods.append(-0.5 * np.sum(z[:s] ** 2) - 0.5 * np.sum((z[s:] - mean) ** 2))
    assert start_of_rise(z) == np.argmax(likelihoods)


def test_degenerate_looks_rise_by_nothing():
    flat = np.ones((2, 5))
    np.testing.assert_array_equal(rises(flat, 2), 0)
    np.testing.assert_array_equal(rises(np.full((1, 5), np.nan), 2), 0)
    np.testing.assert_array_equal(rises(np.array([[np.nan, np.nan, 1, 2, 3]]), 2), 0)
    np.testing.assert_array_equal(shard_rises(np.full((2, 2, 3), np.nan)), 0)
    np.testing.assert_array_equal(shard_rises(np.ones((2, 2, 3))), 0)
    assert start_of_rise(np.zeros(4)) == 0


# The order of the benchmark.


@pytest.mark.slow("long")
def test_the_published_order_is_found_and_no_item_is_named(by_order, tmp_path):
    text = BENCHMARK.reshape(10, -1)  # as a file that is read in pieces
    watch = run(anew(by_order), text, begin=4, amount=0.8)
    leak = watch.leak()
    assert leak.began == (40, 50)
    assert 50 <= leak.alarm <= 70
    assert leak.items == ()
    assert (leak.num_leaked, leak.fraction, leak.fraction_estimate, leak.num_false) == (0, 0, 0, 0)
    result = watch.history[-1].result
    assert np.isnan(result.p_values).all()
    assert not result.selected.any()
    assert watch.sizes[:2] == (10, 50)
    watch.save(tmp_path / "watch")
    saved = json.loads((tmp_path / "watch" / "run.json").read_text("utf-8"))
    assert "order" in saved["guarantees"]["set"]["assumes"][0]
    assert saved["guarantees"]["items"]["kind"] == "none"
    assert saved["outcome"].startswith("Evidence at level")
    assert "that the benchmark is in the training data, in its published order: alarm at step" in saved["outcome"]
    assert "suspects" not in saved["outcome"]
    assert not any("flags" in point for point in saved["open_points"])


@pytest.mark.slow("long")
def test_the_same_items_in_another_order_are_no_leak(by_order):
    """Learnt item by item: the order tells nothing, whatever is known of the items."""
    watch = run(anew(by_order), BENCHMARK, begin=2, amount=1.0)
    assert not watch.alarm


def test_the_relabellings_are_those_of_orders_within_shards():
    watch = watch_of(items(9, 4), num_shards=3, num_shuffles=4, num_draws=200, alpha=0.1)
    labels = watch._labels
    assert labels.shape == (201, 3 + 12)
    np.testing.assert_array_equal(labels[0], np.arange(15) < 3)
    for shard in range(3):
        own = np.r_[shard, 3 + 4 * shard : 7 + 4 * shard]
        np.testing.assert_array_equal(labels[:, own].sum(axis=1), 1)
        fraction = labels[1:, own].mean(axis=0)
        assert np.abs(fraction - 0.2).max() < 4.5 * np.sqrt(0.2 * 0.8 / 200)


def test_orders_are_different_readings_of_the_same_items():
    rows = items(8, 5)
    rows[1] = rows[0]
    watch = watch_of(rows, num_shards=2, num_shuffles=11, alpha=0.1)  # 4! / 2! - 1 = 11: all that there are
    canonical, shuffled = watch.roles["suspect"].tokens, watch.roles["reference"].tokens
    np.testing.assert_array_equal(canonical[0], rows[:4].reshape(-1))
    first = {row.tobytes() for row in (canonical[0], *shuffled[:11])}
    assert len(first) == 12
    for row in shuffled[:11]:
        np.testing.assert_array_equal(np.sort(row), np.sort(canonical[0]))


def test_a_shard_with_one_score_that_is_not_finite_is_left_out_whole(by_order):
    """What its other orders score has no influence, under any labelling."""
    watch, rng = by_order, np.random.default_rng(0)
    result = watch.evaluate(jnp.asarray(rng.normal(size=(V, V)), jnp.float32))
    spoilt = result.reference_scores.at[6].set(jnp.nan)  # an order of shard 1
    one = dataclasses.replace(result, reference_scores=spoilt)
    other = dataclasses.replace(one, suspect_scores=one.suspect_scores.at[1].set(-99.0))
    evidence = [watch.observe(watch.init(), what)[1] for what in (one, other)]
    jax.tree.map(np.testing.assert_array_equal, *evidence)
    whole = dataclasses.replace(result, suspect_scores=other.suspect_scores)
    assert watch.observe(watch.init(), whole)[1].p_value != evidence[0].p_value


def test_a_benchmark_of_more_shards_than_a_float_can_count_orders():
    watch = watch_of(items(1_280, 6), num_shards=320, num_shuffles=9, num_draws=99, token_budget=4_096)
    assert watch.sizes[:2] == (320, 2_880)


class Words:
    """A tokenizer that gives every word a number, and puts token 0 in front."""

    def __init__(self):
        self.ids = {}

    def __call__(self, texts, add_special_tokens=True):
        rows = [
            [self.ids.setdefault(word, len(self.ids) + 1) for word in text.replace("\n\n", " | ").split()]
            for text in texts
        ]
        return {"input_ids": [[0, *row] if add_special_tokens else row for row in rows]}


def test_texts_are_joined_by_the_separator_after_the_first_special_token():
    words = Words()
    texts = [f"item {i} says {i * i}" for i in range(10)]
    watch = watch_of(texts, tokenizer=words, num_shuffles=5, max_length=20, alpha=0.1)
    whole = words(["\n\n".join(texts[:4])])["input_ids"][0]
    np.testing.assert_array_equal(watch.roles["suspect"].tokens[0], whole)
    assert watch.sizes[:2] == (3, 15)  # shards of five items would have 25 tokens


@pytest.mark.parametrize(
    ("watched", "reference", "options", "message"),
    [
        (BENCHMARK, REFERENCE, {"num_shards": 3}, "num_shards=3 is for a benchmark whose order"),
        (BENCHMARK, REFERENCE, {"separator": " "}, "separator=' ' is for a benchmark"),
        (BENCHMARK, BENCHMARK[:3], {}, "the same tokens stand in two roles"),
        (BENCHMARK[:1], None, {}, "benchmark has 1 item"),
        (BENCHMARK, None, {"num_shards": 21}, "num_shards=21 must be a whole number from 1 to 20"),
        (BENCHMARK, None, {"num_shards": 20}, "2 items and 1 other orders that read differently, fewer than num_shuf"),
        (BENCHMARK, None, {"num_shuffles": 0}, "num_shuffles must be"),
        (BENCHMARK, None, {"max_length": 20}, "has 24 tokens, more than the limit of 20; shorten the items"),
        (BENCHMARK, None, {"max_length": 20, "num_shards": 9}, "has 60 tokens.*use more shards"),
        (BENCHMARK[:4], None, {"num_shards": 1, "num_shuffles": 3}, "relabelled in only 4 ways"),
        (["a b", "c d"], None, {}, "pass tokenizer="),
        (BENCHMARK, None, {"every": 0}, "every must be a whole number from 1"),
        (BENCHMARK, None, {"separator": [1.5]}, r"separator\[0\] must be a row of token ids"),
        (BENCHMARK, None, {"separator": 1}, r"separator\[0\] must be a row"),
    ],
)
def test_what_cannot_be_watched(watched, reference, options, message):
    with pytest.raises(InputError, match=message):
        watch_of(watched, reference, **options)
