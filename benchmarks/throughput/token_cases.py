"""The kernel cases of the suite `scoring`: statistics of every token from hidden states, or from logits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.throughput.cases import Case, Peer, Size
from benchmarks.throughput.peers import tokens
from tdd.kernels import token_stats

__all__ = ["CASES"]

_GPT2, _SMALL = (50_257, 768), (97, 16)


def dimensions(items: int) -> tuple[int, int]:
    """Vocabulary and width: GPT-2's, but small where there are few tokens."""
    return _GPT2 if items >= 100 else _SMALL


def states(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Hidden states, a readout whose logits have a standard deviation of 3, and random targets."""
    vocabulary, width = dimensions(size.items)
    return {
        "hidden": rng.normal(size=(size.items, width)).astype(np.float32),
        "readout": (3 / np.sqrt(width) * rng.normal(size=(vocabulary, width))).astype(np.float32),
        "targets": rng.integers(0, vocabulary, size.items).astype(np.int32),
    }


def logits(rng: np.random.Generator, size: Size) -> dict[str, np.ndarray]:
    """Logits of a standard deviation of 3, and random targets."""
    vocabulary, _ = dimensions(size.items)
    return {
        "logits": (3 * rng.standard_normal((size.items, vocabulary), dtype=np.float32)),
        "targets": rng.integers(0, vocabulary, size.items).astype(np.int32),
    }


def tile() -> dict[str, Any]:
    """How the kernels cut their work on this device."""
    return {"chunk": 256, "block": 1024} if jax.default_backend() == "cpu" else {"chunk": 2048, "block": None}


def _stats(hidden: Any, readout: Any, targets: Any) -> dict[str, Any]:
    found = token_stats.token_stats(hidden, readout, targets, jnp.ones(targets.shape, bool), **tile())
    return _named(found)


def _from_logits(logits: Any, targets: Any) -> dict[str, Any]:
    found = token_stats.token_stats_from_logits(logits, targets, jnp.ones(targets.shape, bool), **tile())
    return _named(found)


def _log_prob(hidden: Any, readout: Any, targets: Any) -> dict[str, Any]:
    return {"log_prob": token_stats.token_log_prob(hidden, readout, targets, jnp.ones(targets.shape, bool), **tile())}


def _named(found: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in tokens.NAMES}


def _flops(items: int) -> float:
    vocabulary, width = dimensions(items)
    return 2.0 * items * vocabulary * width


_SIZES = {"sizes": (Size(512), Size(2_048)), "tiny": (Size(11),), "unit": "tokens"}

CASES = (
    Case(
        "token_stats", _stats, states,
        {"NumPy": Peer(tokens.numpy_stats), "torch": Peer(tokens.torch_stats, "torch")},
        about="log probability, moments and entropies of every token from hidden states", tolerance=1e-4, flops=_flops,
        **_SIZES,
    ),
    Case(
        "token_log_prob", _log_prob, states,
        {"NumPy": Peer(tokens.numpy_log_prob), "torch": Peer(tokens.torch_log_prob, "torch")},
        about="log probability of every token from hidden states", tolerance=1e-4, flops=_flops, **_SIZES,
    ),
    Case(
        "logit_tile", _from_logits, logits,
        {"NumPy": Peer(tokens.numpy_stats_of_logits), "torch": Peer(tokens.torch_stats_of_logits, "torch")},
        about="the same statistics from logits", tolerance=1e-4, **_SIZES,
    ),
)  # fmt: skip
