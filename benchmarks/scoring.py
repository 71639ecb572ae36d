"""All eight scores of `tdd.score` against the usual torch loop, on a GPT-2-small-sized model with random weights.

The texts are random tokens with the lengths of WikiMIA: 32, 64, 128 and 256 words in WikiMIA's shares, at about 1.38
GPT-2 tokens a word with the spread of real text. The loop is the one that public membership-inference tools use: one
text at a time, float32, full log-softmax, probability-weighted Min-K%++ moments; the same three forward passes (text,
lowercased text, reference model). Both read the same checkpoint files. Agreement is checked before anything is timed.

    python benchmarks/scoring.py [--rounds 3] [--texts 200]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import statistics
import tempfile
import time
import zlib
from typing import Any

import harness
import jax
import numpy as np

from tdd.audit.score import score
from tdd.models import checkpoint
from tdd.models.decoder import init_params, language_model
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, PlainMlp

SCORES = (
    "loss", "zlib", "lowercase", "reference", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi"
)  # fmt: skip
WIKIMIA_TEXTS = {32: 776, 64: 542, 128: 250, 256: 82}
TOKENS_PER_WORD = {32: (1.38, 0.13), 64: (1.38, 0.10), 128: (1.38, 0.085), 256: (1.38, 0.075)}
VOCABULARY, WIDTH, LAYERS, HEADS, POSITIONS = 50_257, 768, 12, 12, 1024
TOLERANCE = 1e-4
K = 0.2


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        target, reference = (save_model(pathlib.Path(folder) / name, seed) for seed, name in enumerate(("a", "b")))
        mix = sample_texts(options.texts, wikimia_lengths(options.texts))
        short = sample_texts(options.texts, np.full(options.texts, 32))
        ours = (checkpoint.load(target), checkpoint.load(reference))
        peer = TorchLoop(target, reference)
        result = {"scores": SCORES, "model": "GPT-2-small-sized, random weights", "tolerance": TOLERANCE, "runs": []}
        for name, texts in (("WikiMIA length mix", mix), ("32 tokens", short)):
            result["runs"].append(compare(name, texts, ours, peer, options))
            print(json.dumps(result["runs"][-1], indent=2), flush=True)
        del peer
        gc.collect()
        result["memory"] = memory_by_texts(ours, mix)
    path = harness.write("scoring", result)
    print(harness.table([{k: v for k, v in run.items() if not isinstance(v, (dict, list))} for run in result["runs"]]))
    print(f"written: {path}")


def compare(name: str, texts: list[str], ours: Any, peer: TorchLoop, options: argparse.Namespace) -> dict[str, Any]:
    """Gate on agreement, then time both in interleaved rounds with the machine's matrix product beside them."""
    counter = harness.TraceCounter()
    start = time.perf_counter()
    found = run_ours(ours, texts)
    first = time.perf_counter() - start
    compiles = counter.stop()
    gate = texts[:: max(1, len(texts) // options.gate)]
    expected = peer.scores(gate)
    errors = {}
    for score_name in SCORES:
        got = found[score_name][:: max(1, len(texts) // options.gate)]
        # the reference score is a difference near 0: its error is relative to the losses that are subtracted
        scale = expected["loss" if score_name == "reference" else score_name]
        errors[score_name] = float(np.max(np.abs(got - expected[score_name]) / np.abs(scale)))
    if max(errors.values()) > TOLERANCE:
        raise SystemExit(f"{name}: scores disagree with the reference loop: {errors}")
    rates = []
    calls = {
        "matmul": lambda: rates.append(harness.matmul_flops(rounds=3)),
        "tdd": lambda: run_ours(ours, texts),
        "torch": lambda: peer.scores(texts),
    }
    seconds = harness.interleaved(calls, options.rounds)
    flops = forward_flops(texts)
    shares = [flops / s / rate for s, rate in zip(seconds["tdd"], rates, strict=True)]
    return {
        "run": name,
        "texts": len(texts),
        "tokens": sum(len(text.split()) for text in texts),
        "tdd texts/s": len(texts) / statistics.median(seconds["tdd"]),
        "torch texts/s": len(texts) / statistics.median(seconds["torch"]),
        "ratio": harness.ratio(seconds["torch"], seconds["tdd"]),
        "tdd GFLOP/s": flops / statistics.median(seconds["tdd"]) / 1e9,
        "torch GFLOP/s": flops / statistics.median(seconds["torch"]) / 1e9,
        "matmul GFLOP/s": statistics.median(rates) / 1e9,
        "share of matmul": statistics.median(shares),
        "first call s": first,
        "compiles": compiles,
        "buckets": len(found.provenance["batch_shapes"]),
        "padding share": found.provenance["padding_share"],
        "largest error": max(errors.values()),
        "errors": errors,
        "seconds": seconds,
        "load average": os.getloadavg()[0],
    }


def run_ours(models: Any, texts: list[str]) -> Any:
    return score(models[0], texts, SCORES, reference=models[1], progress=False)


def forward_flops(texts: list[str]) -> float:
    """Flop of three forward passes over the tokens alone, without padding: products of weights and of attention."""
    block = 12 * WIDTH**2
    total = 0.0
    for text in texts:
        length = len(text.split())
        total += 2 * length * LAYERS * block + 2 * LAYERS * 2 * length**2 * WIDTH
        total += 2 * (length - 1) * WIDTH * VOCABULARY
    return 3 * total


def memory_by_texts(models: Any, texts: list[str]) -> dict[str, float]:
    """Resident memory after scoring 50 texts and after scoring all of them, in MiB above the models."""
    before = harness.resident_bytes()
    found = {}
    for count in (50, len(texts)):
        run_ours(models, sorted(texts, key=len, reverse=True)[:count])
        found[f"resident MiB after {count} texts"] = (harness.resident_bytes() - before) / 2**20
        found[f"peak MiB of the process after {count} texts"] = harness.peak_bytes() / 2**20
    return found


def wikimia_lengths(count: int, seed: int = 0) -> np.ndarray:
    """Token counts of `count` texts: words in WikiMIA's shares, tokens a word by its mean and spread."""
    rng = np.random.default_rng(seed)
    total = sum(WIKIMIA_TEXTS.values())
    words = [length for length, number in WIKIMIA_TEXTS.items() for _ in range(round(count * number / total))]
    words = (words + [32] * count)[:count]
    return np.array([max(2, round(n * rng.normal(*TOKENS_PER_WORD[n]))) for n in words])


def sample_texts(count: int, lengths: np.ndarray, seed: int = 1) -> list[str]:
    """Texts of random words, one token each; every word exists in an upper and a lower case."""
    rng = np.random.default_rng(seed)
    return [" ".join(word(i) for i in rng.integers(0, VOCABULARY, n)) for n in rng.permutation(lengths[:count])]


def word(index: int) -> str:
    """The word with this token id; case is its last bit."""
    return f"w{index // 2}" if index % 2 else f"W{index // 2}"


def save_model(folder: pathlib.Path, seed: int) -> pathlib.Path:
    """A GPT-2-small-sized checkpoint of random weights with a word tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    spec = DecoderSpec(
        vocab_size=VOCABULARY,
        width=WIDTH,
        num_layers=LAYERS,
        norm=LayerNorm(),
        positions=LearnedPositions(POSITIONS),
        attention=Attention(HEADS, WIDTH // HEADS, ((WIDTH // HEADS) ** -0.5,) * LAYERS),
        mlp=PlainMlp(4 * WIDTH, "gelu_tanh"),
    )
    # random weights of standard deviation 0.02 give nearly uniform distributions: a few times that is livelier
    params = jax.tree.map(lambda leaf: leaf * 3 if leaf.ndim > 2 else leaf, init_params(spec, jax.random.key(seed)))
    words = Tokenizer(models.WordLevel({word(i): i for i in range(VOCABULARY)}, unk_token=word(0)))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token=word(0))
    checkpoint.save(folder, language_model(spec), params, tokenizer)
    return folder


class TorchLoop:
    """The reference: transformers' torch model, one text at a time, full log-softmax."""

    def __init__(self, target: pathlib.Path, reference: pathlib.Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.torch = torch
        self.target, self.reference = (
            AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval() for path in (target, reference)
        )
        self.tokenizer = AutoTokenizer.from_pretrained(target)

    def scores(self, texts: list[str]) -> dict[str, np.ndarray]:
        """Every score of every text."""
        rows = [self._scores_of(text) for text in texts]
        return {name: np.array([row[name] for row in rows]) for name in SCORES}

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
            "lowercase": loss / self._loss(self.target, text.lower()),
            "reference": loss - self._loss(self.reference, text),
            "min_k": -taken.sort().values[:count].mean().item(),
            "min_k_plus_plus": -standard.sort().values[:count].mean().item(),
            "m_entropy": modified.mean().item(),
            "max_renyi": renyi.sort(descending=True).values[:count].mean().item(),
        }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gate", type=int, default=20, help="texts compared with the loop before timing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
