"""The loop of public membership-inference tools: torch, one text at a time, float32, full log-softmax."""

from __future__ import annotations

import pathlib
import zlib
from typing import Any

import numpy as np

__all__ = ["ONE_PASS", "SCORES", "TorchLoop"]

SCORES = ("loss", "zlib", "lowercase", "reference", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
ONE_PASS = ("loss", "zlib", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
"""Those that need no second pass."""

K = 0.2


class TorchLoop:
    """The reference: transformers' torch model, one text at a time, full log-softmax."""

    def __init__(self, target: pathlib.Path, reference: pathlib.Path | None = None) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.torch = torch
        self.target, self.reference = (
            AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval() if path is not None else None
            for path in (target, reference)
        )
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
        taken = log_probs.gather(-1, targets)[:, 0]
        mean = (probs * log_probs).sum(-1)
        deviation = ((probs * log_probs.square()).sum(-1) - mean.square()).clamp_min(0).sqrt()
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
