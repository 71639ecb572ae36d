"""On an accelerator: the numbers of a CPU, to the bit where they are counts, else within the type's rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.aot import models
from tdd.kernels import conformal, local_fdr, platforms
from tdd.models import attention
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.study import resample

pytestmark = pytest.mark.gpu


def on_cpu(function, *arguments):
    with jax.default_device(jax.devices("cpu")[0]):
        return jax.jit(function)(*jax.device_put(arguments, jax.devices("cpu")[0]))


def test_p_values_to_the_bit():
    rng = np.random.default_rng(0)
    scores = jnp.asarray(rng.normal(size=5_000), jnp.float32)

    def p_values(calibration, scores):
        return conformal.p_values(conformal.rank(calibration, scores, null="nonmember"))

    for n in (9, 999, 4_321):
        np.testing.assert_array_equal(jax.jit(p_values)(scores[:n], scores), on_cpu(p_values, scores[:n], scores))


def test_studies_to_the_bit():
    rng = np.random.default_rng(0)
    member = np.arange(400) < 200
    scores = rng.normal(size=400) - member
    options = {"alphas": [0.1, 0.2], "repetitions": 10_000, "key": jax.random.key(0)}
    here, there = (resample(scores, member, devices=jax.devices(name)[:1], **options) for name in (None, "cpu"))
    np.testing.assert_array_equal(here.fdr, there.fdr)
    np.testing.assert_array_equal(here.power, there.power)


def test_local_fdr():
    p = jnp.asarray(np.random.default_rng(0).random(2_000) ** 3, jnp.float32)
    rates = lambda p: local_fdr.local_fdr(p).local_fdr  # noqa: E731
    np.testing.assert_allclose(jax.jit(rates)(p), on_cpu(rates, p), rtol=1e-5)


def test_a_float32_product_is_accurate_to_float32():
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(200, 768)).astype(np.float32) for _ in range(2))
    exact = left.astype(float) @ right.T.astype(float)
    found = jax.jit(lambda *given: platforms.product("nd,vd->nv", *given))(left, right)
    assert np.abs(found - exact).max() < 1e-4  # TF32 is off by .05


def test_gradient_norms_of_a_float32_model_are_those_of_a_cpu():
    lm = language_model(models.spec("gpt2", models.SMALL))
    params = init_params(lm.spec, jax.random.key(0))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, lm.vocab_size, (3, 40)), jnp.int32)
    norms = models.gradient_norms(lm)
    arguments = params, tokens, jnp.ones(tokens.shape, bool)
    found, exact = jax.jit(norms)(*arguments).total, on_cpu(norms, *arguments).total
    np.testing.assert_allclose(found, exact, rtol=2e-5)


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("groups", [4, 2])
def test_attention_in_16_bits_is_near_float32(groups, window):
    rng = np.random.default_rng(0)
    query, key, value = (
        jnp.asarray(rng.normal(size=(2, 512, count, 64)), jnp.bfloat16).astype(jnp.float32)
        for count in (4, groups, groups)
    )
    mixed = lambda *qkv: attention.attend(*qkv, dtype=jnp.bfloat16, window=window)  # noqa: E731
    found, exact = jax.jit(mixed)(query / 8, key, value), on_cpu(mixed, query / 8, key, value)
    assert float(jnp.abs(jnp.asarray(np.asarray(found) - np.asarray(exact))).max()) < 0.03
