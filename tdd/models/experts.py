"""A mixture of experts: a router, and gated perceptrons of which each token takes the best few.

Every token is computed by exactly its own experts, without a capacity limit; tokens of padding are routed too and
change no other token's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels import grad_norm, grad_norm_experts
from tdd.models.spec import Experts


def mixture(
    experts: Experts,
    activation: Callable[[jax.Array], jax.Array],
    kernels: Mapping[str, jax.Array],
    inputs: jax.Array,
    probe: jax.Array | None,
) -> jax.Array:
    """Each token's weighted sum over its experts, [B, T, D] float32.

    Args:
      activation: The function that `experts.activation` names.
      kernels: "router", "mlp_in" and "mlp_out" in the shapes of `experts.kernel_shapes`.
      inputs: [B, T, D] float32.
      probe: As in `tdd.kernels.grad_norm`, or None.

    Memory: about 5/4 k B T (3 F + 2 D) floats.
    """
    batch, length, width = inputs.shape
    probe = jnp.zeros(batch) if probe is None else probe
    with jax.default_matmul_precision("highest"):  # a rounded score may choose another expert
        scores = grad_norm.dense(inputs, kernels["router"].astype(jnp.float32), probe)
    weights, chosen = route(
        scores,
        experts.top_k,
        renormalised=experts.renormalised,
        groups=experts.groups,
        kept_groups=experts.kept_groups,
        scale=experts.scale,
    )
    blocks = grad_norm_experts.in_blocks(chosen.reshape(-1), num_experts=experts.num_experts)
    rows = grad_norm_experts.to_blocks(inputs.reshape(-1, width).astype(kernels["mlp_in"].dtype), blocks)
    gate, up = jnp.split(grad_norm_experts.dense(rows, kernels["mlp_in"], probe, blocks), 2, axis=-1)
    rows = grad_norm_experts.dense(activation(gate) * up, kernels["mlp_out"], probe, blocks)
    outputs = grad_norm_experts.from_blocks(rows, blocks).reshape(batch, length, experts.top_k, width)
    return (outputs * weights[..., None]).sum(2)


def route(
    scores: jax.Array,
    top_k: int,
    *,
    renormalised: bool,
    groups: int = 1,
    kept_groups: int = 1,
    scale: float = 1.0,
) -> tuple[jax.Array, jax.Array]:
    """Weights [B, T, k] float32 and experts [B, T, k] int32 of each token, from the router's scores [B, T, E].

    The weights are the k largest probabilities of the softmax over all experts, divided by their sum if
    `renormalised`, times `scale`. With several `groups` of consecutive experts they are the largest in the
    `kept_groups` groups whose largest member is largest. Of equal scores the expert with the lower number is taken
    first.
    """
    probabilities = jax.nn.softmax(scores, axis=-1)
    if kept_groups < groups:
        best = probabilities.reshape(*scores.shape[:-1], groups, -1).max(-1)
        kept = jax.nn.one_hot(lax.top_k(best, kept_groups)[1], groups).sum(-2) > 0
        within = jnp.repeat(kept, scores.shape[-1] // groups, axis=-1)
        probabilities = jnp.where(within, probabilities, 0.0)
    weights, chosen = lax.top_k(probabilities, top_k)
    if renormalised:
        weights = weights / weights.sum(-1, keepdims=True)
    return weights * scale, chosen.astype(jnp.int32)
