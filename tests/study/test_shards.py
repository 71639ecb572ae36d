"""Totals in shards: the same integers as in one run, in any order, whoever dies, whatever n is, and nothing twice."""

import itertools
import random
import shutil
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tdd
from tdd.study import NormalShift, run, runner
from tdd.study.named import load
from tdd.study.named.driver import run_shard
from tdd.study.named.record import StudyOptions
from tdd.study.results import Totals
from tdd.study.runner import Cell, Plan, pieces
from tdd.study.store import PartialTotals, TotalsStore, gaps, joined, merge, overlap

ZERO = Totals.zero((1, 1))


def sums_of(first, last):
    """A tally that tells every set of repetitions from every other."""
    index = np.arange(first, last)
    sums, histogram = np.zeros((1, 1, 4, 4), np.int64), np.zeros((1, 1, 4, 1025), np.int64)
    sums[..., 1] = (index * index).sum()
    sums[..., 3] = (index % 3 == 0).sum()
    np.add.at(histogram, (0, 0, 0, index % 1025), 1)
    return types.SimpleNamespace(repetitions=last - first, sums=sums, histogram=histogram)


def assert_totals(found, ranges):
    expected = ZERO
    for cut in ranges:
        expected = expected.add(sums_of(*cut))
    assert found.repetitions == expected.repetitions
    np.testing.assert_array_equal(found.sums, expected.sums)
    np.testing.assert_array_equal(found.histogram, expected.histogram)


def plan_of(repetitions=3_000, *, stops=False, enough=None):
    """With stops at 100 times a power of two; `enough` repetitions are enough."""

    def next_stop(done):
        at = 100
        while at <= done:
            at *= 2
        return at

    class Counting(Plan):
        def enough(self, totals):
            if stops:
                assert totals.repetitions in {100 * 2**i for i in range(20)}, "decided between two stops"
                assert_totals(totals, [(0, totals.repetitions)])
            return enough is not None and totals.repetitions >= enough

    return Counting(repetitions, 64, 256, 16, target_se=0.1 if stops else None, next_stop=next_stop)


class Died(Exception):
    """In place of a signal."""


def at_work(folder, plan, shard=None, *, calls=None, dies=None, meanwhile=None):
    """The totals that a run returns; it dies in its call number `dies`, and calls `meanwhile` in its second one."""
    made = itertools.count(1)

    def sums(operands, first, last):
        number = next(made)
        if number == dies:
            raise Died
        if number == 2 and meanwhile is not None:
            meanwhile()
        if calls is not None:
            calls.append((first, last))
        return sums_of(first, last)

    try:
        return runner.accumulate(Cell(sums, None, 1, plan), TotalsStore(folder, {"seed": 0}, shard), 0, ZERO)
    except Died:
        return None


def members(ranges):
    return {i for first, last in ranges for i in range(first, last)}


def share(plan, index, count):
    return [piece for i, piece in enumerate(pieces(plan, plan.repetitions)) if i % count == index]


@pytest.fixture
def saves_always(monkeypatch):
    monkeypatch.setattr(runner, "_PATIENCE", 0.0)


# --- ranges -----------------------------------------------------------------------------------------------------------

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=6)


@given(RANGES, RANGES)
def test_gaps_and_overlap_are_those_of_sets(wanted, done):
    found = gaps(wanted, done)
    assert members(found) == members(wanted) - members(done)
    one, other = (joined((i, i + 1) for i in members(ranges)) for ranges in (wanted, done))
    assert overlap(one, other) == bool(members(wanted) & members(done))


@given(st.sets(st.integers(0, 50)))
def test_joined_ranges_are_the_fewest(numbers):
    found = joined((i, i + 1) for i in numbers)
    assert members(found) == numbers
    assert all(low[1] < high[0] for low, high in itertools.pairwise(found))


@given(st.lists(st.sets(st.integers(0, 30)), max_size=5), st.sets(st.integers(0, 30)))
def test_a_merge_counts_no_repetition_twice(sets, beside):
    parts = [PartialTotals(joined((i, i + 1) for i in numbers), ZERO) for numbers in sets]
    parts = [PartialTotals(part.ranges, totals_of(part.ranges)) for part in parts]
    whole = merge(parts, ZERO, joined((i, i + 1) for i in beside))
    assert_totals(whole.totals, whole.ranges)
    taken = set(beside)
    for numbers in sets:
        taken |= set() if numbers & taken else numbers
    assert members(whole.ranges) == taken - beside


def totals_of(ranges):
    found = ZERO
    for cut in ranges:
        found = found.add(sums_of(*cut))
    return found


@given(st.integers(1, 100_000), st.sampled_from([1, 16, 128]))
def test_pieces_do_not_depend_on_where_they_end(until, smallest):
    plan = Plan(10**9, 64, 1_024, smallest)
    cut = list(pieces(plan, until))
    assert cut[0][0] == 0
    assert cut[-1][1] == until
    assert all(a[1] == b[0] for a, b in itertools.pairwise(cut))
    longer = list(pieces(plan, 2 * until))
    assert longer[: len(cut) - 1] == cut[:-1]
    assert longer[len(cut) - 1][0] == cut[-1][0]
    assert max(last - first for first, last in cut) <= max(1_024, smallest)
    assert len(cut) <= 64 * (2 + np.log2(1 + until / 16)) + until / 1_024 + 64 * 16 / smallest * 16


# --- shards and the run that joins them -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_in_any_order_give_the_sums_of_one_run(tmp_path, count):
    plan, calls = plan_of(), []
    order = random.Random(count).sample(range(count), count)
    for index in [*order, order[0]]:
        assert_totals(at_work(tmp_path, plan, (index, count), calls=calls), share(plan, index, count))
    assert_totals(at_work(tmp_path, plan, calls=calls), [(0, 3_000)])
    assert sum(last - first for first, last in calls) == 3_000, "no repetition was run twice"
    assert members(calls) == set(range(3_000))


def test_the_work_is_shared_evenly(tmp_path):
    held = [at_work(tmp_path, plan_of(40_000), (i, 4)).repetitions for i in range(4)]
    assert max(held) < 1.1 * min(held)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
@pytest.mark.slow("long")
def test_whoever_dies_and_however_many_shards_there_are(tmp_path_factory, data):
    """Shards of any n and joining runs die one after the other, then one run ends; what was saved is not run again."""
    folder, plan, calls = tmp_path_factory.mktemp("deaths"), plan_of(2_000), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_PATIENCE", 0.0)  # saves after every call
        for _ in range(data.draw(st.integers(1, 6))):
            count = data.draw(st.integers(0, 4))
            shard = (data.draw(st.integers(0, count - 1)), count) if count else None
            at_work(folder, plan, shard, dies=data.draw(st.integers(1, 8)), calls=calls)
        assert_totals(at_work(folder, plan, calls=calls), [(0, 2_000)])
    assert sum(last - first for first, last in calls) == 2_000


@pytest.mark.usefixtures("saves_always")
def test_a_shard_that_was_killed_goes_on_behind_its_last_save(tmp_path):
    plan, calls = plan_of(), []
    assert at_work(tmp_path, plan, (1, 4), dies=5, calls=calls) is None
    assert len(calls) == 4
    assert_totals(at_work(tmp_path, plan, "1/4", calls=calls), share(plan, 1, 4))
    assert calls == share(plan, 1, 4)


def test_what_no_shard_has_run_is_told_once_and_run(tmp_path, caplog):
    plan, calls = plan_of(), []
    for index in (0, 2):
        at_work(tmp_path, plan, (index, 3), calls=calls)
    lacking = sum(last - first for first, last in share(plan, 1, 3))
    assert not caplog.messages
    assert_totals(at_work(tmp_path, plan, calls=calls), [(0, 3_000)])
    (message,) = caplog.messages
    assert f"the shards have left {lacking:,} repetitions" in message
    assert sum(last - first for first, last in calls) == 3_000
    assert_totals(at_work(tmp_path, plan, calls=calls), [(0, 3_000)])
    assert sum(last - first for first, last in calls) == 3_000


@pytest.mark.usefixtures("saves_always")
def test_a_shard_that_is_later_than_the_joining_run(tmp_path):
    """It finds its repetitions done; where both were at work at the same time, they count once."""
    plan, calls = plan_of(1_000), []
    at_work(tmp_path, plan, (0, 2))
    assert_totals(at_work(tmp_path, plan), [(0, 1_000)])
    assert at_work(tmp_path, plan, (1, 2), calls=calls).repetitions == 0
    assert not calls
    other = tmp_path / "other"

    def late():
        assert at_work(other, plan, (1, 2)).repetitions > 0

    at_work(other, plan, (0, 2))
    assert_totals(at_work(other, plan, meanwhile=late), [(0, 1_000)])
    for _ in range(2):
        assert_totals(at_work(other, plan), [(0, 1_000)])


@pytest.mark.usefixtures("saves_always")
@pytest.mark.parametrize(("first", "second"), [((0, 2), (0, 4)), ((1, 4), (1, 2)), ((0, 2), (0, 3)), ((0, 2), (1, 4))])
def test_shards_of_different_n(tmp_path, first, second):
    """One after the other they share the work; at the same time their overlap counts once and what is left is run."""
    plan, calls = plan_of(500), []
    for shard in (first, second, None):
        found = at_work(tmp_path / "after", plan, shard, calls=calls)
    assert_totals(found, [(0, 500)])
    assert sum(last - start for start, last in calls) == 500
    place = tmp_path / "beside"
    assert_totals(at_work(place, plan, first, meanwhile=lambda: at_work(place, plan, second)), share(plan, *first))
    assert_totals(at_work(place, plan), [(0, 500)])


@pytest.mark.usefixtures("saves_always")
def test_what_the_joining_run_has_yields_to_more_of_the_shards(tmp_path):
    """It was begun without shards and killed; shards that had begun by then hold the same repetitions and more."""
    plan = plan_of(1_000)

    at_work(tmp_path, plan, (0, 4), meanwhile=lambda: at_work(tmp_path, plan, dies=3))
    for index in range(1, 4):
        at_work(tmp_path, plan, (index, 4))
    assert TotalsStore(tmp_path, {"seed": 0}).place(0).exists()
    calls = []
    assert_totals(at_work(tmp_path, plan, calls=calls), [(0, 1_000)])
    assert not calls, "the files of the shards hold everything"


@pytest.mark.usefixtures("saves_always")
def test_two_copies_of_a_shard_at_once(tmp_path):
    """The one that is behind does not take back what the other has saved, even if it dies."""
    plan, found = plan_of(1_000), []

    def copy():
        found.append(at_work(tmp_path, plan, (1, 3)))

    assert at_work(tmp_path, plan, (1, 3), meanwhile=copy, dies=4) is None
    place = TotalsStore(tmp_path, {"seed": 0}, (1, 3)).place(0)
    content = place.read_bytes()
    assert_totals(found[0], share(plan, 1, 3))
    calls = []
    assert_totals(at_work(tmp_path, plan, (1, 3), calls=calls), share(plan, 1, 3))
    assert not calls
    place.unlink()
    at_work(tmp_path, plan, (1, 3), meanwhile=copy)
    assert place.read_bytes() == content


@pytest.mark.usefixtures("saves_always")
@pytest.mark.parametrize(("enough", "expected"), [(750, 800), (None, 3_000)])
def test_a_run_that_may_stop_continues_to_the_same_stop(tmp_path, enough, expected):
    plan, calls = plan_of(stops=True, enough=enough), []
    for dies in (2, 4):
        assert at_work(tmp_path, plan, dies=dies, calls=calls) is None
    assert_totals(at_work(tmp_path, plan, calls=calls), [(0, expected)])
    assert sum(last - first for first, last in calls) == expected


# --- what can go wrong ------------------------------------------------------------------------------------------------


def test_another_study_is_refused_and_nothing_is_lost(tmp_path):
    at_work(tmp_path, plan_of(), (0, 2))
    before = {path: path.read_bytes() for path in (tmp_path / "totals").iterdir()}
    with pytest.raises(tdd.InputError, match=r"holds another study .seed: 0 there, 1 now"):
        TotalsStore(tmp_path, {"seed": 1}, (1, 2))
    assert {path: path.read_bytes() for path in (tmp_path / "totals").iterdir()} == before


def test_two_studies_that_were_started_at_the_same_time_are_not_summed(tmp_path):
    """Both find the folder without a fingerprint: the files tell of which study they are."""
    at_work(tmp_path, plan_of(), (0, 2))
    (tmp_path / "totals" / "fingerprint.json").unlink()
    TotalsStore(tmp_path, {"seed": 1}, (1, 2))
    with pytest.raises(tdd.InputError, match=r"cell-00000.shard-0-of-2.npz holds totals of another study"):
        TotalsStore(tmp_path, {"seed": 1}).read(0, ZERO, 3_000)


def test_a_damaged_file_of_a_shard(tmp_path):
    at_work(tmp_path, plan_of(), (0, 2))
    TotalsStore(tmp_path, {"seed": 0}, (0, 2)).place(0).write_bytes(b"PK")
    with pytest.raises(tdd.InputError, match=r"shard-0-of-2.npz is damaged .*; delete it to repeat its repetitions"):
        at_work(tmp_path, plan_of())


def test_a_folder_that_is_removed(tmp_path):
    for shard in (None, (1, 2)):
        with pytest.raises(tdd.InputError, match="totals was removed while the study ran"):
            at_work(tmp_path, plan_of(), shard, meanwhile=lambda: shutil.rmtree(tmp_path / "totals"))


REFUSED = [
    ({"shard": "4/4"}, "shard=4/4 does not exist: the 4 shards are 0/4 to 3/4"),
    ({"shard": (0, 4), "folder": None}, r"shard=0/4 needs folder= .--out.: a folder that all shards"),
    ({"shard": (0, 4), "target_se": 0.1}, "target_se=0.1 does not go with shard=0/4: .* give repetitions alone"),
    ({"shard": "half"}, "shard='half' must be I/N, as in 0/4"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_shards_that_cannot_be(tmp_path, options, message):
    design = NormalShift(num_calibration=19, num_tests=12)
    with pytest.raises(tdd.InputError, match=message):
        run(design, "ptdi/none", alphas=0.2, repetitions=500, **{"folder": tmp_path / "new", **options})
    assert not (tmp_path / "new").exists()
    given = {"alphas": (0.2,), "repetitions": 500, "folder": tmp_path / "new"}
    with pytest.raises(tdd.InputError, match=message):
        run_shard(load("ptdi-alpha"), StudyOptions(**{**given, **options}))
    assert not (tmp_path / "new").exists()
