"""The head's gradients beyond their contract: confident models, memory, NaN, low precision."""

import jax
import jax.numpy as jnp
import numpy as np
import references_gradient as ref
import rounding

from tdd.kernels.grad_norm_head import head_gradients


def case(batch=3, length=8, vocabulary=50, width=6, seed=0):
    rng = np.random.default_rng(seed)
    weights = np.ones((batch, length), np.float32)
    weights[:, -1] = 0
    return {
        "hidden": rng.normal(size=(batch, length, width)).astype(np.float32),
        "readout": rng.normal(size=(vocabulary, width)).astype(np.float32),
        "tokens": rng.integers(0, vocabulary, (batch, length)).astype(np.int32),
        "weights": weights,
    }


def certain():
    """Hidden states along the row of the target, so long that 1 - p is about 1e-9."""
    arrays = case(width=40)
    arrays["readout"] *= 0.7
    arrays["hidden"] = arrays["readout"][np.roll(arrays["tokens"], -1, axis=1)] * 1.5
    return arrays


def test_a_text_that_is_known_by_heart_keeps_its_digits():
    arrays = certain()
    expected = ref.head(**arrays)
    with jax.default_matmul_precision("highest"):
        found = head_gradients(**arrays, chunk=16)
    size = np.sqrt(expected["sqnorm"])
    assert (size < 1e-3).all()
    np.testing.assert_allclose(np.sqrt(found.sqnorm), size, rtol=1e-4)
    # the plain form p - 1 has none left
    logits = arrays["hidden"] @ arrays["readout"].T
    delta = np.array(jax.nn.softmax(logits, axis=-1))
    targets = np.roll(arrays["tokens"], -1, axis=1)[..., None]
    np.put_along_axis(delta, targets, np.take_along_axis(delta, targets, -1) - np.float32(1), -1)
    naive = ref.readout_gradients(delta * arrays["weights"][..., None], arrays["hidden"])
    assert (np.abs(np.sqrt(np.square(naive).sum((1, 2))) / size - 1) > 1e-3).any()


def test_logits_that_rise_from_block_to_block():
    arrays = case()
    arrays["readout"] *= np.linspace(0.01, 30, 50, dtype=np.float32)[:, None]
    expected = ref.head(**arrays)
    # an exponent is off by the roundings of its logit, and the rest by a product over the vocabulary
    logits = (np.abs(arrays["hidden"]) @ np.abs(arrays["readout"]).T).max()
    count = {"roundings": 6 + 50 + 2 * 4}
    for chunk in (7, 50):
        found = head_gradients(**arrays, chunk=chunk)
        rounding.assert_close(found.sqnorm, expected["sqnorm"], **count, scale=logits * np.max(expected["sqnorm"]))
        rounding.assert_close(found.hidden, expected["hidden"], **count, scale=logits * np.max(expected["hidden"]))


def test_nan_stays_in_its_text():
    arrays = case()
    arrays["hidden"][1, 2] = np.nan
    found = head_gradients(**arrays)
    np.testing.assert_array_equal(np.isnan(found.sqnorm), [False, True, False])


def test_no_weight_no_gradient():
    arrays = case()
    arrays["weights"][:] = 0
    found = head_gradients(**arrays)
    assert not np.any(found.hidden)
    assert not np.any(found.sqnorm)
    assert not np.any(found.at_tokens)


def test_bfloat16_readout():
    arrays = case()
    low = {**arrays, "readout": jnp.asarray(arrays["readout"], jnp.bfloat16)}
    low["hidden"] = jnp.asarray(arrays["hidden"], jnp.bfloat16)
    rounded = {k: np.asarray(low[k], np.float32) for k in ("readout", "hidden")}
    found, expected = head_gradients(**low), ref.head(**{**arrays, **rounded})
    assert found.hidden.dtype == jnp.float32
    np.testing.assert_allclose(np.sqrt(found.sqnorm), np.sqrt(expected["sqnorm"]), rtol=1e-2)


def test_memory_is_that_of_blocks():
    """B T = 512 positions, V = 20,000, D = 32: the logits would be 512 * 20,000 * 4 = 41 MB and the gradients of the
    readout 8 * 20,000 * 32 * 4 = 20 MB. A block of 256 columns is 0.5 MB, kept a few times over (logits, exponentials,
    their transposed or packed copies); [B, T, T] is 0.13 MB and [B, T, D] 0.07 MB, each a few times.
    """
    shapes = {
        "hidden": jax.ShapeDtypeStruct((8, 64, 32), jnp.float32),
        "readout": jax.ShapeDtypeStruct((20_000, 32), jnp.float32),
        "tokens": jax.ShapeDtypeStruct((8, 64), jnp.int32),
        "weights": jax.ShapeDtypeStruct((8, 64), jnp.float32),
    }
    compiled = jax.jit(lambda arrays: head_gradients(**arrays, chunk=256)).lower(shapes).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 5e6
