"""Every case that `python -m benchmarks throughput` measures agrees with all its peers, and disagreement is seen."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks.throughput import cases, suites
from benchmarks.throughput.measure import Options, measure

EVERY = [case for part in suites.CASES.values() for case in part]
ONCE = Options(rounds=1, peer_seconds=0.01, gate_seconds=60)


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
@pytest.mark.slow("parity")
def test_case_agrees_with_its_peers(case):
    (size,) = case.tiny
    row = measure(case, size, ONCE)
    assert set(row["peers"]) | set(row["skipped"]) == set(case.peers)
    assert row["peers"], "no peer is installed"
    assert row["per_s"] > 0
    assert row["compile_s"] > 0
    assert case.public or row["output_bytes"] > 0
    assert row["traffic_bytes"] > 0
    assert not row["bars"], "bars belong to the full sizes"
    json.dumps(row)


def case_of(name):
    return next(case for case in EVERY if case.name == name)


@pytest.mark.parametrize("batch", [None, 4])
def test_a_peer_that_differs_in_one_decision_stops_the_measurement(batch):
    right = case_of("sidak")

    def wrong(**arrays):
        found = dict(right.peers["statsmodels"].call(**arrays))
        found["reject"] = found["reject"] ^ (np.arange(found["reject"].size) == 7)
        return found

    case = dataclasses.replace(right, peers={"wrong": cases.Peer(wrong)})
    with pytest.raises(
        cases.Disagreement, match=r"sidak at .* against wrong.*reject differs in 1 of 40 entries; at \(7,\)"
    ):
        measure(case, cases.Size(40, batch), ONCE)


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ({"p": np.ones(3)}, {"p": np.ones(4)}, r"shape \(3,\) against \(4,\)"),
        ({"p": np.ones(3)}, {"q": np.ones(3)}, r"\['p'\] against \['q'\]"),
        ({"p": np.array([1.0, np.nan])}, {"p": np.array([1.0, 2.0])}, "nan against 2.0"),
        ({"p": np.array([1.0, 1.0001])}, {"p": np.ones(2)}, "differs in 1 of 2"),
        ({"p": np.array([0.0])}, {"p": np.array([1e-30])}, "differs in 1 of 1"),
        ({"r": np.array([3])}, {"r": np.array([4])}, "3 against 4"),
    ],
)
def test_disagreement(ours, theirs, message):
    cases.check_agreement(ours, dict(ours), 1e-6, "here")
    with pytest.raises(cases.Disagreement, match=f"here: .*{message}"):
        cases.check_agreement(ours, theirs, 1e-6, "here")


def test_sizes():
    assert cases.parse_size("1000") == cases.Size(1000)
    assert cases.parse_size("64x1000") == cases.Size(1000, 64)
    assert str(cases.Size(1000, 64)) == "64 × 1,000"
    for text in ("0", "-1", "1x2x3", "ten", "x5", "1.5"):
        with pytest.raises(cases.InputError, match=r"sizes: .* is neither"):
            cases.parse_size(text)


def test_missing_peers_are_named():
    peer = cases.Peer(dict, "no_such_package_at_all")
    assert cases.missing(peer, cases.Size(1)) == "no_such_package_at_all is not installed"
    slow = cases.Peer(dict, max_items=100)
    assert cases.missing(slow, cases.Size(101)) == "too slow beyond 100 items"
    assert cases.missing(slow, cases.Size(100)) is None


def test_chosen_by_name():
    assert [c.name for c in suites.chosen("kernels", ["bh-"])["kernels"]] == [
        "bh-10000x1000",
        "bh-adjusted",
        "bh-adjusted-lattice",
    ]
    assert set(suites.chosen("all", [])) == {"kernels", "studies", "scoring"}
    with pytest.raises(cases.InputError, match="no case begins with 'nothing'; there are conformal"):
        suites.chosen("kernels", ["bh", "nothing"])
    with pytest.raises(cases.InputError, match="suite must be one of kernels, studies, scoring or all, got 'speed'"):
        suites.chosen("speed", [])
