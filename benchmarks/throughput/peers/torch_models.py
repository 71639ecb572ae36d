"""The reference ways with transformers' torch models: full log-softmax, one sequence at a time or sorted batches.

One by one, `TorchScores` is the loop of public membership-inference tools; `TorchOrders` scores the orders of a data
set in overlapping windows.
"""

from __future__ import annotations

import math
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.throughput.peers.tokens import torch_moments

__all__ = [
    "ONE_PASS",
    "TorchOrders",
    "TorchScores",
    "compile_blocks",
    "overlapping",
    "random_torch_model",
    "scores_of",
    "token_statistics",
    "torch_model",
]

Spans = Sequence[tuple[int, int, int]]

ONE_PASS = ("loss", "zlib", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
"""The scores that are compared: those of the usual loops that need one forward pass."""

K = 0.2


def torch_model(path: pathlib.Path, dtype: str = "float32") -> Any:
    """transformers' torch model of a checkpoint, in evaluation mode."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()


def random_torch_model(model_type: str, config: Mapping[str, Any], dtype: str, device: str) -> Any:
    """transformers' torch model with random weights that are drawn on the device, in evaluation mode."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    found = AutoConfig.for_model(model_type, **config)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(found, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    return model.eval()


def compile_blocks(model: Any, *, dynamic: bool = False) -> None:
    """Have torch compile the model's blocks at their first call: one program serves all of them, and with `dynamic`
    every shape."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.compile(dynamic=dynamic)


class TorchScores:
    """The scores of one forward pass by transformers' torch model, with its default attention (SDPA).

    Args:
      path: of a checkpoint.
      dtype: of its weights; statistics are float32, or float64 with such weights.
      compiled: compile the model's blocks and the statistics, for every shape at once.
    """

    def __init__(self, path: pathlib.Path, dtype: str = "float32", *, compiled: bool = False) -> None:
        import torch
        from transformers import AutoTokenizer

        self.torch = torch
        self.model = torch_model(path, dtype)
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self._statistics = token_statistics
        if compiled:
            compile_blocks(self.model, dynamic=True)
            self._statistics = torch.compile(token_statistics, dynamic=True)

    def __call__(self, texts: Sequence[str], names: Sequence[str], batch: int = 1) -> dict[str, np.ndarray]:
        """Scores of texts, [texts] for each name.

        Args:
          texts: to score.
          names: of `ONE_PASS`.
          batch: texts of neighbouring lengths that the model sees at once, padded; logits are formed at real tokens
            only. One by one, it is the usual loop: all logits of a text.
        """
        torch = self.torch
        ids = [torch.tensor(row) for row in self.tokenizer(list(texts))["input_ids"]]
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        rows: dict[int, Mapping[str, float]] = {}
        with torch.inference_mode():
            for start in range(0, len(order), batch):
                part = order[start : start + batch]
                for i, found in zip(part, self._parts([ids[i] for i in part], names), strict=True):
                    rows[i] = scores_of(found, texts[i], names)
        return {name: np.array([rows[i][name] for i in range(len(ids))]) for name in names}

    def labelled_loss(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """The loss as transformers' documentation has it: `model(input_ids, labels=input_ids).loss`, one by one."""
        torch = self.torch
        with torch.no_grad():
            ids = [torch.tensor([self.tokenizer(text)["input_ids"]]) for text in texts]
            return {"loss": np.array([self.model(row, labels=row).loss.item() for row in ids])}

    def _parts(self, ids: Sequence[Any], names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Statistics of the tokens of each text of a batch."""
        torch = self.torch
        if len(ids) == 1:
            logits = self.model(ids[0][None], use_cache=False).logits[0, :-1]
            yield self._statistics(logits, ids[0][1:], names)
            return
        padded = torch.nn.utils.rnn.pad_sequence(list(ids), batch_first=True)
        mask = torch.arange(padded.shape[1]) < torch.tensor([[len(row)] for row in ids])
        states = self.model.base_model(padded, attention_mask=mask.long(), use_cache=False).last_hidden_state
        for row, state in zip(ids, states, strict=True):
            logits = self.model.get_output_embeddings()(state[: len(row) - 1])
            yield self._statistics(logits, row[1:], names)


def token_statistics(logits: Any, targets: Any, names: Sequence[str]) -> dict[str, Any]:
    """What scores need of logits [N, V] at targets [N], from a full log-softmax in float32 or wider."""
    import torch

    wide = torch.promote_types(logits.dtype, torch.float32)
    log_probs = torch.nn.functional.log_softmax(logits.to(wide), dim=-1)
    probs = log_probs.exp()
    found = torch_moments(log_probs, probs, targets)
    taken = found["log_prob"]
    if "m_entropy" in names:
        terms = probs * torch.log1p(-probs)
        own = terms.gather(-1, targets[:, None])[:, 0]
        found["modified"] = -(1 - taken.exp()) * taken - (terms.sum(-1) - own)
    if "max_renyi" in names:
        found["renyi"] = 2 * torch.logsumexp(0.5 * log_probs, -1)
    return found


def scores_of(found: Mapping[str, Any], text: str, names: Sequence[str]) -> dict[str, float]:
    """Scores of a text from the statistics of its tokens."""
    taken = found["log_prob"]
    count = max(1, int(K * len(taken)))
    loss = -taken.mean().item()
    ways = {
        "loss": lambda: loss,
        "zlib": lambda: loss / len(zlib.compress(text.encode())),
        "min_k": lambda: -taken.sort().values[:count].mean().item(),
        "min_k_plus_plus": lambda: (
            -((taken - found["mu"]) / found["sigma"].clamp_min(1e-6)).sort().values[:count].mean().item()
        ),
        "m_entropy": lambda: found["modified"].mean().item(),
        "cancellation": lambda: (found["mu"] / found["sigma"]).square().max().item(),
        "max_renyi": lambda: found["renyi"].sort(descending=True).values[:count].mean().item(),
    }
    return {name: ways[name]() for name in names}


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
