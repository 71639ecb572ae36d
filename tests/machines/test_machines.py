"""What decides under which processors and versions the tests are run."""

import random
import tomllib

import gguf_files
import hostile
import instruction_sets
import lower_bounds
import pytest


@pytest.mark.parametrize(
    ("flags", "sets"),
    [
        ("fpu sse4_2 avx avx2 avx512f amx_bf16", ["SSE4_2", "AVX2", "AVX512"]),
        ("fpu sse4_2 avx avx2 avx512_bf16", ["SSE4_2", "AVX2"]),
        ("fp asimd", []),
    ],
)
def test_instruction_sets_of_a_processor(flags, sets):
    assert instruction_sets.available(f"processor : 0\nflags : {flags}\n") == sets
    assert instruction_sets.available("Features : fp asimd\n") == []


def test_a_set_that_is_missing_is_an_error(capsys):
    with pytest.raises(SystemExit) as ended:
        instruction_sets.main(["AVX1024"])
    assert ended.value.code == 2
    assert "AVX1024: this processor has" in capsys.readouterr().err


def test_every_dependency_states_its_lowest_version():
    project = tomllib.loads((lower_bounds.ROOT / "pyproject.toml").read_text())["project"]
    names = {line.partition("==")[0] for line in lower_bounds.constraints(project)}
    assert {"jax", "flax", "transformers", "pytest"} <= names
    project["dependencies"].append("somewhere")
    with pytest.raises(ValueError, match="'somewhere' states no lower bound"):
        lower_bounds.constraints(project)


def test_hostile_files_differ_where_they_say(tmp_path):
    """Every kind of number of a header is found, and each change is one of the file."""
    raw = gguf_files.write_family(tmp_path / "whole.gguf", "llama").read_bytes()
    spots = hostile.places(raw)
    assert all(spots.values())
    assert int.from_bytes(raw[8:16], "little") == len(spots["offset"]) == len(spots["axes"])
    kinds = [hostile.changed_gguf(raw, spots, random.Random(seed)) for seed in range(60)]
    assert {name.split()[0] for name, _ in kinds} >= {"truncated", "offset", "length"}
    assert sum(bytes(changed) != raw for _, changed in kinds) > 50


def test_what_a_trial_calls_wrong():
    def wrong(status, error):
        return hostile.Ended(status, error, 0.0, 0).wrong()

    assert not wrong(0, "")
    assert not wrong(2, "tdd audit: error: a line\n")
    assert wrong(1, "Traceback (most recent call last):\nValueError: x").startswith("traceback: ValueError")
    assert wrong(-9, "").startswith("status -9")
    assert wrong(2, "usage:\ntwo lines\n").startswith("not one line")
    trials = hostile.Trials("kind")
    trials.note("slow", seconds=31)
    trials.note("large", size=3 << 30)
    assert trials.failed == ["slow", "large"]
