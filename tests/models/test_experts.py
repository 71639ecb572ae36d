"""The mixture of experts against every expert on every token."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from decoder_specs import SPECS, VOCABULARY, perturbed_model, roundings

from tdd.models import decoder, experts
from tdd.models.experts import clamped_gate, mixture, route
from tdd.models.spec import ClampedGate, Experts

WIDTH = 6
CHOICES = [
    Experts(5, 2, 7, "silu"),
    Experts(5, 3, 7, "silu", renormalised=False),
    Experts(3, 3, 4, "silu"),
    Experts(5, 2, 7, "silu", bias=True),
    Experts(4, 2, 7, "silu", bias=True, clamped=ClampedGate(1.702, 0.8)),
]


def kernels_of(choice, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(size=s), dtype) for name, s in choice.kernel_shapes(WIDTH).items()}


def biases_of(choice, seed=2):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(size=s), np.float32) for name, s in choice.bias_shapes(WIDTH).items()}


def inputs_of(rows=3, length=11, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, length, WIDTH)).astype(np.float32)


routed = jax.jit(route, static_argnums=1, static_argnames=("renormalised", "groups", "kept_groups", "scale"))


@functools.partial(jax.jit, static_argnums=0)
def ours(choice, kernels, inputs, biases=None):
    with jax.default_matmul_precision("highest"):
        return mixture(choice, jax.nn.silu, kernels, inputs, None, biases or {})


compiled_logits = jax.jit(lambda lm, params, tokens: lm.logits(params, tokens), static_argnums=0)


def close(found, expected, lm):
    """Both are float32, so that each may be off by its chain of roundings."""
    chain = 2 * roundings(lm.spec, expected.shape[1])
    rounding.assert_close(found, expected, roundings=chain, scale=np.abs(expected).max())


def test_experts_lie_in_the_groups_with_the_largest_members():
    """Of three pairs the second and third hold the two largest; the next largest lies in the first."""
    scores = np.log(np.float32([[[0.2, 0.19, 0.05, 0.21, 0.3, 0.05]]]))
    weights, chosen = routed(scores, 3, renormalised=False, groups=3, kept_groups=2, scale=2.0)
    assert chosen.tolist() == [[[4, 3, 2]]]
    np.testing.assert_allclose(weights, [[[0.6, 0.42, 0.1]]], rtol=1e-6)
    assert routed(scores, 3, renormalised=False)[1].tolist() == [[[4, 3, 0]]]
    every = routed(scores, 3, renormalised=False, groups=3, kept_groups=3)
    assert every[1].tolist() == [[[4, 3, 0]]]


def test_corrected_choices_leave_the_weights_alone():
    """The last pair wins by its correction, and its best expert, least by probability, is chosen with that weight."""
    scores, correction = np.array([[[2.0, -1.0, 1.0, 0.5, -2.0, 0.0]]]), np.array([0, 0, 0, 0, 1.5, 0.5])
    p = 1 / (1 + np.exp(-scores[0, 0]))
    given = {"groups": 3, "kept_groups": 2, "correction": np.float32(correction)}
    weights, chosen = routed(np.float32(scores), 3, renormalised=True, scale=2.5, **given)
    assert chosen.tolist() == [[[4, 5, 2]]]
    np.testing.assert_allclose(weights[0, 0], 2.5 * p[[4, 5, 2]] / p[[4, 5, 2]].sum(), rtol=1e-6)


def reference(choice, kernels, inputs, biases=None):
    """Every expert on every token, in float64; of a token's probabilities all but the k largest become 0."""
    x, router, mlp_in, mlp_out = (
        np.asarray(a, np.float64) for a in (inputs, *(kernels[name] for name in ("router", "mlp_in", "mlp_out")))
    )
    b = {name: np.asarray((biases or {}).get(name, 0), np.float64) for name in ("router", "mlp_in", "mlp_out")}
    scores = x @ router + b["router"]
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    p = np.where(p >= np.sort(p, axis=-1)[..., -choice.top_k, None], p, 0)
    if choice.renormalised:
        p /= p.sum(-1, keepdims=True)
    gate, up = np.split(np.einsum("btd,edf->btef", x, mlp_in) + b["mlp_in"], 2, axis=-1)
    inner = gate / (1 + np.exp(-gate)) * up if choice.clamped is None else clamped_reference(choice.clamped, gate, up)
    return np.einsum("bted,bte->btd", np.einsum("btef,efd->bted", inner, mlp_out) + b["mlp_out"], p)


def clamped_reference(clamped, gate, up):
    """One number at a time."""
    found = np.empty(gate.shape)
    for place in np.ndindex(gate.shape):
        g = min(float(gate[place]), clamped.limit)
        u = min(max(float(up[place]), -clamped.limit), clamped.limit)
        found[place] = g / (1 + math.exp(-clamped.alpha * g)) * (u + 1)
    return found


def test_clamped_gate():
    """On both sides of every limit, where a gate is limited from above alone."""
    gate, up = (np.asarray(x, np.float32) for x in np.meshgrid(*[[-9.0, -7.0, -1.5, 0.0, 0.3, 7.0, 9.0]] * 2))
    clamped = ClampedGate(1.702, 7.0)
    expected = clamped_reference(clamped, gate, up)
    found = np.asarray(clamped_gate(clamped, jnp.asarray(gate), jnp.asarray(up)))
    rounding.assert_close(found, expected, roundings=12, scale=np.maximum(np.abs(expected), np.abs(gate)))
    assert found[0, 0] != found[0, 1], "a gate below the limit's opposite is not clipped"
    assert (found[:, -1] == found[:, -2]).all()
    assert (found[0] == found[1]).all()
    assert (found[-1] == found[-2]).all()


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("shape", [(3, 11), (1, 1), (2, 60)])
def test_mixture(choice, shape):
    kernels, inputs = kernels_of(choice), inputs_of(*shape)
    biases = biases_of(choice)
    expected = reference(choice, kernels, inputs, biases)
    sums = 2 * WIDTH + choice.width + choice.num_experts + choice.top_k  # router, inner, outer, softmax, mixture
    found = ours(choice, kernels, inputs, biases)
    rounding.assert_close(found, expected, roundings=sums + 8, scale=np.abs(expected).max())  # exp and silu: 4 each


def test_the_weights_of_a_token_decide():
    """The broken twins: other weights, other experts."""
    kernels, inputs = kernels_of(CHOICES[0]), inputs_of()
    expected = reference(CHOICES[0], kernels, inputs)
    for other in (dataclasses.replace(CHOICES[0], renormalised=False), dataclasses.replace(CHOICES[0], top_k=3)):
        assert np.abs(ours(other, kernels, inputs) - expected).max() > 0.1
    moved = {**kernels, "mlp_in": np.roll(kernels["mlp_in"], 1, axis=0)}
    assert np.abs(ours(CHOICES[0], moved, inputs) - expected).max() > 0.1


def test_equal_scores_go_to_the_lower_number():
    weights, chosen = routed(np.float32([[[0.0, 2.0, 2.0, 2.0]]]), 2, renormalised=True)
    np.testing.assert_array_equal(chosen, [[[1, 2]]])
    np.testing.assert_array_equal(weights, [[[0.5, 0.5]]])


def test_the_router_is_float32_with_16_bit_weights():
    """Scores of 1 and 1 + 2^-12, which are one number in bfloat16."""
    choice, alone = Experts(2, 1, 4, "silu"), Experts(1, 1, 4, "silu")
    kernels = kernels_of(choice, dtype=jnp.bfloat16)
    kernels["router"] = jnp.asarray(np.eye(WIDTH, 2), jnp.bfloat16)
    inputs = inputs_of(1, 2)
    inputs[0, :, :2] = [1 + 2.0**-12, 1], [1, 1 + 2.0**-12]
    found = np.asarray(ours(choice, kernels, inputs))
    assert found.dtype == np.float32
    kernels = {name: np.asarray(kernel) for name, kernel in kernels.items()}
    for token in (0, 1):
        own = {name: kernels[name][token : token + 1] for name in ("mlp_in", "mlp_out")}
        expected = np.asarray(ours(alone, {"router": kernels["router"][:, :1], **own}, inputs))
        np.testing.assert_array_equal(found[:, token], expected[:, token])


@pytest.mark.parametrize("name", ["mixtral", pytest.param("qwen3_moe", marks=pytest.mark.slow("grid"))])
def test_company_and_padding_change_nothing(name):
    """Whatever else is in the batch, however many of them take the same expert, and a row that is not finite."""
    lm, params = perturbed_model(name)
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, (4, 20)).astype(np.int32)
    together = np.asarray(compiled_logits(lm, params, tokens))
    crowded = np.full((9, 31), 7, np.int32)
    crowded[2, :20] = tokens[1]
    crowded[5:] = VOCABULARY  # an id beyond the vocabulary: NaN
    found = np.asarray(compiled_logits(lm, params, crowded))
    close(found[2:3, :20], together[1:2], lm)
    assert np.isfinite(found[:5]).all()
    assert np.isnan(found[5:]).all()


def test_no_token_sees_what_comes_after_it():
    lm, params = perturbed_model("mixtral")
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, (4, 20)).astype(np.int32)
    changed = tokens.copy()
    changed[:, 12:] = 3
    found, expected = (np.asarray(compiled_logits(lm, params, t)) for t in (changed, tokens))
    close(found[:, :12], expected[:, :12], lm)


def test_every_parameter_has_a_gradient():
    spec = SPECS["mixtral"]
    _, params = perturbed_model("mixtral")
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, (2, 20)).astype(np.int32)
    loss = lambda params: jnp.square(decoder.logits(spec, params, tokens)).mean()  # noqa: E731
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.jit(jax.grad(loss))(params)):
        assert np.abs(leaf).max() > 0, path


@pytest.mark.parametrize("shape", [(0, 4), (2, 1)])
def test_edge_sizes(shape):
    lm, params = perturbed_model("mixtral")
    assert jax.eval_shape(lm.logits, params, np.zeros(shape, np.int32)).shape == (*shape, VOCABULARY)


def test_work_is_that_of_the_chosen_experts():
    """Blocks that are multiplied: with 16 experts of which a token takes one, far fewer than 16 for each token."""
    choice = Experts(16, 1, 8, "silu")
    scores = inputs_of(8, 256) @ np.random.default_rng(0).normal(size=(WIDTH, 16)).astype(np.float32)

    @jax.jit
    def in_blocks(scores):
        chosen = route(scores, choice.top_k, renormalised=True)[1].reshape(-1)
        return experts.grad_norm_experts.in_blocks(chosen, num_experts=16)

    blocks = in_blocks(scores)
    rows = int(blocks.used) * blocks.slot.shape[1]
    assert 8 * 256 <= rows <= 1.25 * 8 * 256


def test_temporary_memory_is_that_of_the_slots():
    """T = 2,048 tokens, D = 64, F = 64, 32 experts, two a token: 5 k T / 4 rows of 3 F + 2 D floats are 6.6 MB, and the
    outputs of the slots 1 MB; the gate and up of every expert for every token would be 33 MB.
    """
    choice = Experts(32, 2, 64, "silu")
    kernels = {name: jax.ShapeDtypeStruct(s, jnp.float32) for name, s in choice.kernel_shapes(64).items()}
    inputs = jax.ShapeDtypeStruct((8, 256, 64), jnp.float32)
    program = jax.jit(functools.partial(mixture, choice, jax.nn.silu)).lower(kernels, inputs, None).compile()
    assert program.memory_analysis().temp_size_in_bytes < 10e6
