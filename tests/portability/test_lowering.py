"""Every kernel is lowered for platforms that this machine lacks: nothing in it belongs to one of them."""

import re

import contract_registry as registry
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import conformal, majorant
from tdd.models import attention

PLATFORMS = ("cuda", "rocm", "tpu")
ALLOWED = {"Sharding", "AssumeGatherIndicesInBound"}


def lowered(function, arguments, platform):
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def complaints(text):
    """What a program for an accelerator must not have: calls of a platform's library, callbacks, double precision."""
    calls = set(re.findall(r"custom_call @([\w$.]+)", text)) | set(re.findall(r'call_target_name = "([^"]+)"', text))
    return sorted(calls - ALLOWED) + sorted(set(re.findall(r"[<x](f64)>", text)))


@pytest.mark.slow("grid")
@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.id)
def test_every_kernel_is_lowered_for_every_platform(entry):
    rng = np.random.default_rng(0)
    arrays = registry.to_device(entry.make(rng, registry.NUM_CALIBRATION, registry.NUM_TEST))
    traced = jax.jit(lambda arrays: entry.call(**arrays)).trace(arrays)
    for platform in PLATFORMS:
        assert not complaints(traced.lower(lowering_platforms=(platform,)).as_text())


def test_what_belongs_to_one_platform_is_found():
    """The broken twins: double precision, a library's call, a callback."""
    with jax.enable_x64(True):
        assert complaints(lowered(jnp.sin, (jnp.ones(3, jnp.float64),), "tpu")) == ["f64"]
    assert complaints(lowered(jnp.linalg.qr, (jnp.ones((3, 3)),), "cuda"))

    def calls_back(x):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(ValueError, match="different from the lowering platform cuda"):
        lowered(calls_back, (jnp.ones(3),), "cuda")


@pytest.mark.parametrize("platform", ["cpu", *PLATFORMS])
def test_p_values_are_corrected_wherever_division_is_not_exact(platform):
    def p_values(calibration, scores):
        return conformal.p_values(conformal.rank(calibration, scores, null="nonmember"))

    text = lowered(p_values, (jnp.arange(9.0), jnp.arange(4.0)), platform)
    assert ("bitcast_convert" in text and "shift_left" in text) == (platform != "cpu")


@pytest.mark.parametrize("platform", ["cpu", *PLATFORMS])
def test_the_majorant_takes_steps_in_the_logarithm_off_cpu(platform):
    text = lowered(majorant.concave_majorant, (jnp.arange(64.0), jnp.arange(64)), platform)
    assert ("dense<128> : tensor<i32>" in text) == (platform == "cpu")  # the bound of a loop over 2 s steps


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("platform", ["cpu", "rocm", "tpu"])
def test_attention_takes_its_factors_in_the_type_of_the_weights(platform, dtype):
    arrays = (jnp.ones((1, 16, 2, 8)),) * 3
    text = lowered(lambda *qkv: attention.attend(*qkv, dtype=jnp.dtype(dtype)), arrays, platform)
    assert ("bf16" in text) == (dtype == "bfloat16" and platform != "cpu")
    assert ("optimization_barrier" in text) == (platform == "cpu")
