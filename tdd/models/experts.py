"""A mixture of experts: a router, and gated perceptrons of which each token takes the best few.

Every token is computed by exactly its own experts, without a capacity limit; tokens of padding are routed too and
change no other token's numbers.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels import grad_norm, grad_norm_experts
from tdd.models.spec import ClampedGate, Experts


def mixture(
    experts: Experts,
    activation: Callable[[jax.Array], jax.Array],
    kernels: Mapping[str, jax.Array],
    inputs: jax.Array,
    probe: jax.Array | None,
    biases: Mapping[str, jax.Array] = types.MappingProxyType({}),
) -> jax.Array:
    """Each token's weighted sum over its experts, [B, T, D] float32.

    Args:
      activation: The function that `experts.activation` names.
      kernels: "router", "mlp_in", "mlp_out" and any "correction" in the shapes of `experts.kernel_shapes`.
      inputs: [B, T, D] float32.
      probe: As in `tdd.kernels.grad_norm`, or None.
      biases: By the same names, in the shapes of `experts.bias_shapes`.

    Memory: about 5/4 k B T (3 F + 2 D) floats.
    """
    batch, length, width = inputs.shape
    probe = jnp.zeros(batch) if probe is None else probe
    with jax.default_matmul_precision("highest"):  # a rounded score may choose another expert
        scores = grad_norm.dense(inputs, kernels["router"].astype(jnp.float32), probe)
    if experts.bias:
        scores = grad_norm.add_bias(scores, biases["router"].astype(jnp.float32), probe)
    weights, chosen = route(
        scores,
        experts.top_k,
        renormalised=experts.renormalised,
        groups=experts.groups,
        kept_groups=experts.kept_groups,
        scale=experts.scale,
        correction=kernels.get("correction"),
    )
    blocks = grad_norm_experts.in_blocks(chosen.reshape(-1), num_experts=experts.num_experts)
    rows = grad_norm_experts.to_blocks(inputs.reshape(-1, width).astype(kernels["mlp_in"].dtype), blocks)

    def dense(name: str, rows: jax.Array) -> jax.Array:
        rows = grad_norm_experts.dense(rows, kernels[name], probe, blocks)
        if not experts.bias:
            return rows
        return grad_norm_experts.add_bias(rows, biases[name].astype(jnp.float32), probe, blocks)

    gate, up = jnp.split(dense("mlp_in", rows), 2, axis=-1)
    clamped = experts.clamped
    rows = dense("mlp_out", activation(gate) * up if clamped is None else clamped_gate(clamped, gate, up))
    outputs = grad_norm_experts.from_blocks(rows, blocks).reshape(batch, length, experts.top_k, width)
    return (outputs * weights[..., None]).sum(2)


def clamped_gate(clamped: ClampedGate, gate: jax.Array, up: jax.Array) -> jax.Array:
    """`ClampedGate` of arrays of one shape."""
    gate, up = jnp.minimum(gate, clamped.limit), jnp.clip(up, -clamped.limit, clamped.limit)
    return gate * jax.nn.sigmoid(clamped.alpha * gate) * (up + 1)


def route(
    scores: jax.Array,
    top_k: int,
    *,
    renormalised: bool,
    groups: int = 1,
    kept_groups: int = 1,
    scale: float = 1.0,
    correction: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Weights [B, T, k] float32 and experts [B, T, k] int32 of each token, from the router's scores [B, T, E].

    The weights are the k largest probabilities of the softmax over all experts, divided by their sum if
    `renormalised`, times `scale`. With several `groups` of consecutive experts they are the largest in the
    `kept_groups` groups whose largest member is largest. Of equal scores the expert with the lower number is taken
    first.

    With a `correction` [E] the probabilities are sigmoids; experts are chosen by their sums with it, and groups by the
    two largest sums together.
    """
    in_groups = (*scores.shape[:-1], groups, scores.shape[-1] // groups)
    if correction is None:
        probabilities = choice = jax.nn.softmax(scores, axis=-1)
        of_groups, least = choice.reshape(in_groups).max(-1), 0.0
    else:
        probabilities = jax.nn.sigmoid(scores)
        choice = probabilities + correction.astype(jnp.float32)
        of_groups, least = lax.top_k(choice.reshape(in_groups), min(2, in_groups[-1]))[0].sum(-1), -jnp.inf
    if kept_groups < groups:
        kept = jax.nn.one_hot(lax.top_k(of_groups, kept_groups)[1], groups).sum(-2) > 0
        choice = jnp.where(jnp.repeat(kept, in_groups[-1], axis=-1), choice, least)
    chosen = lax.top_k(choice, top_k)[1]
    weights = jnp.take_along_axis(probabilities, chosen, axis=-1)
    if renormalised:
        weights = weights / weights.sum(-1, keepdims=True)
    return weights * scale, chosen.astype(jnp.int32)
