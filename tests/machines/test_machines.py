"""What decides under which processors and versions the tests are run."""

import tomllib

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
