"""Per-token statistics as the usual loops compute them: a full log-softmax, 256 tokens at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "NAMES",
    "TorchStatistics",
    "numpy_log_prob",
    "numpy_stats",
    "numpy_stats_of_logits",
    "torch_log_prob",
    "torch_moments",
    "torch_stats",
    "torch_stats_of_logits",
]

NAMES = ("log_prob", "mu", "sigma", "renyi_two")
_ROWS, _POSITIONS = 256, 4096
Arrays = dict[str, np.ndarray]


def numpy_stats(hidden: np.ndarray, readout: np.ndarray, targets: np.ndarray) -> Arrays:
    """Log probability, mean and standard deviation of the log probabilities, Rényi entropy of order 2."""
    return _in_chunks(lambda rows: _numpy(hidden[rows] @ readout.T, targets[rows]), targets.size)


def numpy_stats_of_logits(logits: np.ndarray, targets: np.ndarray) -> Arrays:
    """The same from logits."""
    return _in_chunks(lambda rows: _numpy(logits[rows], targets[rows]), targets.size)


def numpy_log_prob(hidden: np.ndarray, readout: np.ndarray, targets: np.ndarray) -> Arrays:
    """Log probability alone."""

    def part(rows: slice) -> Arrays:
        logits = hidden[rows] @ readout.T
        shifted = logits - logits.max(-1, keepdims=True)
        taken = np.take_along_axis(shifted, targets[rows, None], -1)[:, 0]
        return {"log_prob": taken - np.log(np.exp(shifted).sum(-1))}

    return _in_chunks(part, targets.size)


def torch_stats(hidden: np.ndarray, readout: np.ndarray, targets: np.ndarray) -> Arrays:
    """As `numpy_stats`, by torch on CPU."""
    import torch

    states, weights = torch.from_numpy(hidden), torch.from_numpy(readout)
    return _in_chunks(lambda rows: _torch(states[rows] @ weights.T, targets[rows]), targets.size)


def torch_stats_of_logits(logits: np.ndarray, targets: np.ndarray) -> Arrays:
    """As `numpy_stats_of_logits`, by torch on CPU."""
    import torch

    values = torch.from_numpy(logits)
    return _in_chunks(lambda rows: _torch(values[rows], targets[rows]), targets.size)


def torch_log_prob(hidden: np.ndarray, readout: np.ndarray, targets: np.ndarray) -> Arrays:
    """As `numpy_log_prob`, by torch on CPU."""
    import torch

    states, weights = torch.from_numpy(hidden), torch.from_numpy(readout)

    def part(rows: slice) -> Arrays:
        own = torch.from_numpy(targets[rows]).long()
        loss = torch.nn.functional.cross_entropy(states[rows] @ weights.T, own, reduction="none")
        return {"log_prob": -loss.numpy()}

    return _in_chunks(part, targets.size)


def _in_chunks(part: Callable[[slice], Arrays], size: int) -> Arrays:
    parts = [part(slice(start, start + _ROWS)) for start in range(0, size, _ROWS)]
    return {name: np.concatenate([chunk[name] for chunk in parts]) for name in parts[0]}


def _numpy(logits: np.ndarray, targets: np.ndarray) -> Arrays:
    shifted = logits - logits.max(-1, keepdims=True)
    probs = np.exp(shifted)
    total = probs.sum(-1, keepdims=True)
    probs /= total
    log_probs = shifted - np.log(total)
    mu = np.einsum("cv,cv->c", probs, log_probs)
    second = np.einsum("cv,cv,cv->c", probs, log_probs, log_probs)
    return {
        "log_prob": np.take_along_axis(log_probs, targets[:, None], -1)[:, 0],
        "mu": mu,
        "sigma": np.sqrt(np.maximum(second - mu**2, 0)),
        "renyi_two": -np.log(np.einsum("cv,cv->c", probs, probs)),
    }


def _torch(logits: Any, targets: np.ndarray) -> Arrays:
    import torch

    with torch.no_grad():
        log_probs = torch.nn.functional.log_softmax(logits, dim=-1)
        probs = log_probs.exp()
        found = torch_moments(log_probs, probs, torch.from_numpy(targets).long())
        found["renyi_two"] = -probs.square().sum(-1).log()
    return {name: value.numpy() for name, value in found.items()}


def torch_moments(log_probs: Any, probs: Any, targets: Any) -> dict[str, Any]:
    """Log probability of the targets [N], and mean and standard deviation of the log probabilities [N, V]."""
    mu = (probs * log_probs).sum(-1)
    return {
        "log_prob": log_probs.gather(-1, targets[:, None])[:, 0],
        "mu": mu,
        "sigma": ((probs * log_probs.square()).sum(-1) - mu.square()).clamp_min(0).sqrt(),
    }


class TorchStatistics:
    """`torch_moments` at every position of a batch, by transformers' model: its trunk, then the logits of some
    thousands of positions at a time, in float32 from the product on.

    Args:
      model: On any device, of any type.
      compiled: Compile the statistics of those positions; the model's blocks are as they are given.
    """

    def __init__(self, model: Any, *, compiled: bool = False) -> None:
        import torch

        self.torch, self.model = torch, model
        self._of_rows = torch.compile(_torch_rows, dynamic=False) if compiled else _torch_rows

    def __call__(self, ids: Any) -> dict[str, Any]:
        """Of ids [B, T]: three tensors [B * T], of the next token; after the last token of a text, of its first."""
        with self.torch.no_grad():
            states = self.model.base_model(ids, use_cache=False).last_hidden_state.flatten(0, 1)
            readout, targets = self.model.get_output_embeddings().weight, ids.roll(-1, 1).flatten()
            parts = [
                self._of_rows(states[start : start + _POSITIONS], readout, targets[start : start + _POSITIONS])
                for start in range(0, len(targets), _POSITIONS)
            ]
            return {name: self.torch.cat([part[name] for part in parts]) for name in parts[0]}


def _torch_rows(states: Any, readout: Any, targets: Any) -> dict[str, Any]:
    log_probs = (states @ readout.T).float().log_softmax(-1)
    return torch_moments(log_probs, log_probs.exp(), targets)
