"""What `python -m benchmarks throughput` prints and writes, and the process that a study is measured in."""

import argparse
import json
import os

import numpy as np
import pytest

from benchmarks.throughput import command, harness, studies, subprocess_bench, suites
from benchmarks.throughput.cases import Disagreement
from tdd.validate import InputError


def run(*argv):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    parsed = parser.parse_args(["throughput", *argv])
    parsed.run(parsed)


@pytest.mark.slow("long")
def test_results_are_written_and_shown(tmp_path, capsys):
    out = tmp_path / "bench.json"
    run(
        "kernels",
        "--only",
        "permutation,sidak",
        "--sizes",
        "50",
        "3x40",
        "--quick",
        "--rounds",
        "2",
        "--out",
        str(out),
        "-q",
    )
    table = capsys.readouterr().out
    assert "permutation" in table
    assert "3 × 40" in table
    written = json.loads(out.read_text())
    assert [(row["case"], row["items"], row["batch"]) for row in written["kernels"]] == [
        ("sidak", 50, None),
        ("sidak", 40, 3),
        ("permutation", 50, None),
        ("permutation", 40, 3),
    ]
    assert written["machine"]["versions"]["jax"]
    assert written["failed"] == []
    assert written["copy_bytes_per_s"] > 1e7
    for row in written["kernels"]:
        assert len(row["seconds"]["tdd"]) == 2
        share = row["traffic_bytes"] / row["steady_s"] / written["copy_bytes_per_s"]
        assert row["bandwidth_share"] == pytest.approx(share)
        assert row["peers"]
        assert all(peer["ratio"] > 0 for peer in row["peers"].values())
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.slow("long")
def test_a_case_that_disagrees_is_not_timed_and_fails_the_command(monkeypatch, capsys):
    def disagree(case, size, options):
        raise Disagreement(f"{case.name}: made to differ")

    monkeypatch.setattr(suites, "measure", disagree)
    with pytest.raises(SystemExit, match="failed, and not timed: sidak"):
        run("kernels", "--only", "sidak", "--sizes", "40", "--quick")
    captured = capsys.readouterr()
    assert "disagrees with a peer: not timed" in captured.out
    assert "made to differ" in captured.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("speed",), "suite must be one of"),
        (("kernels", "--only", "zzz"), "no case begins with 'zzz'"),
        (("kernels", "--rounds", "0"), "rounds must be at least 1"),
        (("kernels", "--sizes", "many"), "sizes: 'many'"),
        (("kernels", "--out", "bench.txt"), "must end in .json"),
    ],
)
def test_bad_options(argv, message):
    with pytest.raises(InputError, match=message):
        run(*argv)


def test_agreement_in_law():
    error = np.full(4, 0.01)
    studies.agree_in_law("FDR", np.full(4, 0.1), error, np.full(4, 0.16), error)
    with pytest.raises(Disagreement, match=r"FDR at \(2,\): 0.10000 against the loop's 0.18000"):
        studies.agree_in_law("FDR", np.full(4, 0.1), error, [0.1, 0.1, 0.18, 0.1], error)
    with pytest.raises(Disagreement):
        studies.agree_in_law("FDR", np.full(4, np.nan), error, np.full(4, 0.1), error)


def measured(monkeypatch, gate, others=()):
    calls, clock = [], [0.0]
    monkeypatch.setattr(studies.time, "perf_counter", lambda: clock[0])

    def ours(number, seed):
        calls.append(("tdd", number, seed))
        clock[0] += 0.002 if seed else 4.0
        return number

    def loop(name):
        def call(number, seed):
            calls.append((name, number, seed))
            clock[0] += 0.02
            return np.zeros((number, 2))

        return call

    found = studies._interleaved(ours, loop("peer"), gate, 500, 100, 10, 3, {name: loop(name) for name in others})
    return found, calls


def test_rounds_of_a_study_are_interleaved_and_the_first_call_is_apart(monkeypatch):
    gated = []
    found, calls = measured(monkeypatch, lambda ours, theirs: gated.append((ours, theirs.shape)), ("other",))
    assert gated == [(100, (10, 2))] * 2
    assert calls[0] == ("tdd", 100, 0)
    rounds = [call for call in calls if call[2] >= 2]
    assert [name for name, _, _ in rounds] == ["tdd", "peer", "other"] * 3
    assert found["per_s"] == pytest.approx(500 / 0.002)
    assert set(found["ratios"]) == {"peer", "other"}
    assert found["ratios"]["peer"] == pytest.approx(500)
    assert found["first_s"] == pytest.approx(4)
    assert found["first_ratio"] == pytest.approx(100 / 4 / (10 / 0.02))
    json.dumps(found)


def test_a_fresh_process_has_no_flags_and_its_failure_is_told(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    seen = subprocess_bench.in_fresh_process({"study": "subprocess_bench.echo", "flags": False, "value": 5})
    assert seen["value"] == 5
    assert seen["xla_flags"] == ""
    assert os.environ["XLA_FLAGS"]
    with pytest.raises(
        RuntimeError, match=r"subprocess_bench\.echo failed in its own process:(.|\n)*unexpected keyword"
    ):
        subprocess_bench.in_fresh_process({"study": "subprocess_bench.echo", "flags": False, "wrong": 5})


def test_interleaved_and_ratio():
    order = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    seconds = harness.interleaved(calls, 3, {"b": 2})
    assert order == ["a", "b", "b"] * 3
    assert [len(values) for values in seconds.values()] == [3, 3]
    assert harness.ratio([2.0, 9.0, 4.0], [1.0, 3.0, 1.0]) == 3.0
