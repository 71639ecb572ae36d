"""The reference way to score an order: torch, one sequence at a time, whole logits, overlapping windows."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["TorchOrders", "overlapping"]

Spans = Sequence[tuple[int, int, int]]


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
        from transformers import AutoModelForCausalLM

        self.torch, self.tokenizer = torch, tokenizer
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
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
