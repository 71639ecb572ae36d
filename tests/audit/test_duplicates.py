import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.audit.duplicates import DuplicatePair, duplicates
from tdd.records import Texts
from tdd.texts import near as search
from tdd.texts.near import shingle_sets, similar_pairs
from tdd.validate import InputError


def words(count, seed, size=20_000):
    generator = random.Random(seed)
    return [f"w{generator.randrange(size)}" for _ in range(count)]


def grams(items, size=5):
    items = list(items) + [None] * (size - len(items))
    return {tuple(items[i : i + size]) for i in range(len(items) - size + 1)}


def jaccard(left, right):
    return len(left & right) / len(left | right)


def slow_near_pairs(left, right, near):
    """The definition: word 5-grams for texts of 60 words or more, letter 5-grams below 120, the larger."""
    found = {}
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            counts = len(a.split()), len(b.split())
            values = [jaccard(grams(a.split()), grams(b.split()))] if min(counts) >= 60 else []
            values += [jaccard(grams(a), grams(b))] if max(counts) < 120 else []
            if a != b and values and max(values) >= near:
                found[i, j] = max(values)
    return found


def test_exact_duplicates_after_normalisation():
    known = ["Straße  nach\nCafé", "other", "OTHER ", "unique a"]
    unknown = ["STRASSE nach cafe\u0301", "unique b", "Unique B", "other", "other"]
    found = duplicates(Texts(ids=("k1", "k2", "k3", "k4"), texts=tuple(known)), unknown)
    assert found.num_exact_pairs == 5
    assert found.num_near_pairs == 0
    assert (found.num_calibration, found.num_candidates) == (3, 3)
    assert (found.within_calibration, found.within_candidates) == (1, 2)
    assert found.complete
    assert set(found.pairs) == {
        DuplicatePair("k1", "1", 1.0),
        *(DuplicatePair(name, number, 1.0) for name in ("k2", "k3") for number in ("4", "5")),
    }
    assert "3 candidates are copies or near copies" in found.warning
    assert "1 calibration item repeats another and adds" in found.warning
    assert "2 candidates repeat others" in found.warning


def test_nothing_to_report():
    found = duplicates(["one text"], ["a very different thing"])
    assert found.warning == ""
    assert found.pairs == ()
    assert duplicates([], []).warning == duplicates([], ["a"]).warning == ""


def test_one_changed_word_is_found_in_short_and_long_texts():
    for count in (8, 32, 59, 60, 119, 120, 400):
        text = words(count, seed=count)
        edited = [*text]
        edited[count // 2] = "changed"
        near = 0.5 if count == 8 else 0.8
        found = duplicates([" ".join(text)], [" ".join(edited), " ".join(words(count, seed=1000 + count))], near=near)
        assert (found.num_near_pairs, found.num_candidates, found.num_exact_pairs) == (1, 1, 0), count
        assert found.pairs[0].candidate == "1"
        assert near <= found.pairs[0].similarity < 1


def test_similarity_is_the_definition_at_its_boundary():
    # 96 word 5-grams each; the last 5 words replaced: 91 common, 101 in the union.
    text = [f"a{i}" for i in range(200)][:100]
    other = text[:95] + [f"b{i}" for i in range(5)]
    expected = jaccard(grams(text), grams(other))
    long, changed = (" ".join([*part, *(["pad"] * 30)]) for part in (text, other))
    exact = jaccard(grams(long.split()), grams(changed.split()))
    assert expected == 91 / 101
    for near, count in ((exact, 1), (np.nextafter(exact, 1), 0)):
        assert duplicates([long], [changed], near=float(near)).num_near_pairs == count
    assert duplicates([long], [changed]).pairs[0].similarity == exact


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from([0.3, 0.5, 0.8, 1.0]))
@pytest.mark.slow("long")
def test_agrees_with_the_definition(seed, near):
    generator = random.Random(seed)
    bases = [words(generator.choice([3, 20, 58, 62, 90, 125, 150]), generator.random(), 50) for _ in range(4)]

    def variant():
        text = [*generator.choice(bases)]
        for _ in range(generator.choice([0, 0, 1, 3, 10])):
            text[generator.randrange(len(text))] = f"w{generator.randrange(50)}"
        return " ".join(text[: len(text) - generator.choice([0, 0, 1, 5]) or None])

    left, right = ({variant() for _ in range(8)} for _ in range(2))
    left, right = sorted(left), sorted(right)
    found = duplicates(left, right, near=near)
    expected = slow_near_pairs(left, right, near)
    pairs = {(int(p.calibration) - 1, int(p.candidate) - 1): p.similarity for p in found.pairs}
    near_pairs = {key: value for key, value in pairs.items() if left[key[0]] != right[key[1]]}
    assert near_pairs == expected
    assert found.num_near_pairs == len(expected)
    assert found.num_exact_pairs == len(set(left) & set(right))
    mirrored = duplicates(right, left, near=near)
    assert (mirrored.num_near_pairs, mirrored.num_candidates) == (found.num_near_pairs, found.num_calibration)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=8),
    st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=8),
    st.sampled_from([0.2, 0.5, 0.75, 0.8, 1.0]),
)
def test_similar_pairs_are_all_pairs(left, right, near):
    sets = [shingle_sets([np.array(row, dtype=np.int64) for row in rows]) for rows in (left, right)]
    np.testing.assert_array_equal(sets[0].sizes, [len(grams(row)) for row in left])
    found = {
        (i, j): value
        for a, b, values, _ in similar_pairs(sets[0], sets[1], near)
        for i, j, value in zip(a.tolist(), b.tolist(), values.tolist(), strict=True)
    }
    every = {(i, j): jaccard(grams(a), grams(b)) for i, a in enumerate(left) for j, b in enumerate(right)}
    assert found == {pair: value for pair, value in every.items() if value >= near}


def test_blocks_do_not_change_the_answer(monkeypatch):
    generator = random.Random(0)
    base = words(40, seed=1)
    texts = [" ".join([*base[: generator.randrange(30, 40)], *words(3, seed=i)]) for i in range(60)]
    whole = duplicates(texts[:30], texts[30:], near=0.6)
    monkeypatch.setattr(search, "_BLOCK", 50)
    assert duplicates(texts[:30], texts[30:], near=0.6) == whole
    assert whole.num_near_pairs > 50


def test_list_is_capped_and_counts_are_not(monkeypatch):
    found = duplicates(["same"] * 50, ["Same"] * 60)
    assert found.num_exact_pairs == 3000
    assert len(found.pairs) == 1000
    assert (found.num_calibration, found.num_candidates) == (50, 60)
    monkeypatch.setattr(search, "_MAX_COMPARED", 0)
    text = " ".join(words(30, seed=3))
    stopped = duplicates([text], [text + " more"])
    assert not stopped.complete
    assert "at least 1 candidates" in stopped.warning
    assert "stopped early" in stopped.warning


@pytest.mark.parametrize("near", [0, -1, 1.01, float("nan")])
def test_near_is_checked(near):
    with pytest.raises(InputError, match="near="):
        duplicates(["a"], ["b"], near=near)


@pytest.mark.slow("long")
def test_work_and_memory_grow_with_the_texts_not_with_the_pairs():
    texts = [" ".join(words(30, seed=i)) for i in range(8_000)]
    candidates = [*texts[4_000:], *(text.replace("w", "W", 1) + " x" for text in texts[:20])]
    tracemalloc.start()
    found = duplicates(texts[:4_000], candidates)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.num_near_pairs == 20
    # 8,000 texts x 180 letters = 1.44e6 5-grams: codes, rows, sorting orders and copies, about 40 times 8 bytes.
    assert peak < 1.44e6 * 8 * 40
    letters = [np.frombuffer(text.encode("utf-32-le"), dtype="<u4") for text in texts]
    sets = shingle_sets(letters[:4_000]), shingle_sets(letters[4_000:])
    compared = sum(work for *_, work in similar_pairs(sets[0], sets[1], 0.8))
    assert compared < 1e-3 * 4_000 * 4_000
