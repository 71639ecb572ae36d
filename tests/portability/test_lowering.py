"""Every kernel is lowered for platforms that this machine lacks: nothing in it belongs to one of them."""

import dataclasses
import functools
import re
from types import SimpleNamespace

import contract_registry as registry
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from benchmarks.aot import models
from tdd.kernels import conformal, majorant, platforms, resample, resample_pool
from tdd.lab.step import Weights, update
from tdd.models import attention
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import Experts
from tdd.scoring.token_stats import wanted_statistics

PLATFORMS = ("cuda", "rocm", "tpu")
ALLOWED = {"Sharding", "AssumeGatherIndicesInBound"}


def texts_of(function, arguments, *platforms):
    """The program's text for each platform, traced once; the form for GPUs needs one that is known, which stands in the
    mesh where there is none."""
    gpu = AbstractDevice("NVIDIA H100 80GB HBM3", 132, "gpu") if "cuda" in platforms else None
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=gpu)):
        traced = jax.jit(function).trace(*arguments)
        return {platform: traced.lower(lowering_platforms=(platform,)).as_text() for platform in platforms}


def lowered(function, arguments, platform):
    return texts_of(function, arguments, platform)[platform]


def complaints(text):
    """What a program for an accelerator must not have: calls of a platform's library, callbacks, double precision."""
    calls = set(re.findall(r"custom_call @([\w$.]+)", text)) | set(re.findall(r'call_target_name = "([^"]+)"', text))
    return sorted(calls - ALLOWED) + sorted(set(re.findall(r"[<x](f64)>", text)))


def rounded_products(text):
    """Products with a factor in float32 that a GPU would round to TF32, and a TPU to bfloat16."""
    products = re.findall(r"stablehlo\.dot_general.*", text)
    wide = [line for line in products if "xf32>" in line.rpartition(": (")[2].partition(") ->")[0]]
    return [line for line in wide if "algorithm" not in line and "HIGHEST" not in line]


@pytest.mark.slow("grid")
@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.id)
def test_every_kernel_is_lowered_for_every_platform(entry):
    rng = np.random.default_rng(0)
    arrays = registry.to_device(entry.make(rng, registry.NUM_CALIBRATION, registry.NUM_TEST))
    traced = jax.jit(lambda arrays: entry.call(**arrays)).trace(arrays)
    for platform in PLATFORMS:
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert not complaints(text)
        assert not rounded_products(text)


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
def test_ranks_are_found_without_a_loop_on_a_gpu(platform):
    for null in ("nonmember", "member"):
        rank = functools.partial(conformal.rank, null=null)
        text = lowered(rank, (jnp.arange(99.0), jnp.arange(40.0)), platform)
        assert ("stablehlo.while" in text) == (platform in ("cpu", "tpu"))


def test_the_majorant_takes_steps_in_the_logarithm_off_cpu():
    texts = texts_of(majorant.concave_majorant, (jnp.arange(64.0), jnp.arange(64)), "cpu", *PLATFORMS)
    for platform, text in texts.items():
        assert ("dense<128> : tensor<i32>" in text) == (platform == "cpu")  # the bound of a loop over 2 s steps


def model_programs(family, dtype, num_experts=0, training=True):
    """Token statistics, gradient norms and an update of training of a small model."""
    spec = models.spec(family, models.SMALL)
    if num_experts:
        spec = dataclasses.replace(spec, mlp=Experts(num_experts, 2, 32, "silu"))
    lm, optimizer = language_model(spec), optax.scale_by_adam()
    params = jax.eval_shape(lambda key: init_params(spec, key, jnp.dtype(dtype)), jax.random.key(0))
    tokens, mask = (jax.ShapeDtypeStruct((2, 12), kind) for kind in (jnp.int32, jnp.bool_))
    programs = {}
    if training:
        wide = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), params)
        arguments = wide, jax.eval_shape(optimizer.init, wide), tokens, mask, jax.ShapeDtypeStruct((), jnp.float32)
        step = functools.partial(update, lm, optimizer, Weights(compute_dtype=dtype), None)
        programs["training"] = step, arguments
    return {
        **programs,
        "statistics": (models.token_statistics(lm), (params, tokens, mask)),
        "norms": (models.gradient_norms(lm), (params, tokens, mask)),
        "one by one": (models.gradient_norms(dataclasses.replace(lm, grad_sqnorm=None)), (params, tokens, mask)),
    }


@pytest.mark.parametrize(
    ("family", "num_experts"), [("gpt2", 0), pytest.param("llama", 0, marks=pytest.mark.slow("grid")), ("llama", 4)]
)
def test_products_of_a_float32_model_are_float32(family, num_experts):
    """In training, which comes first here, they are not: the broken twin, for one model."""
    twin = (family, num_experts) == ("gpt2", 0)
    programs = model_programs(family, "float32", num_experts, training=twin)
    for name, program in programs.items():
        for platform, text in texts_of(*program, "cuda", "tpu").items():
            assert bool(rounded_products(text)) == (name == "training"), (name, platform)


def test_products_of_16_bits_stay_fast(monkeypatch):
    monkeypatch.setattr(platforms, "_accelerators", lambda: frozenset())
    for name, program in model_programs("llama", "bfloat16").items():
        text = lowered(*program, "tpu")
        narrow = [line for line in re.findall(r"stablehlo\.dot_general.*", text) if "xbf16>" in line]
        assert narrow, name
        assert not [line for line in narrow if "HIGHEST" in line], name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("platform", ["cpu", "rocm", "tpu"])
def test_attention_takes_its_factors_in_the_type_of_the_weights(platform, dtype):
    arrays = (jnp.ones((1, 16, 2, 8)),) * 3
    text = lowered(lambda *qkv: attention.attend(*qkv, dtype=jnp.dtype(dtype)), arrays, platform)
    assert ("bf16" in text) == (dtype == "bfloat16" and platform != "cpu")
    assert ("optimization_barrier" in text) == (platform == "cpu")


def test_fused_kernels_are_for_one_device(monkeypatch):
    """XLA cannot divide a kernel between devices; M takes the definition's form, and so does float32 on a GPU."""
    monkeypatch.setattr(platforms, "_accelerators", lambda: frozenset(("gpu", "tpu")))
    every = "cpu", *PLATFORMS

    def texts(width=128, dtype=jnp.bfloat16, wanted=("log_prob", "rank")):
        lm = SimpleNamespace(readout=lambda params: params, soft_cap=None)
        shapes = ((600, width), dtype), ((16, width), jnp.float32), ((16,), jnp.int32), ((16,), bool)
        arrays = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
        head = lambda *given: wanted_statistics(lm, *given, None, wanted)  # noqa: E731
        return [texts_of(function, arrays, *every) for function in (head, platforms.one_device()(head))]

    apart, together = texts()
    of_float32 = texts(dtype=jnp.float32)[1]
    for platform in every:
        call = {"cuda": "xla.gpu.triton", "tpu": "tpu_custom_call"}.get(platform)
        assert not complaints(apart[platform])
        assert call in together[platform] if call else not complaints(together[platform])
        assert (call in of_float32[platform] if call else False) == (platform == "tpu")
    for others in (texts(width=100), texts(wanted=("log_prob", "m_entropy"))):
        assert others[0] == others[1]


def test_tables_of_a_study_take_one_kernel_on_one_gpu(monkeypatch):
    monkeypatch.setattr(platforms, "_accelerators", lambda: frozenset(("gpu",)))
    pool = resample_pool.prepare(np.arange(9.0), np.arange(9) % 2 == 0)
    draw = functools.partial(resample.draw, jax.tree.map(jnp.asarray, pool), resample_pool.half_split(4, 5))

    def fused(draw, lanes, platform="cuda"):
        text = lowered(lambda words: draw(words), (jnp.zeros((2, lanes), jnp.uint32),), platform)
        assert set(complaints(text)) <= {"__gpu$xla.gpu.triton"}
        return "xla.gpu.triton" in text

    alone = platforms.one_device()(draw)
    assert fused(alone, 256)
    assert not fused(draw, 256)  # XLA may divide it between devices
    assert not fused(alone, 100)
    assert not fused(alone, 256, "tpu")
    monkeypatch.setattr(platforms, "all_gpus_since_ampere", lambda: False)
    assert not fused(alone, 256)


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
    assert not fused(sinks=jnp.ones((1, 16, 2)))
    assert not fused(slopes=(0.5, 0.25))
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
