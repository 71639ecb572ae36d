"""The guard on the training stream: against a search that looks at every window, in plain Python."""

import collections
import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd import InputError
from tdd.kernels import shingle
from tdd.probe.stream import StreamGuard
from tdd.records import Texts

N = 3


def windows(row, n=N):
    return [tuple(int(t) for t in row[i : i + n]) for i in range(len(row) - n + 1)]


def own_ngrams(texts, common, n=N):
    """n-gram -> (text, times in it), for n-grams that one text alone has."""
    first = {}
    for i, text in enumerate(texts):
        first.setdefault(tuple(text), i)
    owners = collections.defaultdict(set)
    for text, i in first.items():
        for window in windows(text, n):
            owners[window].add(i)
    shared = {window for text in common for window in windows(text, n)}
    return {
        window: (next(iter(who)), windows(texts[next(iter(who))], n).count(window))
        for window, who in owners.items()
        if len(who) == 1 and window not in shared
    }


def slow(texts, common, batches, n=N):
    """Times, share covered and first step of every text that was seen."""
    own = own_ngrams(texts, common, n)
    counts, first = collections.Counter(), {}
    for step, (tokens, mask) in enumerate(batches):
        for row, real in zip(tokens, mask):
            for i, window in enumerate(windows(row, n)):
                if window in own and real[i : i + n].all():
                    counts[window] += 1
                    first.setdefault(own[window][0], step)
    found = {}
    for text in sorted(first):
        mine = {window: times for window, (who, times) in own.items() if who == text}
        copies = max(-(-counts[window] // times) for window, times in mine.items())
        covered = np.mean([counts[window] > 0 for window in mine])
        found[text] = (copies, covered, first[text])
    return found


def case(seed, vocabulary=4, longest=9):
    """Few different tokens: many shared n-grams, n-grams twice in a text, equal texts."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(0, vocabulary, rng.integers(N, longest)).tolist() for _ in range(12)]
    texts.append(texts[2])
    common = [rng.integers(0, vocabulary, rng.integers(0, 6)).tolist() or [0] for _ in range(3)]
    batches = []
    for _ in range(5):
        tokens = rng.integers(0, vocabulary, (4, 11))
        batches.append((tokens, np.arange(11) < rng.integers(0, 12, (4, 1))))
    return texts, common, batches


@pytest.mark.parametrize("seed", [0, 2, 4, 6])
def test_what_is_seen_is_what_a_search_finds(seed):
    texts, common, batches = case(seed)
    if not own_ngrams(texts, common):
        pytest.skip("nothing to watch")
    guard = StreamGuard(texts, reference=common, ngram=N)
    for step, (tokens, mask) in enumerate(batches):
        guard(step, tokens, mask)
    got = {int(seen.id) - 1: (seen.times, seen.covered, seen.first_step) for seen in guard.seen()}
    assert got == slow(texts, common, batches)
    told = {who for who, _ in own_ngrams(texts, common).values()}
    assert guard.unwatched == tuple(str(i + 1) for i in range(len(texts)) if texts.index(texts[i]) not in told)


def test_copies_are_counted_over_batches_and_within_them():
    text = [5, 6, 7, 5, 6, 7, 8]  # has 5 6 7 twice
    guard = StreamGuard([text, [1, 2, 3, 4]], ngram=3)
    row = [9, *text, 9, *text]
    assert guard(3, [row, row]).new == ("1",)
    assert guard(3, [row, [0] * 16]).new == ()
    assert guard(8, [[0] * 16]).texts == ()
    assert guard(9, [[1, 2, 3, *[0] * 13]]).new == ("2",)
    first, second = guard.seen()
    assert first == ("1", 6, 1.0, 3)
    assert second == ("2", 1, 0.5, 9)


def test_a_hash_that_collides_is_no_match(monkeypatch):
    """All windows have one of two hashes: every lookup meets a run of other n-grams."""
    plain = shingle.window_hashes

    def poor(tokens, size, salt=0):
        return plain(tokens, size, salt) if salt else plain(tokens, size) % 2

    monkeypatch.setattr(shingle, "window_hashes", poor)
    texts, common, batches = case(3)
    guard = StreamGuard(texts, reference=common, ngram=N)
    assert guard._rule.longest_run > 3
    for step, (tokens, mask) in enumerate(batches):
        guard(step, tokens, mask)
    got = {int(seen.id) - 1: (seen.times, seen.covered, seen.first_step) for seen in guard.seen()}
    assert got == slow(texts, common, batches)


def test_without_the_comparison_collisions_would_be_reported(monkeypatch):
    """The twin of the test above: lookup by hash alone."""
    texts, _, batches = case(3)
    monkeypatch.setattr(
        shingle, "window_hashes", lambda tokens, size, salt=0, f=shingle.window_hashes: f(tokens, size, salt) % 64
    )
    table, run = shingle.shingle_table([np.array(t) for t in texts], N)
    hashes = shingle.window_hashes(batches[0][0], N)
    by_hash = np.isin(hashes, table.hashes)
    find = jax.jit(functools.partial(shingle.find, size=N, longest_run=run))
    found = np.asarray(find(jnp.asarray(batches[0][0], jnp.int32), table)) >= 0
    assert (found <= by_hash).all()
    assert by_hash.sum() > found.sum()


def test_window_hashes_depend_on_the_window_alone():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 2**31 - 1, (3, 40)).astype(np.int32)
    for size in (1, 2, 13, 40):
        whole = shingle.window_hashes(tokens, size)
        for start in {0, 1, 40 - size} & set(range(41 - size)):
            alone = shingle.window_hashes(tokens[:, start : start + size], size)
            np.testing.assert_array_equal(alone[:, 0], whole[:, start])


def test_numpy_and_jax_hash_alike():
    tokens = np.random.default_rng(1).integers(0, 2**31 - 1, (2, 30)).astype(np.int32)
    for salt in (0, 1):
        here = shingle.window_hashes(tokens, 5, salt)
        assert isinstance(here, np.ndarray)
        there = jax.jit(functools.partial(shingle.window_hashes, size=5, salt=salt))
        np.testing.assert_array_equal(here, there(tokens))


def test_window_hashes_spread():
    """All 3-grams of 40 tokens: as many pairs collide as of random words; so do the 64 bits of both functions."""
    grid = np.stack(np.meshgrid(*[np.arange(40)] * 3), -1).reshape(-1, 3)
    first, second = (shingle.window_hashes(grid, 3, salt)[:, 0] for salt in (0, 1))
    expected = len(grid) ** 2 / 2**33
    for hashes in (first, second):
        assert len(grid) - len(np.unique(hashes)) < expected + 6 * np.sqrt(expected) + 3
    assert len(np.unique(first.astype(np.uint64) << 32 | second)) == len(grid)


def rows_slow(batches):
    """Times seen before and first step of every row, with unbounded memory."""
    seen, out = {}, []
    for step, (tokens, mask) in enumerate(batches):
        for row, real in zip(tokens, mask):
            key = tuple(np.where(real, row, -1).tolist())
            if not real.any():
                out.append((0, step))
                continue
            times, first = seen.get(key, (0, step))
            out.append((times, first))
            seen[key] = (times + 1, first)
    return out


@pytest.mark.parametrize("seed", range(2))
def test_rows_that_repeat(seed):
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 50, (12, 5))
    batches = []
    for _ in range(9):
        chosen = rng.integers(0, 12, 6)
        batches.append((pool[chosen], np.ones((6, 5), bool) if rng.random() < 0.7 else rng.random((6, 5)) < 0.6))
    memory, got = shingle.forget_all(2**14 + 1), []

    @jax.jit
    def seen(memory, step, tokens, mask):
        return shingle.remember(memory, shingle.row_fingerprints(tokens, mask), step, mask.any(axis=1))

    for step, (tokens, mask) in enumerate(batches):
        memory, times, first = seen(memory, step, tokens, mask)
        got += list(zip(np.asarray(times).tolist(), np.asarray(first).tolist()))
    assert got == rows_slow(batches)


def test_padding_does_not_hide_a_repetition():
    fingerprints = jax.jit(shingle.row_fingerprints)
    short, long = np.array([[4, 5, 0]]), np.array([[4, 5, 7, 7]])
    a = fingerprints(short, np.array([[True, True, False]]))
    b = np.asarray(fingerprints(long, np.array([[True, True, False, False]])))
    np.testing.assert_array_equal(a, b)
    assert (np.asarray(fingerprints(long, np.ones((1, 4), bool))) != b).any()


def test_memory_is_bounded_and_forgets_as_documented():
    """A row that comes again after j others: known with probability (1 - 1/C)^j, and never in the wrong."""
    capacity, others, trials = 64, 40, 400
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 2**31 - 1, (trials, others + 2, 8)).astype(np.int32)
    tokens[:, -1] = tokens[:, 0]

    def one(rows):
        memory = shingle.forget_all(capacity)
        ones = jnp.ones(1, bool)

        def step(memory, row):
            memory, times, _ = shingle.remember(memory, shingle.row_fingerprints(row[None]), 0, ones)
            return memory, times[0]

        return jax.lax.scan(step, memory, rows)[1]

    times = np.asarray(jax.jit(jax.vmap(one))(tokens))
    assert (times[:, :-1] == 0).all()
    share = (1 - 1 / capacity) ** others
    assert abs((times[:, -1] == 1).mean() - share) < 4.5 * np.sqrt(share * (1 - share) / trials)


def test_a_batch_larger_than_the_memory():
    """Rows of one batch that fall into one place: the last of them stays."""
    rng = np.random.default_rng(1)
    fingerprints = np.asarray(jax.jit(shingle.row_fingerprints)(rng.integers(0, 1000, (6, 4))))
    remember = jax.jit(shingle.remember)
    memory, times, _ = remember(shingle.forget_all(1), fingerprints, 0, np.ones(6, bool))
    np.testing.assert_array_equal(times, 0)
    np.testing.assert_array_equal(memory.fingerprints[0], fingerprints[-1])
    memory, times, _ = remember(memory, fingerprints[::-1], 7, np.ones(6, bool))
    np.testing.assert_array_equal(times, [1, 0, 0, 0, 0, 0])


def test_inside_a_compiled_step_it_says_the_same_and_traces_once():
    texts, common, batches = case(1)
    guard = StreamGuard(texts, reference=common, ngram=N, capacity=512)
    traced = []

    @jax.jit
    def train_step(state, step, tokens, mask):
        traced.append(step)
        matches = guard.evaluate(tokens, mask)
        state, times, _ = guard.observe(state, step, matches)
        return state, matches.num_texts, times

    state = guard.init()
    for step, (tokens, mask) in enumerate(batches):
        record = guard(step, tokens, mask)
        state, num_texts, times = train_step(state, step, jnp.asarray(tokens, jnp.int32), mask)
        assert int(num_texts) == len(record.texts)
        assert tuple(np.flatnonzero(times)) == tuple(row for row, _, _ in record.repeated_rows)
    assert guard.seen(state) == guard.seen()
    assert len(traced) == 1


def test_a_restarted_run_goes_on():
    texts, common, batches = case(2)
    whole, again = (StreamGuard(texts, reference=common, ngram=N, capacity=99) for _ in range(2))
    for step, batch in enumerate(batches):
        if step == 2:
            saved = whole.state_dict()
        whole(step, *batch)
    again.load_state_dict(saved)
    with pytest.raises(InputError, match="step"):
        again(0, *batches[0])
    for step, batch in list(enumerate(batches))[2:]:
        again(step, *batch)
    assert again.seen() == whole.seen() == copy.deepcopy(whole).seen()
    jax.tree.map(np.testing.assert_array_equal, again.state_dict(), whole.state_dict())
    with pytest.raises(InputError, match="hash of the watched n-grams"):
        StreamGuard(texts[1:], ngram=N, capacity=99).load_state_dict(saved)
    with pytest.raises(InputError, match="capacity is 99, this guard's is 7"):
        StreamGuard(texts, reference=common, ngram=N, capacity=7).load_state_dict(saved)


class Words:
    """A tokenizer that gives every word a number of its own, with a special token in front if asked."""

    def __init__(self):
        self.ids = {}

    def __call__(self, texts, add_special_tokens=True):
        rows = [[self.ids.setdefault(word, len(self.ids) + 1) for word in text.split()] for text in texts]
        return {"input_ids": [[0, *row] if add_special_tokens else row for row in rows]}


def test_texts_are_found_in_the_middle_of_documents():
    items = Texts(("q1", "q2"), ("how many cats sit here", "how many dogs run there now"))
    words = Words()
    guard = StreamGuard(items, reference=["how many dogs"], tokenizer=words, ngram=3)
    document = words(["we ask how many dogs run there now and how many then go home"])["input_ids"]
    record = guard(0, document)
    assert record.new == ("q2",)
    assert guard.seen()[0].covered == 1
    assert record.scalars() == {"tdd/stream/texts": 1, "tdd/stream/new_texts": 1, "tdd/stream/repeated_rows": 0}
    assert guard(1, document).repeated_rows == ((0, 1, 0),)
    assert guard(1, document).repeated_rows == ((0, 2, 0),)
    assert len(guard.history) == 3


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([],), {}, "watched is empty"),
        (("nowhere.txt",), {}, "no such file"),
        ((["a b c"],), {}, "pass tokenizer="),
        ((["a b c", [1, 2, 3]],), {}, "text at index 1 is a value of type list, no string"),
        (([[1, 2, 3], [1, -2, 3]],), {}, r"watched\[1\] holds the token id -2"),
        (([[1, 2, 3], [0.5, 1, 2]],), {}, r"watched\[1\] must be a row"),
        (([[1, 2, 3], [4, 5], [6]],), {}, r"'2' \(and 1 more\) has 2 tokens, fewer than ngram=3.*pass ngram=1"),
        (([[1, 2, 3]],), {"reference": [[0, 1, 2, 3]]}, "every n-gram of 3 tokens"),
        (([[1, 2, 3]],), {"ngram": 0}, "ngram must be a whole number"),
        (([[1, 2, 3]],), {"capacity": 0}, "capacity must be a whole number"),
    ],
)
def test_what_cannot_be_watched(arguments, options, message):
    with pytest.raises(InputError, match=message):
        StreamGuard(*arguments, **{"ngram": 3, **options})


@pytest.fixture(scope="module")
def at_step_five():
    guard = StreamGuard([[1, 2, 3]], ngram=3)
    guard(5, [[1, 2, 3]])
    return guard


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((-1, [[1, 2, 3]]), "step=-1 must be"),
        ((4, [[1, 2, 3]]), "step=4 comes after step 5"),
        ((jnp.int32(4), [[1, 2, 3]]), "step=4 comes after step 5"),
        ((jnp.float32(5), [[1, 2, 3]]), "step=.* must be"),
        ((np.True_, [[1, 2, 3]]), "step=.* must be"),
        ((5, [[1, 2, 2**32 + 3]]), "tokens holds 4294967299, beyond 32 bits"),
        ((5, [1, 2, 3]), r"shape \(3,\)"),
        ((5, [[1.0, 2, 3]]), "float64"),
        ((5, [[1, 2]]), "shorter than ngram=3"),
        ((5, [[1, 2, 3]], [[1, 1, 1]]), "mask must be bool"),
        ((5, [[1, 2, 3]], [True]), r"batch's shape \(1, 3\)"),
    ],
)
def test_what_is_no_batch(at_step_five, call, message):
    with pytest.raises(InputError, match=message):
        at_step_five(*call)
