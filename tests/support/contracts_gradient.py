"""Per-example squared gradient norms: the probe's cotangents, and the head's."""

import jax
import jax.numpy as jnp
import numpy as np
import references_gradient as ref
from contract_entry import ELEMENTARY, Entry, own

from tdd.kernels import grad_norm, grad_norm_experts, grad_norm_head

LENGTH, VOCABULARY, WIDTH = 5, 22, 4


def whole(rng, *shape):
    """Whole numbers, whose products and sums are exact in any order."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def operation(rng, m, width_in, width_out, weight_shape):
    return {
        "inputs": whole(rng, m, LENGTH, width_in),
        "cotangents": whole(rng, m, LENGTH, width_out),
        "weight": whole(np.random.default_rng(3), *weight_shape),
    }


def probed(fun):
    """Value, cotangent of the inputs and cotangent of the probe."""

    def call(inputs, cotangents, weight):
        value, pull = jax.vjp(fun, inputs, weight, jnp.zeros(inputs.shape[0], jnp.float32))
        of_inputs, _, norms = pull(cotangents)
        return value, of_inputs, norms

    return call


def with_experts(rng, m, length, num_experts):
    return {
        "inputs": whole(rng, m, length, 4),
        "cotangents": whole(rng, m, length, 3),
        "weight": whole(np.random.default_rng(3), num_experts, 4, 3),
        "experts": rng.integers(0, num_experts, (m, length)).astype(np.int32),
    }


def experts_call(operation):
    def call(inputs, cotangents, weight, experts):
        blocks = grad_norm_experts.in_blocks(experts.reshape(-1), num_experts=weight.shape[0], rows=4)

        def fun(inputs, weight, probe):
            rows = grad_norm_experts.to_blocks(inputs.reshape(-1, inputs.shape[-1]), blocks)
            outputs = operation(rows, weight, probe, blocks)
            return grad_norm_experts.from_blocks(outputs, blocks).reshape(cotangents.shape)

        return probed(fun)(inputs, cotangents, weight)

    return call


def with_biases_of_experts(rng, m, length, num_experts):
    found = with_experts(rng, m, length, num_experts)
    return found | {"inputs": whole(rng, m, length, 3), "weight": found["weight"][:, 0]}


def softmax_terms(exact, arrays):
    """The magnitude of a logit times that of what is summed over the vocabulary."""
    logits = (np.abs(arrays["hidden"]) @ np.abs(arrays["readout"]).T).max(initial=1)
    return logits * np.maximum(np.abs(exact), np.abs(exact).max(initial=1))


SOFTMAX = WIDTH + VOCABULARY + LENGTH * WIDTH + 2 * ELEMENTARY
"""A product of the width, exponents and their sum, and a product over positions and width."""


def entry(name, call, make, reference, label="", roundings=0, scale=own):
    return Entry(
        name,
        call,
        make,
        reference,
        label=label,
        roundings=roundings,
        scale=scale,
        takes_double=False,
        always_single=True,
    )


def operation_entry(name, width_in, width_out, weight_shape, label=""):
    return entry(
        f"grad_norm.{name}",
        probed(getattr(grad_norm, name)),
        lambda rng, n, m: operation(rng, m, width_in, width_out, weight_shape),
        ref.OPERATIONS[name],
        label,
    )


def head(rng, n, m):
    tokens = rng.integers(0, 6, (m, LENGTH)).astype(np.int32)
    tokens[:, 1] = rng.integers(0, VOCABULARY, m)
    weights = (rng.random((m, LENGTH)) < 0.8).astype(np.float32)
    weights[:, -1] = 0
    return {
        "hidden": rng.normal(size=(m, LENGTH, WIDTH)).astype(np.float32),
        "readout": np.random.default_rng(5).normal(size=(VOCABULARY, WIDTH)).astype(np.float32),
        "tokens": tokens,
        "weights": weights,
    }


def head_with_embedding(rng, n, m):
    return head(rng, n, m) | {"embedded": whole(rng, m, LENGTH, WIDTH)}


def head_call(soft_cap, chunk):
    return lambda **arrays: grad_norm_head.head_gradients(**arrays, soft_cap=soft_cap, chunk=chunk)._asdict()


def cross_call(hidden, readout, tokens, weights, embedded):
    found = grad_norm_head.head_gradients(hidden, readout, tokens, weights)
    return grad_norm_head.tied_cross(found, hidden, embedded)


ENTRIES = [
    operation_entry("dense", 4, 3, (4, 3), "outer"),
    operation_entry("dense", 24, 18, (24, 18), "gram"),
    operation_entry("add_bias", 3, 3, (3,)),
    operation_entry("scale", 3, 3, (3,)),
    operation_entry("add_rows", 3, 3, (LENGTH, 3)),
    *[
        entry(
            "grad_norm_experts.dense",
            experts_call(grad_norm_experts.dense),
            lambda rng, n, m, sizes=sizes: with_experts(rng, m, *sizes),
            ref.experts_dense,
            label,
        )
        for label, sizes in {"": (LENGTH, 7), "several blocks": (19, 2)}.items()
    ],
    *[
        entry(
            "grad_norm_experts.add_bias",
            experts_call(grad_norm_experts.add_bias),
            lambda rng, n, m, sizes=sizes: with_biases_of_experts(rng, m, *sizes),
            ref.experts_add_bias,
            label,
        )
        for label, sizes in {"": (LENGTH, 7), "several blocks": (19, 2)}.items()
    ],
    *[
        entry(
            "grad_norm_head.head_gradients",
            head_call(soft_cap, chunk),
            head,
            lambda soft_cap=soft_cap, **arrays: ref.head(**arrays, soft_cap=soft_cap),
            f"cap={soft_cap},chunk={chunk}",
            SOFTMAX,
            softmax_terms,
        )
        for soft_cap, chunk in ((None, 64), (None, 7), (4.0, 8))
    ],
    entry(
        "grad_norm_head.tied_cross",
        cross_call,
        head_with_embedding,
        ref.tied_cross,
        roundings=SOFTMAX + LENGTH,
        scale=softmax_terms,
    ),
    entry(
        "grad_norm_head.embedding_sqnorm",
        grad_norm_head.embedding_sqnorm,
        lambda rng, n, m: {name: head_with_embedding(rng, n, m)[name] for name in ("embedded", "tokens")},
        ref.embedding_sqnorm,
    ),
]

_ARRANGED = "an arrangement of rows that grad_norm_experts.dense goes through; tests/kernels/test_grad_norm_experts.py"
ELSEWHERE = {f"grad_norm_experts.{name}": _ARRANGED for name in ("in_blocks", "to_blocks", "from_blocks")}
