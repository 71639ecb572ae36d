"""The estimate of what a model needs of a device, and the kinds of devices."""

import dataclasses

import jax
import pytest

from tdd.device_kinds import KINDS, DeviceKind, kind_of, named_kind
from tdd.models.budget import estimate, usable
from tdd.models.decoder import init_params
from tdd.models.spec import DecoderSpec, Experts, Mlp
from tdd.validate import InputError

SMALL = DecoderSpec.gpt2(vocab_size=1000, width=64, num_layers=2, num_heads=4, max_length=256)
GPT2 = DecoderSpec.gpt2(vocab_size=50257, width=768, num_layers=12, num_heads=12, max_length=1024)
LIMITS = {"token_budget": 16_384, "tile": 1024}


def test_parameters_are_those_of_the_model():
    found = estimate(SMALL, "bfloat16", KINDS["v5e"], **LIMITS)
    leaves = jax.tree.leaves(jax.eval_shape(lambda: init_params(SMALL, jax.random.key(0))))
    assert found.num_params == sum(leaf.size for leaf in leaves)
    assert found.params_bytes == 2 * found.num_params


def test_the_largest_batch_that_fits():
    narrow = dataclasses.replace(GPT2, vocab_size=5000)  # or the head's tile, whose size is fixed, decides
    whole = estimate(narrow, "bfloat16", KINDS["h200"], **LIMITS)
    assert (whole.batch, whole.tokens, whole.length) == (16, 16_384, 1024)
    assert whole.fits
    tight = DeviceKind("gpu", whole.params_bytes + whole.temporary // 2)
    less = estimate(narrow, "bfloat16", tight, **LIMITS)
    assert 0 < less.batch < 16
    assert less.params_bytes + less.temporary <= less.available
    one_more = estimate(narrow, "bfloat16", KINDS["h200"], token_budget=(less.batch + 1) * 1024, tile=1024)
    assert one_more.params_bytes + one_more.temporary > less.available


def test_jax_takes_a_share_of_the_memory():
    assert usable(KINDS["h200"]).memory == 0.75 * KINDS["h200"].memory
    assert usable(KINDS["v5e"]).memory == int(0.95 * KINDS["v5e"].memory)
    assert usable(DeviceKind("cpu", None)).memory is None


def test_a_model_larger_than_the_device_does_not_fit():
    found = estimate(GPT2, "float32", DeviceKind("gpu", 2**28), **LIMITS)
    assert not found.fits
    assert (found.batch, found.tokens_per_second) == (0, None)


def test_flops_count_products_and_not_the_embedding():
    """GPT-2: 2 (12 L D^2 + V D) and attention, 4 L D T/2; biases, norms and positions are less than 1%."""
    found = estimate(GPT2, "float32", KINDS["h200"], **LIMITS)
    expected = 2 * (12 * 12 * 768**2 + 50257 * 768) + 4 * 12 * 768 * 512
    assert found.flops_per_token == pytest.approx(expected, rel=0.01)


def test_a_token_meets_its_own_experts_only():
    """Eight experts, two of them a token's: six of 3 D F weights a layer are stored, but not multiplied."""
    dense, sparse = (
        estimate(dataclasses.replace(SMALL, mlp=Experts(num, 2, 96, "silu")), "float32", KINDS["h200"], **LIMITS)
        for num in (2, 8)
    )
    routers = SMALL.num_layers * 64 * 6
    assert dense.active_params == dense.num_params
    assert sparse.active_params == dense.active_params + routers
    assert sparse.num_params == sparse.active_params + SMALL.num_layers * 6 * 3 * 64 * 96
    assert sparse.flops_per_token == dense.flops_per_token + 2 * routers
    assert sparse.params_bytes == 4 * sparse.num_params
    assert sparse.temporary == dense.temporary


def test_layers_without_experts_are_met_as_a_whole():
    """One layer of eight experts, two a token, and one as wide as those two: 3 D F weights each, and a router."""
    experts, wide = Experts(8, 2, 96, "silu"), Mlp(192, "silu", gated=True, bias=False)
    kinds = (experts,) * 2, (experts, wide), (wide,) * 2
    several, mixed, dense = (
        estimate(dataclasses.replace(SMALL, mlp=mlps[0], layer_mlps=mlps), "float32", KINDS["h200"], **LIMITS)
        for mlps in kinds
    )
    assert dense.active_params == dense.num_params
    assert mixed.active_params == dense.active_params + 64 * 8
    assert mixed.num_params == mixed.active_params + 6 * 3 * 64 * 96
    assert 2 * mixed.num_params == several.num_params + dense.num_params
    assert mixed.temporary == max(several.temporary, dense.temporary)


def test_speed_is_that_of_the_products_or_of_the_weights():
    fast = estimate(GPT2, "bfloat16", KINDS["h200"], **LIMITS)
    assert fast.tokens_per_second == pytest.approx(0.4 * 989e12 / fast.flops_per_token)
    slow = DeviceKind("gpu", 2**36, peak=1e18, bandwidth=1e9)
    found = estimate(GPT2, "bfloat16", slow, **LIMITS)
    assert found.tokens_per_second == pytest.approx(16_384 * 1e9 / found.params_bytes)
    assert estimate(GPT2, "bfloat16", named_kind("24GB"), **LIMITS).tokens_per_second is None


@pytest.mark.parametrize("length", [0, 257])
def test_a_length_that_the_model_lacks_is_refused(length):
    with pytest.raises(InputError, match=f"length={length} must be at least 1 and at most the model's 256"):
        estimate(SMALL, "float32", KINDS["v5e"], length=length, **LIMITS)


def test_a_cpu_has_no_memory_of_its_own():
    with pytest.raises(InputError, match="name an accelerator"):
        estimate(SMALL, "float32", kind_of(jax.devices("cpu")[0]), **LIMITS)


@pytest.mark.parametrize(
    ("text", "memory"), [("24GB", 24 * 10**9), ("16 GiB", 16 * 2**30), ("8e9", 8 * 10**9), ("H200", 131 * 2**30)]
)
def test_a_device_is_a_name_or_a_size(text, memory):
    assert named_kind(text).memory == memory


@pytest.mark.parametrize("text", ["h300", "-1GB", "12", "1e99", "", "nan"])
def test_other_devices_are_refused(text):
    with pytest.raises(InputError, match=r"is neither one of v4, .* nor a size such as 24GB"):
        named_kind(text)
