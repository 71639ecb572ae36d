"""Studies by several processes: the same integers as by one, whoever dies, however many there are."""

import concurrent.futures
import itertools
import json
import shutil
import signal
import threading
import time
import types

import numpy as np
import process_launcher
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tdd.cli import main
from tdd.processes import Processes, meeting, waiting
from tdd.study import parts, together
from tdd.study.parts import Part, joined, missing
from tdd.study.results import Totals
from tdd.study.store import TotalsStore
from tdd.study.together import Plan, accumulate, pieces
from tdd.validate.errors import InputError

ZERO = Totals.zero((1, 1))


def sums_of(first, last):
    """A tally that tells every set of repetitions from every other: repetition i is 1, at bin i mod 1025 and 2^i."""
    index = np.arange(first, last)
    sums, histogram = np.zeros((1, 1, 4, 4), np.int64), np.zeros((1, 1, 4, 1025), np.int64)
    sums[..., 1] = (index * index).sum()
    sums[..., 3] = (index % 3 == 0).sum()
    np.add.at(histogram, (0, 0, 0, index % 1025), 1)
    return types.SimpleNamespace(repetitions=last - first, sums=sums, histogram=histogram)


def assert_totals(found, count):
    expected = ZERO.add(sums_of(0, count))
    assert found.repetitions == count
    np.testing.assert_array_equal(found.sums, expected.sums)
    np.testing.assert_array_equal(found.histogram, expected.histogram)


def plan_of(repetitions=3_000, *, stops=False, enough=None):
    """With stops at 100 times a power of two; `enough` repetitions are enough."""

    def next_stop(done):
        at = 100
        while at <= done:
            at *= 2
        return at

    def is_enough(totals):
        assert totals.repetitions in {100 * 2**i for i in range(20)}, "decided between two stops"
        assert_totals(totals, totals.repetitions)
        return enough is not None and totals.repetitions >= enough

    return Plan(repetitions, 64, 256, 16, next_stop if stops else None, is_enough)


class Died(Exception):
    """In place of a signal."""


@pytest.fixture(autouse=True)
def _many_in_one(monkeypatch):
    """Processes in threads give no signs of life, and need none."""
    monkeypatch.setattr(meeting, "_live", lambda *_: None)


def at_work(folder, plan, count, *, deaths=(), calls=None, lives=1, gone=()):
    """Processes in threads; `deaths` are (index, call) at which one dies; each is started `lives` times; those that are
    `gone` never come.

    Returns:
      What each process found, in order; None for one that is dead.
    """
    calls = [] if calls is None else calls
    over = threading.Event()

    def one(index):
        made = 0

        def sums(operands, first, last):
            nonlocal made
            made += 1
            if (index, made) in deaths:
                raise Died
            calls.append((first, last))
            return sums_of(first, last)

        for _ in range(0 if index in gone else lives):
            try:
                store = TotalsStore(folder, {"seed": 0}, Processes(index, count))
                return accumulate(plan, sums, None, store, 0, ZERO)
            except Died:
                continue
            except StopIteration:
                return None
        if index not in gone:
            over.set()
        return None

    def wake(seconds):
        if over.is_set():
            raise StopIteration
        time.sleep(0.001)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "time", types.SimpleNamespace(sleep=wake, monotonic=time.monotonic))
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, range(count)))


# --- ranges -----------------------------------------------------------------------------------------------------------

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=6)


def members(ranges):
    return {i for first, last in ranges for i in range(first, last)}


@given(RANGES, RANGES)
def test_missing_and_overlap_are_those_of_sets(wanted, done):
    found = missing(wanted, tuple(done))
    assert members(found) == members(wanted) - members(done)
    shared = parts.overlap(tuple(wanted), tuple(done))
    assert (shared is None) == (not members(wanted) & members(done))
    assert shared is None or members([shared]) <= members(wanted) & members(done)


@given(st.sets(st.integers(0, 50)))
def test_joined_ranges_are_the_fewest(numbers):
    found = joined((i, i + 1) for i in numbers)
    assert members(found) == numbers
    assert all(low[1] < high[0] for low, high in itertools.pairwise(found))


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


# --- the union, with processes in threads -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize(("stops", "enough", "expected"), [(False, None, 3_000), (True, 750, 800), (True, None, 3_000)])
def test_every_process_finds_the_sums_of_one(tmp_path, count, stops, enough, expected):
    calls = []
    found = at_work(tmp_path, plan_of(stops=stops, enough=enough), count, calls=calls)
    for totals in found:
        assert_totals(totals, expected)
    assert sum(last - first for first, last in calls) == expected, "no repetition was run twice"
    assert members(calls) == set(range(expected))


def test_the_work_is_shared_evenly(tmp_path):
    at_work(tmp_path, plan_of(40_000), 4)
    held = [TotalsStore(tmp_path, {"seed": 0}, Processes(i, 4)).read(0).repetitions for i in range(4)]
    assert max(held) < 1.1 * min(held)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
@pytest.mark.slow("long")
def test_whoever_dies_and_however_many_come_back(tmp_path_factory, data):
    """Runs that die, each with another number of processes, then one that ends; nothing that was saved is run again."""
    folder = tmp_path_factory.mktemp("deaths")
    stops = data.draw(st.booleans())
    plan = plan_of(2_000, stops=stops, enough=data.draw(st.sampled_from([None, 400, 1_600])) if stops else None)
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "_PATIENCE", 0.0)  # saves after every call
        for _ in range(data.draw(st.integers(1, 3))):
            count = data.draw(st.integers(1, 4))
            death = (data.draw(st.integers(0, count - 1)), data.draw(st.integers(1, 8)))
            at_work(folder, plan, count, deaths=[death], calls=calls)
        found = at_work(folder, plan, data.draw(st.integers(1, 4)), calls=calls)
    for totals in found:
        assert_totals(totals, found[0].repetitions)
    assert len({totals.repetitions for totals in found}) == 1
    assert found[0].repetitions == plan_end(plan)
    assert sum(last - first for first, last in calls) == found[0].repetitions


def plan_end(plan):
    """Where a study with these stops ends."""
    at = plan.stop(0)
    while at < plan.repetitions and not plan.enough(ZERO.add(sums_of(0, at))):
        at = plan.stop(at)
    return at


def test_one_that_died_is_started_again_while_the_others_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(together, "_PATIENCE", 0.0)
    calls = []
    found = at_work(tmp_path, plan_of(stops=True, enough=1_600), 3, deaths=[(1, 4), (2, 9)], calls=calls, lives=2)
    for totals in found:
        assert_totals(totals, 1_600)
    assert sum(last - first for first, last in calls) == 1_600


def test_totals_of_one_process_without_ranges_are_continued_by_several(tmp_path):
    """A file that says only how many repetitions it holds: they are the first ones."""
    store = TotalsStore(tmp_path, {"seed": 0})
    store.write(0, Part(((0, 640),), ZERO.add(sums_of(0, 640))))
    place = tmp_path / "totals" / "cell-00000.npz"
    with np.load(place) as arrays:
        np.savez(place, **{name: arrays[name] for name in arrays if name != "ranges"})
    calls = []
    for totals in at_work(tmp_path, plan_of(), 3, calls=calls):
        assert_totals(totals, 3_000)
    assert min(first for first, _ in calls) == 640


def test_what_a_dead_one_owes_is_run_by_the_others_and_left_out_when_it_comes_back(tmp_path, monkeypatch):
    """With no patience at all, everybody runs everything in place of everybody: the sums stay those of one."""
    monkeypatch.setattr(meeting, "SILENCE", 0.0)
    plan = plan_of(stops=True, enough=1_600)
    for totals in at_work(tmp_path / "gone", plan, 3, gone=[1])[::2]:
        assert_totals(totals, 1_600)
    spare = [path.name for path in (tmp_path / "gone" / "totals").glob("*.in-place-*")]
    assert spare
    for totals in at_work(tmp_path / "gone", plan_of(), 3):
        assert_totals(totals, 3_000)
    for totals in at_work(tmp_path / "all", plan, 4):
        assert_totals(totals, 1_600)


def test_half_of_a_range_that_was_run_in_place_is_left_out(tmp_path):
    """The process came back and has done a part of it: its own file counts, and the rest is run again."""
    store = TotalsStore(tmp_path, {"seed": 0})
    store.write(0, Part(((0, 100),), ZERO.add(sums_of(0, 100))))
    store.write_spare(0, Part(((80, 160),), ZERO.add(sums_of(80, 160))))
    assert store.union(0, store.read(0), ZERO).ranges == ((0, 100),)
    store.write_spare(0, Part(((100, 160),), ZERO.add(sums_of(100, 160))))
    assert store.union(0, store.read(0), ZERO).ranges == ((0, 160),)
    assert_totals(accumulate(plan_of(400), lambda _, *cut: sums_of(*cut), None, store, 0, ZERO), 400)


# --- what can go wrong ------------------------------------------------------------------------------------------------


def test_the_same_repetitions_in_two_files_are_refused(tmp_path):
    for index, ranges in enumerate([((0, 100),), ((90, 200),)]):
        store = TotalsStore(tmp_path, {"seed": 0}, Processes(index, 2))
        store.write(0, Part(ranges, ZERO.add(sums_of(*ranges[0]))))
    store = TotalsStore(tmp_path, {"seed": 0})
    with pytest.raises(
        InputError, match=r"cell-00000.1.npz and .*cell-00000.npz both hold the repetitions 90 to 99: two runs"
    ):
        accumulate(plan_of(200), lambda *_: None, None, store, 0, ZERO)


def test_another_study_is_refused_by_name_on_every_process(tmp_path):
    """Whether the others are at work or not."""
    TotalsStore(tmp_path, {"seed": 0, "design": "a"}, Processes(0, 2))
    for index in (0, 1):
        with pytest.raises(InputError, match=r"holds another study .seed: 0 there, 1 now"):
            TotalsStore(tmp_path, {"seed": 1, "design": "a"}, Processes(index, 2))


def test_several_processes_need_a_folder():
    with pytest.raises(InputError, match=r"2 processes share this run out and need folder= .--out., a folder"):
        TotalsStore(None, {}, Processes(1, 2))


def test_a_folder_that_is_removed(tmp_path):
    store = TotalsStore(tmp_path, {"seed": 0}, Processes(1, 2))
    shutil.rmtree(tmp_path / "totals")
    with pytest.raises(InputError, match="totals was removed while the study ran"):
        accumulate(plan_of(), lambda _, *cut: sums_of(*cut), None, store, 0, ZERO)


# --- real processes, connected by jax.distributed ---------------------------------------------------------------------

COMMAND = ["study", "ptdi-alpha", "--repetitions", "3000", "--alpha", "0.2"]

STUDIES = """
import jax, numpy as np
from tdd.study import JointLabels, NormalShift, fresh_joint, run
from tdd.study.validity.claim import Claim
from tdd.study.validity.measure import measure

DESIGN = NormalShift(num_calibration=19, num_tests=12)
JOINT = JointLabels(num_models=2, num_calibration=19, num_tests=12, signal=3.0)

def coin(rate):
    return Claim(f"coin/{rate}", "a coin", "none", "FDR", rate, True, lambda key: 1.0 * jax.random.bernoulli(key, rate))

def claims(folder):
    return [[*row[:-1]] for row in measure([coin(0.1), coin(0.2)], repetitions=500, folder=folder)]

def general(folder, **options):
    grid = {"signal": [1.0, 8.0]}
    options = {"alphas": [0.2], "repetitions": 6_000, "grid": grid, "target_se": 0.005, "folder": folder, **options}
    return run(DESIGN, "ptdi/none", **options)

def joint(folder):
    return fresh_joint(JOINT, alphas=0.2, methods="jmcs/bh", repetitions=3_000, folder=folder)

def numbers(found):
    arrays = found.fdr, found.fdr_se, found.power_quantiles, np.ravel(found.repetitions)
    return [array.tolist() for array in arrays]
"""

WORKER = (
    STUDIES
    + """
import json, os, pathlib, signal, sys
address, count, index, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), pathlib.Path(sys.argv[4])
from tdd.cli import main
from tdd.processes import initialize, meeting
from tdd.study.store import TotalsStore, part_of
from tdd.validate.errors import InputError

initialize(address, count, index)
assert jax.device_count() == count * jax.local_device_count()
found = {"claims": claims(folder / "claims")}
found["status"] = main([*json.loads(sys.argv[5]), "--out", str(folder / "named")])
def tell():
    (folder / f"{index}.json").write_text(json.dumps(found))
with part_of(folder):  # one folder to meet in, as of a named study
    found["general"] = numbers(general(folder / "general"))
    if index == 1:
        for name, options in {"seed": {"seed": 5}, "devices": {"devices": jax.devices()[:1]}}.items():
            try:
                general(folder / "general", **options)
            except InputError as error:
                found[name] = str(error)
        tell()
        write = TotalsStore.write
        def last(self, cell, part):
            os.kill(os.getpid(), signal.SIGKILL)
        TotalsStore.write = last
    meeting.SILENCE = 5.0
    found["joint"] = numbers(joint(folder / "joint"))
tell()
"""
)


@pytest.fixture
def launcher(tmp_path):
    (tmp_path / "output").mkdir()
    found = process_launcher.Launcher(tmp_path / "output")
    yield found
    found.stop()


def test_two_connected_processes_one_of_which_dies(launcher, tmp_path):
    """All studies end as in one process, to the bit; who is left runs what the dead one owed."""
    folder, address = tmp_path / "studies", f"127.0.0.1:{process_launcher.free_port()}"
    folder.mkdir()
    started = [launcher.python(WORKER, address, 2, index, folder, json.dumps(COMMAND)) for index in range(2)]
    space = {}
    exec(STUDIES, space)
    alone = {name: space["numbers"](space[name](None)) for name in ("general", "joint")}
    alone = json.loads(json.dumps({**alone, "claims": space["claims"](None)}))
    (tmp_path / "one").mkdir()
    assert main([*COMMAND, "-q", "--out", str(tmp_path / "one" / "named")]) == 0
    ends = launcher.all(started, timeout=300)
    assert [end.code for end in ends] == [0, -signal.SIGKILL], [end.err[-3_000:] for end in ends]
    assert "process 1 has given no sign of life" in ends[0].err
    assert "pieces of a grid point are taken over" in ends[0].err
    lead, dead = (json.loads((folder / f"{index}.json").read_text()) for index in range(2))
    assert lead.pop("status") == dead.pop("status") == 0
    assert "seed: 5" in dead.pop("seed")
    assert "devices must be of this process, number 1: some of jax.local_devices()" in dead.pop("devices")
    assert lead == alone
    assert dead == {name: numbers for name, numbers in alone.items() if name != "joint"}
    assert "vanilla" in ends[0].out, "process 0 prints the table"
    assert ends[1].out == ""
    assert "tdd study: process 1 of 2 is done; process 0 writes the results" in ends[1].err
    for name in ("results.csv", "results.parquet"):
        one, two = ((place / "named" / name).read_bytes() for place in (tmp_path / "one", folder))
        assert one == two, name
    assert {path.name for path in (folder / "named").iterdir()} >= {"figure.png", "study.json", "staircase.png"}
    assert not (folder / "named" / "unfinished").exists()
