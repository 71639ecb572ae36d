"""What the scripts share."""

from benchmarks import harness


def test_finished_seeds_are_kept(tmp_path):
    calls = []

    def measure(seed):
        calls.append(seed)
        return {"seed": seed, "seconds": 0.5}

    assert harness.of_seeds([1, 2], tmp_path / "seeds", measure) == [
        {"seed": 1, "seconds": 0.5},
        {"seed": 2, "seconds": 0.5},
    ]
    assert len(harness.of_seeds([1, 2, 3], tmp_path / "seeds", measure)) == 3
    assert calls == [1, 2, 3]
