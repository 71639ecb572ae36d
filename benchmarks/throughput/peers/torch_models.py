"""The reference ways with transformers' torch models, float32, one sequence at a time, full log-softmax.

`TorchLoop` is the loop of public membership-inference tools; `TorchOrders` scores the orders of a data set in
overlapping windows.
"""

from __future__ import annotations

import math
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.throughput.peers.tokens import torch_moments

__all__ = [
    "ONE_PASS",
    "SCORES",
    "TorchLoop",
    "TorchOrders",
    "compile_blocks",
    "overlapping",
    "random_torch_model",
    "torch_model",
]

Spans = Sequence[tuple[int, int, int]]

SCORES = ("loss", "zlib", "lowercase", "reference", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
ONE_PASS = ("loss", "zlib", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
"""Those that need no second pass."""

K = 0.2


def torch_model(path: pathlib.Path) -> Any:
    """transformers' torch model of a checkpoint, float32, in evaluation mode."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def random_torch_model(model_type: str, config: Mapping[str, Any], dtype: str, device: str) -> Any:
    """transformers' torch model with random weights that are drawn on the device, in evaluation mode."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    found = AutoConfig.for_model(model_type, **config)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(found, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    return model.eval()


def compile_blocks(model: Any) -> None:
    """Have torch compile the model's blocks at their first call: one program serves all of them."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.compile(dynamic=False)


class TorchLoop:
    """The reference: transformers' torch model, one text at a time, full log-softmax."""

    def __init__(self, target: pathlib.Path, reference: pathlib.Path | None = None) -> None:
        import torch
        from transformers import AutoTokenizer

        self.torch = torch
        self.target = torch_model(target)
        self.reference = None if reference is None else torch_model(reference)
        self.tokenizer = AutoTokenizer.from_pretrained(target)

    def scores(self, texts: list[str]) -> dict[str, np.ndarray]:
        """Every score of every text."""
        rows = [self._scores_of(text) for text in texts]
        return {name: np.array([row[name] for row in rows]) for name in SCORES}

    def one_pass(self, texts: list[str]) -> dict[str, np.ndarray]:
        """The scores of one forward pass of every text."""
        rows = [self._one_pass_of(text) for text in texts]
        return {name: np.array([row[name] for row in rows]) for name in ONE_PASS}

    def _log_softmax(self, model: Any, text: str) -> tuple[Any, Any]:
        torch = self.torch
        ids = torch.tensor([self.tokenizer(text)["input_ids"]])
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0, :-1]
        return torch.nn.functional.log_softmax(logits.float(), dim=-1), ids[0, 1:, None]

    def _loss(self, model: Any, text: str) -> float:
        log_probs, targets = self._log_softmax(model, text)
        return -log_probs.gather(-1, targets).mean().item()

    def _scores_of(self, text: str) -> dict[str, float]:
        found = self._one_pass_of(text)
        return found | {
            "lowercase": found["loss"] / self._loss(self.target, text.lower()),
            "reference": found["loss"] - self._loss(self.reference, text),
        }

    def _one_pass_of(self, text: str) -> dict[str, float]:
        torch = self.torch
        log_probs, targets = self._log_softmax(self.target, text)
        probs = log_probs.exp()
        taken, mean, deviation = torch_moments(log_probs, probs, targets[:, 0]).values()
        standard = (taken - mean) / deviation.clamp_min(1e-6)
        count = max(1, int(K * len(taken)))
        terms = probs * torch.log1p(-probs)
        own = terms.gather(-1, targets)[:, 0]
        modified = -(1 - taken.exp()) * taken - (terms.sum(-1) - own)
        renyi = 2 * torch.logsumexp(0.5 * log_probs, -1)
        loss = -taken.mean().item()
        return {
            "loss": loss,
            "zlib": loss / len(zlib.compress(text.encode())),
            "min_k": -taken.sort().values[:count].mean().item(),
            "min_k_plus_plus": -standard.sort().values[:count].mean().item(),
            "m_entropy": modified.mean().item(),
            "max_renyi": renyi.sort(descending=True).values[:count].mean().item(),
        }


def overlapping(num_tokens: int, context: int) -> list[tuple[int, int, int]]:
    """Windows (start, first scored token, stop) of the context's length, each half of it further on.

    Half of the tokens of every window but the first serve as context only, and are computed twice.

    >>> overlapping(10, 8), overlapping(17, 8)
    ([(0, 1, 8), (4, 8, 10)], [(0, 1, 8), (4, 8, 12), (8, 12, 16), (12, 16, 17)])
    """
    stride = context // 2
    count = 1 + math.ceil(max(0, num_tokens - context) / stride)
    spans = [(stride * j, min(stride * j + context, num_tokens)) for j in range(count)]
    return [(start, spans[j - 1][1] if j else 1, stop) for j, (start, stop) in enumerate(spans)]


class TorchOrders:
    """transformers' model of a checkpoint, float32."""

    def __init__(self, path: pathlib.Path, tokenizer: Any) -> None:
        import torch

        self.torch, self.tokenizer, self.model = torch, tokenizer, torch_model(path)
        self.context = int(self.model.config.max_position_embeddings)

    def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """Sums of log-probabilities, [texts]: windows of the context, each half of it further on."""
        sums = []
        for text in texts:
            tokens = self.tokenizer(text)["input_ids"]
            sums.append(self.log_prob(tokens, overlapping(len(tokens), self.context)))
        return np.array(sums)

    def log_prob(self, tokens: Sequence[int], windows: Spans) -> float:
        """Sum over the scored tokens of windows (start, first scored token, stop)."""
        torch, total = self.torch, 0.0
        for start, target, stop in windows:
            ids = torch.tensor([[*tokens[start:stop]]])
            with torch.no_grad():
                logits = self.model(ids, use_cache=False).logits[0, :-1]
                log_probs = torch.nn.functional.log_softmax(logits, dim=-1).gather(-1, ids[0, 1:, None])
            total += log_probs[target - start - 1 :].sum().item()
        return total
