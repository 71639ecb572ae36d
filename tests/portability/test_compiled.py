"""The main programs compiled for an H200 and a TPU v5e, and what they may take there. Times are estimates."""

import pytest

from tdd.device_kinds import KINDS
from tdd.models.budget import estimate
from tdd.models.spec import DecoderSpec

pytestmark = pytest.mark.slow("packaging")

PROGRAMS = {
    "h200": ("resample 775", "token statistics, GPT-2, bfloat16", "gradient norms, GPT-2", "bh", "conformal", "hommel"),
    "v5e": ("token statistics, GPT-2, bfloat16", "bh", "conformal"),
}
MIB = 2**20


@pytest.fixture(scope="module")
def records(compiled_elsewhere):
    """A function of a target; a compiler that is missing skips the tests of its own targets."""
    return lambda target: compiled_elsewhere(target, PROGRAMS[target])


def of(records, target, beginning):
    return next(record for (_, name), record in records(target).items() if name.startswith(beginning))


@pytest.mark.parametrize(("target", "program"), [(target, name) for target in PROGRAMS for name in PROGRAMS[target]])
def test_it_compiles_fits_and_calls_no_library_but_the_compilers(records, target, program):
    record = of(records, target, program)
    assert "refused" not in record
    assert record["fits"]
    assert not record["has_f64"]
    assert not record["foreign_calls"]


@pytest.mark.parametrize(
    ("target", "program", "milliseconds", "temporary"),
    [
        ("h200", "token statistics, GPT-2, bfloat16", 12.5, 500 * MIB),
        ("h200", "hommel", 3, 100 * MIB),
        ("h200", "bh", 0.2, 50 * MIB),
        ("h200", "conformal", 0.1, 50 * MIB),
    ],
)
def test_upper_bounds(records, target, program, milliseconds, temporary):
    record = of(records, target, program)
    assert record["seconds"] < 1e-3 * milliseconds
    assert record["temporary"] < temporary


@pytest.mark.parametrize("target", PROGRAMS)
def test_the_estimate_of_memory_is_at_least_what_the_compiler_takes(records, target):
    """And at most three times as much: `tdd info --model` would refuse what fits."""
    spec = DecoderSpec.gpt2(vocab_size=50257, width=768, num_layers=12, num_heads=12, max_length=1024)
    estimated = estimate(spec, "bfloat16", KINDS["h200"], token_budget=16_384, tile=1024).temporary
    compiled = of(records, target, "token statistics, GPT-2, bfloat16")["temporary"]
    assert compiled <= estimated <= 3 * compiled


def test_a_study_is_not_bound_by_launches(records):
    record = of(records, "h200", "resample 775")
    assert record["launch_seconds"] < 0.5 * record["seconds"]
    assert record["rate"] > 100e6


def test_p_values_take_few_launches(records):
    assert of(records, "h200", "conformal")["launches"] <= 20


def test_the_host_is_not_waited_for(records):
    assert of(records, "h200", "token statistics, GPT-2, bfloat16")["waits"] == 0
    assert of(records, "h200", "gradient norms, GPT-2")["waits"] == 0
