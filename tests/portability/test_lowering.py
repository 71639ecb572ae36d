"""Every kernel is lowered for platforms that this machine lacks: nothing in it belongs to one of them."""

import functools
import re
from types import SimpleNamespace

import contract_registry as registry
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from tdd.kernels import conformal, majorant, platforms
from tdd.models import attention
from tdd.scoring.token_stats import wanted_statistics

PLATFORMS = ("cuda", "rocm", "tpu")
ALLOWED = {"Sharding", "AssumeGatherIndicesInBound"}


def lowered(function, arguments, platform):
    """The program's text; the form for GPUs needs one that is known, which stands in the mesh where there is none."""
    gpu = AbstractDevice("NVIDIA H100 80GB HBM3", 132, "gpu") if platform == "cuda" else None
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=gpu)):
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


@pytest.mark.parametrize("platform", ["cpu", *PLATFORMS])
def test_fused_kernels_are_for_one_device(monkeypatch, platform):
    """XLA cannot divide a kernel between devices; M takes the definition's form, and so does float32 on a GPU."""
    monkeypatch.setattr(platforms, "_accelerators", lambda: frozenset(("gpu", "tpu")))

    def texts(width=128, dtype=jnp.bfloat16, wanted=("log_prob", "rank")):
        lm = SimpleNamespace(readout=lambda params: params, soft_cap=None)
        arrays = (jnp.ones((600, width), dtype), jnp.ones((16, width)), jnp.ones(16, jnp.int32), jnp.ones(16, bool))
        head = lambda *given: wanted_statistics(lm, *given, None, wanted)  # noqa: E731
        return [lowered(function, arrays, platform) for function in (head, platforms.one_device()(head))]

    call = {"cuda": "xla.gpu.triton", "tpu": "tpu_custom_call"}.get(platform)
    apart, together = texts()
    assert not complaints(apart)
    assert call in together if call else not complaints(together)
    for others in (texts(width=100), texts(wanted=("log_prob", "m_entropy"))):
        assert others[0] == others[1]
    assert (call in texts(dtype=jnp.float32)[1] if call else False) == (platform == "tpu")


def test_the_kernel_for_tpus_takes_attention_without_a_prefix(monkeypatch):
    monkeypatch.setattr(platforms, "_accelerators", lambda: frozenset(("tpu",)))
    arrays = (jnp.ones((1, 16, 2, 8)),) * 3
    past = attention.PrefixCache(jnp.ones((1, 4, 2, 8)), jnp.ones((1, 4, 2, 8)), None)

    def fused(dtype=jnp.bfloat16, **options):
        mixed = platforms.one_device()(lambda *qkv: attention.attend(*qkv, dtype=dtype, **options))
        return "tpu_custom_call" in lowered(mixed, arrays, "tpu")

    assert fused()
    assert fused(window=4, soft_cap=5.0)
    assert not fused(past=past)
    assert not fused(window=jnp.int32(4))
    assert not fused(dtype=jnp.float32)


@pytest.mark.slow("long")
@pytest.mark.parametrize(("window", "soft_cap", "groups"), [(None, None, 2), (50, 5.0, 4)])
def test_the_kernel_for_tpus_gives_our_attention_and_its_gradient(window, soft_cap, groups):
    """200 tokens, padded to 256. Weights and values are rounded to bfloat16 in the kernel: 2^-8 of the largest."""
    rng = np.random.default_rng(0)
    shapes = [(2, 200, heads, 64) for heads in (4, groups, groups)]
    arrays = [jnp.asarray(rng.normal(size=shape), jnp.bfloat16).astype(jnp.float32) for shape in shapes]
    arrays[0] /= 8
    cotangent = jnp.asarray(rng.normal(size=(2, 200, 256)), jnp.float32)
    splash = functools.partial(attention._by_splash, dtype=jnp.bfloat16, interpret=True)
    ours = functools.partial(attention._in_blocks, dtype=jnp.float32)
    (mixed, gradients), (expected, expected_gradients) = (
        jax.jit(functools.partial(value_and_pull, functools.partial(form, window=window, soft_cap=soft_cap)))(
            arrays, cotangent
        )
        for form in (splash, ours)
    )
    for found, wanted in zip((mixed, *gradients), (expected, *expected_gradients), strict=True):
        assert float(jnp.abs(found - wanted).max()) < 2**-7 * float(jnp.abs(wanted).max())


def value_and_pull(form, arrays, cotangent):
    value, pull = jax.vjp(lambda *qkv: form(*qkv, None, None), *arrays)
    return value, pull(cotangent)
