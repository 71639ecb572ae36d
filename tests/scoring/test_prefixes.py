"""Sums of log-probabilities behind a shared prefix: against whole sequences, whatever the batches and devices."""

import math

import numpy as np
import pytest
from child_process import run_python
from decoder_specs import REQUIRED
from hypothesis import given
from hypothesis import strategies as st
from scored_models import VOCABULARY, losses_of_tokens, small_model

from tdd.scoring import prefixes as module
from tdd.scoring import programs
from tdd.scoring.devices import find_devices
from tdd.scoring.prefixes import PrefixSums, padded_length, padded_size
from tdd.scoring.token_stats import Tiling


def draw(*lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCABULARY, length).astype(np.int32) for length in lengths]


LIMIT = 64


@pytest.fixture(scope="module")
def model():
    return *small_model(positions=LIMIT), None


@pytest.fixture(scope="module")
def sums(model):
    return made(model)


def made(model, budget=48):
    devices = find_devices("cpu")
    return PrefixSums(model[0], devices.put_params(model[1]), devices, Tiling(16, 32), token_budget=budget)


def reference(model, prefix, suffixes):
    """Of every token of a suffix but its first, in float64 from the logits of each whole sequence."""
    return np.array([-losses_of_tokens(model, prefix, suffix).sum() for suffix in suffixes])


SUFFIXES = draw(5, 9, 8, 2, 7, 7, 9, seed=1)


@pytest.mark.parametrize("before", [1, 11, LIMIT - 9])
def test_sums_are_those_of_whole_sequences(model, sums, before):
    (shared,) = draw(before)
    found = sums(shared, SUFFIXES)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, reference(model, shared, SUFFIXES), rtol=REQUIRED)


def test_one_suffix(model, sums):
    (shared,) = draw(11)
    np.testing.assert_allclose(sums(shared, SUFFIXES[:1]), reference(model, shared, SUFFIXES[:1]), rtol=REQUIRED)


def test_the_same_call_gives_the_same_bits(sums):
    (shared,) = draw(11)
    first = sums(shared, SUFFIXES)
    sums(draw(7, seed=3)[0], SUFFIXES)
    np.testing.assert_array_equal(sums(shared, SUFFIXES), first)


def test_a_prefix_is_computed_once(sums, monkeypatch):
    counted = []
    compute = module._prefix
    monkeypatch.setattr(module, "_prefix", lambda *given: counted.append(1) or compute(*given))
    for seed in (20, 20, 21, 20):
        sums(draw(11, seed=seed)[0], SUFFIXES)
    assert len(counted) == 3


@pytest.mark.slow("long")
def test_shards_of_all_lengths_share_programs(model):
    sums = made(model, budget=96)
    compiled = (module._prefix, module._trunk, programs._head)
    for function in compiled:
        function.clear_cache()  # of what other tests compiled
    for seed, (length, own) in enumerate([(33, 17), (38, 18), (40, 24), (35, 22)]):
        sums(draw(length, seed=seed)[0], draw(*[own] * (4 - seed % 2), seed=seed))
    assert [function._cache_size() for function in compiled] == [1, 2, 1]  # suffixes padded to 24, in batches of 4, 3


def test_memory_errors_halve_the_batches(model, monkeypatch):
    sums, compute, sizes = made(model), module._trunk, []

    def scarce(lm, devices, params, cache, tokens, positions):
        sizes.append(tokens.shape[0])
        if tokens.size > 20:
            raise MemoryError("RESOURCE_EXHAUSTED: out of memory")
        return compute(lm, devices, params, cache, tokens, positions)

    monkeypatch.setattr(module, "_trunk", scarce)
    (shared,) = draw(11)
    found = sums(shared, SUFFIXES)
    np.testing.assert_allclose(found, reference(model, shared, SUFFIXES), rtol=REQUIRED)
    assert sizes[0] == 3
    assert sizes[-1] == 1
    monkeypatch.setattr(module, "_trunk", lambda *given: (_ for _ in ()).throw(MemoryError("RESOURCE_EXHAUSTED")))
    with pytest.raises(MemoryError):
        sums(shared, SUFFIXES)


CODE = """
import json, sys
import numpy as np
from scored_models import VOCABULARY, small_model
from tdd.scoring.devices import find_devices
from tdd.scoring.prefixes import PrefixSums
from tdd.scoring.token_stats import Tiling
lm, params = small_model()
rng = np.random.default_rng(0)
shared = rng.integers(0, VOCABULARY, 11).astype(np.int32)
suffixes = [rng.integers(0, VOCABULARY, 7).astype(np.int32) for _ in range(11)]
found = {}
for name, devices, share in (("1", 1, False), ("4", 4, False), ("shared", 4, True)):
    placed = find_devices(devices=devices, shard_params=share)
    sums = PrefixSums(lm, placed.put_params(params), placed, Tiling(16, 32), token_budget=16)
    found[name] = [sums(shared[:cut], suffixes).tolist() for cut in (5, 11)]
print(json.dumps(found))
"""


@pytest.mark.slow("processes")
def test_one_device_and_several_to_the_last_bit():
    found = run_python(CODE, devices=4)
    assert found["1"][1] != found["1"][0]
    assert found["4"] == found["1"]
    assert found["shared"] == found["1"]


@given(st.integers(1, 3000), st.sampled_from([None, 3000]))
def test_padded_lengths_are_few_and_close(length, limit):
    found = padded_length(length, limit)
    assert length <= found <= max(8, math.ceil(length * 1.125) + 7)
    assert found == padded_length(found, limit)
    assert limit is None or found <= limit


@given(st.integers(1, 500), st.integers(1, 70))
def test_padded_sizes_hold_all_rows(count, most):
    size = padded_size(count, most)
    assert 1 <= size <= most
    batches = -(-count // size)
    assert batches == -(-count // most)
    assert size == most or size <= max(1, 1.5 * -(-count // batches))


def test_few_different_sizes():
    assert len({padded_length(n, None) for n in range(512, 1025)}) == 9
    assert len({padded_length(n, None, steps=2, least=32) for n in range(512, 1025)}) == 3
    assert len({padded_size(n, 64) for n in range(1, 65)}) == 12
