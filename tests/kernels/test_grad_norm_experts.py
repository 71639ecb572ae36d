"""Blocks of experts beyond their contract: the layout, plain cotangents, low precision, one row's reach."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding

from tdd.kernels import grad_norm_experts
from tdd.kernels.grad_norm_experts import dense, from_blocks, in_blocks, to_blocks

B, T, E = 3, 20, 4


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def drawn(seed=0, num_slots=B * T):
    return np.random.default_rng(seed).integers(0, E, num_slots).astype(np.int32)


@pytest.mark.parametrize("expert", [drawn(), np.full(9, 2, np.int32), drawn(0, 1)])
def test_every_slot_has_a_row_among_its_expert_s(expert):
    arranged = jax.jit(lambda expert: in_blocks(expert, num_experts=E, rows=4))
    blocks = jax.tree.map(np.asarray, arranged(expert))
    place, slot = blocks.place, blocks.slot.reshape(-1)
    np.testing.assert_array_equal(slot[place], np.arange(len(expert)))
    assert (np.delete(slot, place) == len(expert)).all()
    np.testing.assert_array_equal(blocks.owner[place // 4], expert)
    assert blocks.used == sum(-(-np.sum(expert == e) // 4) for e in range(E))
    assert (blocks.owner[blocks.used :] == E).all()
    for e in range(E):
        assert (np.diff(place[expert == e]) == 1).all(), "in their own order, without gaps"


@pytest.mark.parametrize(("num_slots", "rows"), [(1, 8), (1000, 32), (4 * 4 * 512, 512), (10**6, 512)])
def test_blocks_are_a_quarter_of_an_expert_s_slots(num_slots, rows):
    shapes = jax.eval_shape(lambda: in_blocks(jnp.zeros(num_slots, jnp.int32), num_experts=E))
    assert shapes.slot.shape[1] == rows
    assert shapes.slot.size <= num_slots + E * rows


def whole(seed, *shape):
    """Whole numbers, whose products and sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def of_slots(inputs, kernel, probe, expert):
    blocks = in_blocks(jnp.asarray(expert), num_experts=E, rows=4)
    return from_blocks(dense(to_blocks(inputs, blocks), kernel, probe, blocks), blocks)


@jax.jit
def value_and_pulled(inputs, kernel, expert, cotangent):
    """The value, the cotangents of inputs and kernel, and the norms."""
    probe = jnp.zeros(B)
    value, pull = jax.vjp(lambda *arrays: of_slots(*arrays, expert), inputs, kernel, probe)
    return value, *pull(cotangent)


def test_value_and_cotangents_are_those_of_the_plain_operation():
    inputs, kernel, expert, cotangent = whole(0, B * T, 5), whole(1, E, 5, 3), drawn(), whole(2, B * T, 3)
    expected = np.einsum("ni,nio->no", inputs, kernel[expert])
    of_kernel = np.einsum("ni,no,ne->eio", inputs, cotangent, expert[:, None] == np.arange(E))
    pulled = np.einsum("no,nio->ni", cotangent, kernel[expert])
    found = value_and_pulled(inputs, kernel, expert, cotangent)
    chex.assert_trees_all_equal(found[:3], (expected, pulled, of_kernel))


def test_slots_of_one_token_share_its_row():
    tokens, expert = whole(0, 6, 3), drawn(1, 12)
    blocks = jax.jit(lambda expert: in_blocks(expert, num_experts=E, rows=4))(expert)
    rows, pull = jax.vjp(lambda tokens: to_blocks(tokens, blocks), tokens)
    np.testing.assert_array_equal(from_blocks(rows, blocks), np.repeat(tokens, 2, axis=0))
    cotangent = whole(1, *rows.shape)
    each = np.asarray(from_blocks(cotangent, blocks)).reshape(6, 2, 3)
    np.testing.assert_array_equal(pull(cotangent)[0], each.sum(1))


def test_a_broken_row_stays_alone():
    inputs, kernel, expert, cotangent = whole(0, B * T, 5), whole(1, E, 5, 3), drawn(), whole(2, B * T, 3)
    broken = inputs.copy()
    broken[T + 3] = np.nan
    value, *_, expected = map(np.asarray, value_and_pulled(inputs, kernel, expert, cotangent))
    found, *_, norms = map(np.asarray, value_and_pulled(broken, kernel, expert, cotangent))
    np.testing.assert_array_equal(np.isnan(found).any(1), np.arange(B * T) == T + 3)
    np.testing.assert_array_equal(np.delete(found, T + 3, axis=0), np.delete(value, T + 3, axis=0))
    np.testing.assert_array_equal(norms, np.where(np.arange(B) == 1, np.nan, expected))


def test_low_precision_keeps_dtypes_and_sums_in_float32():
    inputs, kernel, expert = normal(0, B * T, 24), normal(1, E, 24, 18).astype(jnp.bfloat16), drawn()
    cotangent = normal(2, B * T, 18)
    value, of_inputs, of_kernel, norms = value_and_pulled(inputs, kernel, expert, cotangent)
    assert [x.dtype for x in (value, of_inputs, of_kernel, norms)] == ["float32", "float32", "bfloat16", "float32"]
    x, g = (np.asarray(x.astype(jnp.bfloat16), np.float64).reshape(B, T, -1) for x in (inputs, cotangent))
    own = expert.reshape(B, T, 1) == np.arange(E)
    exact = np.square(np.einsum("bti,bto,bte->beio", x, g, own)).sum((1, 2, 3))
    terms = np.einsum("bti,bto,bte->beio", abs(x), abs(g), own)  # of which a product of 24 and one of 18 are made
    rounding.assert_close(norms, exact, roundings=T + 24 + 18, scale=np.square(terms).sum((1, 2, 3)))


def test_a_norm_needs_the_pairs_across_blocks(monkeypatch):
    """One expert for all: an example's slots fill five blocks. Without the pairs across them the norm is another."""
    arrays, expert = (whole(0, B * T, 5), whole(1, E, 5, 3)), np.ones(B * T, np.int32)
    cotangent = whole(2, B * T, 3)
    exact = np.square(np.einsum("bti,bto->bio", arrays[0].reshape(B, T, 5), cotangent.reshape(B, T, 3))).sum((1, 2))

    np.testing.assert_array_equal(value_and_pulled(*arrays, expert, cotangent)[3], exact)
    # the loop over the later blocks of a group is the only one that begins at a traced number
    plain = grad_norm_experts.lax.fori_loop
    monkeypatch.setattr(
        grad_norm_experts.lax, "fori_loop", lambda i, n, f, x: plain(i, n, f, x) if isinstance(i, int) else x
    )
    traced_anew = jax.jit(lambda *given: value_and_pulled.__wrapped__(*given))
    without = traced_anew(*arrays, expert, cotangent)[3]
    assert (without != exact).all()


def test_no_gradient_of_a_weight_and_no_kernel_for_each_row_in_memory():
    """N = 4,096 slots, 16 experts of 64 x 256 (1 MB): rows in and out of 5 N / 4 are 1.3 and 5.2 MB, their cotangents
    likewise; one kernel for each slot would be 268 MB, one weight gradient an example 8 MB.
    """
    inputs, kernel, probe = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((4096, 64), (16, 64, 256), (8,)))

    def norms(inputs, kernel, probe, expert, cotangent):
        blocks = in_blocks(expert, num_experts=16)
        forward = lambda x, p: dense(to_blocks(x, blocks), kernel, p, blocks)  # noqa: E731
        value, pull = jax.vjp(forward, inputs, probe)
        return pull(cotangent[:, None, :] + value)

    expert = jax.ShapeDtypeStruct((4096,), jnp.int32)
    shapes = jax.eval_shape(lambda e: in_blocks(e, num_experts=16), expert)
    cotangent = jax.ShapeDtypeStruct((shapes.slot.shape[0], 256), jnp.float32)
    compiled = jax.jit(norms).lower(inputs, kernel, probe, expert, cotangent).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 24e6
