"""Gradients that are really formed, in float64 NumPy, for the kernels of per-example gradient norms."""

import numpy as np

__all__ = [
    "OPERATIONS",
    "embedding_sqnorm",
    "experts_add_bias",
    "experts_dense",
    "head",
    "readout_gradients",
    "tied_cross",
]


def squares(gradients):
    return np.square(gradients).sum(tuple(range(1, gradients.ndim)))


def dense(inputs, cotangents, weight):
    x, g, w = (np.asarray(a, np.float64) for a in (inputs, cotangents, weight))
    return x @ w, g @ w.T, squares(np.einsum("bti,bto->bio", x, g))


def add_bias(inputs, cotangents, weight):
    x, g, w = (np.asarray(a, np.float64) for a in (inputs, cotangents, weight))
    return x + w, g, np.square(g.sum(1)).sum(-1)


def scale(inputs, cotangents, weight):
    x, g, w = (np.asarray(a, np.float64) for a in (inputs, cotangents, weight))
    return x * w, g * w, np.square((x * g).sum(1)).sum(-1)


def add_rows(inputs, cotangents, weight):
    x, g, w = (np.asarray(a, np.float64) for a in (inputs, cotangents, weight))
    return x + w, g, np.square(g).sum((1, 2))


OPERATIONS = {"dense": dense, "add_bias": add_bias, "scale": scale, "add_rows": add_rows}


def experts_dense(inputs, cotangents, weight, experts):
    """Every expert's kernel on every row, and one gradient of all kernels an example."""
    x, g, w = (np.asarray(a, np.float64) for a in (inputs, cotangents, weight))
    own = experts[..., None] == np.arange(len(w))
    return (
        np.einsum("bti,eio,bte->bto", x, w, own),
        np.einsum("bto,eio,bte->bti", g, w, own),
        squares(np.einsum("bti,bto,bte->beio", x, g, own)),
    )


def experts_add_bias(inputs, cotangents, weight, experts):
    """Each row plus its expert's bias, and one gradient of all biases an example."""
    x, g, w = (np.asarray(a, np.float64) for a in (inputs, cotangents, weight))
    own = experts[..., None] == np.arange(len(w))
    return x + w[experts], g, squares(np.einsum("bto,bte->beo", g, own))


def of_logits(hidden, readout, tokens, weights, soft_cap=None):
    """delta [B, T, V]: the cotangent of the logits before capping."""
    z = np.asarray(hidden, np.float64) @ np.asarray(readout, np.float64).T
    capped = z if soft_cap is None else soft_cap * np.tanh(z / soft_cap)
    e = np.exp(capped - capped.max(-1, keepdims=True))
    delta = e / e.sum(-1, keepdims=True)
    targets = np.roll(tokens, -1, axis=1)
    # p_y - 1 from the others: the difference has no digits where p_y is almost 1
    others = np.where(np.arange(len(readout)) == targets[..., None], 0.0, delta).sum(-1)
    np.put_along_axis(delta, targets[..., None], -others[..., None], axis=-1)
    slope = 1.0 if soft_cap is None else 1 - np.square(capped / soft_cap)
    return delta * slope * np.asarray(weights, np.float64)[..., None]


def readout_gradients(delta, hidden):
    """[B, V, D]"""
    return np.einsum("btv,btd->bvd", delta, np.asarray(hidden, np.float64))


def embedding_gradients(embedded, tokens, vocabulary):
    found = np.zeros((len(tokens), vocabulary, embedded.shape[-1]))
    for gradient, rows, ids in zip(found, np.asarray(embedded, np.float64), tokens, strict=True):
        np.add.at(gradient, ids, rows)
    return found


def head(hidden, readout, tokens, weights, soft_cap=None):
    delta = of_logits(hidden, readout, tokens, weights, soft_cap)
    positions = np.broadcast_to(tokens[:, None, :], (*tokens.shape, tokens.shape[1]))
    return {
        "hidden": delta @ np.asarray(readout, np.float64),
        "sqnorm": squares(readout_gradients(delta, hidden)),
        "at_tokens": np.take_along_axis(delta, positions, axis=2),
    }


def tied_cross(hidden, readout, tokens, weights, embedded):
    as_readout = readout_gradients(of_logits(hidden, readout, tokens, weights), hidden)
    return 2 * (as_readout * embedding_gradients(embedded, tokens, len(readout))).sum((1, 2))


def embedding_sqnorm(embedded, tokens):
    return np.square(embedding_gradients(embedded, tokens, 1 + max(tokens.max(initial=0), 0))).sum((1, 2))
