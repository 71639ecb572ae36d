"""How many model calls a clear case takes, and what permuting a part of each shard costs in power.

A small model is trained on a canary set planted 50 times, and on fainter ones. The former is tested by the fixed design
of 50 shards by 51 orders, by sequential rules, and with a suffix of each shard permuted; shards of the latter give many
small designs, each of which rejects or does not.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reproductions.models import Shape, canary_tokenizer, scratch_model
from tdd.exchange.run import run_exchange
from tdd.lab.corpus import canary_set, generate
from tdd.lab.plant import plant_canaries
from tdd.lab.recipe import TrainConfig
from tdd.procedures.exchangeability import exchangeability
from tdd.scoring.inputs import Model

__all__ = ["Design", "calls_to_reject", "conclusions", "planted_model", "power", "power_by_share"]

SHARES = (1.0, 0.5, 0.25)
RULES = ("e_process", "spending")
TARGET = 1e-3
LEVEL = 0.01
TESTS = ("combined", "t")
_FEWER = (1, 2, 5, 10, 20)
_DRAWS = 999
_CLEAR_SEED, _FAINT_SEED, _BACKGROUND_SEED = 3_000, 3_100, 3_200


@dataclasses.dataclass(frozen=True)
class Design:
    """Sizes.

    Attributes:
      shape: of the model.
      num_examples: of a set.
      num_shards: r.
      num_shuffles: k, of the clear set.
      copies: of the clear set in the training data.
      faint_sets: how many fainter sets.
      faint_copies: of each of them.
      faint_shuffles: k, of the faint sets.
      background: other documents.
      vocab_size: of the tokenizer.
      small: shards of the small designs.
      repetitions: small designs drawn.
    """

    shape: Shape = dataclasses.field(default_factory=lambda: Shape(width=128, num_layers=2, context=512))
    num_examples: int = 1000
    num_shards: int = 50
    num_shuffles: int = 50
    copies: int = 50
    faint_sets: int = 2
    faint_copies: int = 10
    faint_shuffles: int = 20
    background: int = 300
    vocab_size: int = 1024
    small: tuple[int, ...] = (10, 30)
    repetitions: int = 2000

    @classmethod
    def quick(cls) -> Design:
        """Seconds, and no conclusion."""
        return cls(Shape(32, 1, 128), 60, 6, 9, 20, 1, 5, 9, 20, 400, (3,), 50)


def planted_model(design: Design, seed: int = 0) -> tuple[Model, dict[str, Any]]:
    """A model trained from random parameters for one epoch of all documents, and what it was trained on.

    Each set is one document, which training cuts into windows of the context: the shards of a test begin elsewhere.
    """
    began = time.perf_counter()
    sets = {"clear": clear_set(design)} | {f"faint {i}": faint_set(design, i) for i in range(design.faint_sets)}
    copies = {name: design.copies if name == "clear" else design.faint_copies for name in sets}
    background = generate(design.background, seed=_BACKGROUND_SEED + seed).texts
    documents = plant_canaries(sets, copies, background, seed=seed).documents
    tokenizer = canary_tokenizer(design.vocab_size)
    lm = design.shape.language_model(len(tokenizer))
    config = TrainConfig(
        epochs=1, batch_size=4, learning_rate=2e-3, max_length=design.shape.context, num_buckets=2, seed=seed
    )
    model, history = scratch_model(None, lm, tokenizer, documents, config=config)
    facts = {
        "parameters": model.num_parameters,
        "training tokens": int(sum(len(ids) for ids in tokenizer([*documents])["input_ids"])),
        "steps": history[-1]["step"],
        "loss": history[-1]["loss"],
        "seconds": time.perf_counter() - began,
    }
    return Model(lm, model.params, tokenizer, "planted"), facts


def clear_set(design: Design) -> Any:
    """The set that is planted often."""
    return canary_set(design.num_examples, seed=_CLEAR_SEED)


def faint_set(design: Design, index: int) -> Any:
    """One that is planted a few times."""
    return canary_set(design.num_examples, seed=_FAINT_SEED + index)


def calls_to_reject(
    model: Model, design: Design, say: Callable[[dict[str, Any]], None] = lambda row: None
) -> list[dict[str, Any]]:
    """A row for each way to test the set that was planted often: calls, tokens, p-value."""
    rows = []

    def add(row: dict[str, Any]) -> None:
        full = rows[0] if rows else row
        row["calls / fixed"] = row["calls"] / full["calls"]
        row["tokens / fixed"] = row["tokens"] / full["tokens"]
        row["reached"] = row["p_value"] < TARGET
        rows.append(row)
        say(row)

    texts = clear_set(design)
    for share in SHARES:
        found = _exchange(model, texts, design.num_shuffles, design, share)
        of_set, (canonical, shuffled) = found.run["data"][0], next(iter(found.log_probs.values()))
        t = of_set["tests"]["t"]["p_value"]
        add(_row("fixed", share, design.num_shuffles, of_set["calls"], of_set["p_value"], t))
        for fewer in (k for k in _FEWER if k < design.num_shuffles):
            calls = _scaled(of_set["calls"], design, share, fewer)
            p_values = [
                float(exchangeability(canonical, shuffled[:, :fewer], test=test, key=jax.random.key(0)).p_value)
                for test in TESTS
            ]
            add(_row("fixed, fewer shuffles", share, fewer, calls, *p_values))
        for rule in RULES:
            of_set = _exchange(model, texts, design.num_shuffles, design, share, stop=rule, target_p=TARGET).run[
                "data"
            ][0]
            add(_row(rule, share, of_set["shuffles_used"], of_set["calls"], of_set["p_value"], None))
    return rows


def _exchange(model: Model, texts: Any, num_shuffles: int, design: Design, share: float, **options: Any) -> Any:
    return run_exchange(
        (model.lm, model.params, model.tokenizer),
        texts,
        num_shards=design.num_shards,
        num_shuffles=num_shuffles,
        suffix=share,
        token_budget=4096,
        progress=False,
        **options,
    )


def _row(way: str, share: float, shuffles: int, calls: Any, p_value: float, t: float | None) -> dict[str, Any]:
    return {
        "way": way,
        "share permuted": share,
        "shuffles": shuffles,
        "calls": calls["sequences"],
        "tokens": calls["tokens"],
        "p_value": p_value,
        "p_value of t": t,
    }


def _scaled(calls: Any, design: Design, share: float, shuffles: int) -> dict[str, float]:
    """What a design of fewer shuffles would have taken."""
    part = _tokens(share, shuffles) / _tokens(share, design.num_shuffles)
    return {"sequences": design.num_shards * (shuffles + 1), "tokens": calls["tokens"] * part}


def _tokens(share: float, shuffles: int) -> float:
    """Tokens of a shard's orders, in units of its length: what is not permuted is computed once."""
    return 1 - share + share * (shuffles + 1)


def power_by_share(
    model: Model, design: Design, say: Callable[[dict[str, Any]], None] = lambda row: None
) -> list[dict[str, Any]]:
    """A row for each small design: power at level .01, by the share permuted, the shuffles and the number of shards."""
    table: dict[float, np.ndarray] = {}
    for share in SHARES:
        parts = []
        for index in range(design.faint_sets):
            found = _exchange(model, faint_set(design, index), design.faint_shuffles, design, share)
            canonical, shuffled = next(iter(found.log_probs.values()))
            parts.append(np.concatenate([canonical[:, None], shuffled], axis=1))
        table[share] = np.concatenate(parts)
    k = design.faint_shuffles
    same_tokens = [max(1, round(_tokens(share, k)) - 1) for share in SHARES[1:]]
    plans = [(share, k) for share in SHARES] + [(1.0, fewer) for fewer in same_tokens]
    rows = []
    for num_shards in design.small:
        for share, shuffles in plans:
            row: dict[str, Any] = {
                "shards": num_shards,
                "share permuted": share,
                "shuffles": shuffles,
                "tokens of a shard": round(_tokens(share, shuffles), 2),
                "effect, sd": effect(table[share]),
            }
            for test in TESTS:
                row[f"power, {test}"] = power(table[share], num_shards, shuffles, test, design.repetitions)
            rows.append(row)
            say(row)
    return rows


def conclusions(calls: Sequence[dict[str, Any]], powers: Sequence[dict[str, Any]]) -> list[str]:
    """What the two tables say, in sentences."""
    fixed = next(row for row in calls if row["way"] == "fixed")
    said = [
        f"All {fixed['calls']} calls of the fixed design: p = {fixed['p_value']:.2g}, t {fixed['p_value of t']:.2g}."
    ]
    for row in calls:
        if row["way"] in RULES:
            result = f"p = {row['p_value']:.2g} after {row['calls']} calls and {row['tokens']:.0f} tokens"
            times = f"{1 / row['calls / fixed']:.3g} and {1 / row['tokens / fixed']:.3g} times fewer"
            end = f"{times}." if row["reached"] else f"p < {TARGET:g} not reached."
            said.append(f"{row['way']}, {row['share permuted']:g} of each shard permuted: {result}: {end}")
    for row in powers:
        if row["share permuted"] < 1:
            alike = [one for one in powers if one["share permuted"] == 1 and one["shards"] == row["shards"]]
            same_shuffles = next(one for one in alike if one["shuffles"] == row["shuffles"])
            same_tokens = min(alike, key=lambda one: abs(one["tokens of a shard"] - row["tokens of a shard"]))
            mine, many, few = (f"{one['power, combined']:.2f}" for one in (row, same_shuffles, same_tokens))
            design = f"{row['shards']} shards, {row['share permuted']:g} permuted, {row['shuffles']} shuffles"
            whole = f"{many} with as many shuffles, {few} with {same_tokens['shuffles']} for as many tokens"
            said.append(f"{design}: power {mine}; whole shards permuted: {whole}.")
    return said


def effect(log_probs: np.ndarray) -> float:
    """Canonical minus mean shuffled log-probability, a shard, over the root mean variance of the shuffles."""
    canonical, shuffled = log_probs[:, 0], log_probs[:, 1:]
    spread = float(np.sqrt(shuffled.var(axis=1, ddof=1).mean()))
    return float((canonical - shuffled.mean(axis=1)).mean()) / spread if spread else 0.0


def power(log_probs: np.ndarray, num_shards: int, num_shuffles: int, test: Any, repetitions: int) -> float:
    """Share of p-values at most .01 over random designs of some of the shards and some of the shuffles.

    Args:
      log_probs: [shards, shuffles + 1], the canonical order first.
      num_shards: of a design.
      num_shuffles: of a design.
      test: of `tdd.exchangeability`.
      repetitions: designs.
    """
    centred = jnp.asarray(log_probs - log_probs[:, :1], jnp.float32)
    keys = jax.random.split(jax.random.key(num_shards), repetitions)
    p_values = _p_values(centred, keys, num_shards=num_shards, num_shuffles=num_shuffles, test=test)
    return float(np.mean(np.asarray(p_values) <= LEVEL * (1 + 1e-6)))


@functools.partial(jax.jit, static_argnames=("num_shards", "num_shuffles", "test"))
def _p_values(
    log_probs: jax.Array, keys: Sequence[jax.Array], *, num_shards: int, num_shuffles: int, test: Any
) -> jax.Array:
    def one(key: jax.Array) -> jax.Array:
        of_shards, of_shuffles, of_test = jax.random.split(key, 3)
        rows = jax.random.permutation(of_shards, log_probs.shape[0])[:num_shards]
        columns = 1 + jax.random.permutation(of_shuffles, log_probs.shape[1] - 1)[:num_shuffles]
        chosen = log_probs[rows]
        return exchangeability(chosen[:, 0], chosen[:, columns], test=test, key=of_test, num_draws=_DRAWS).p_value

    return jax.lax.map(one, keys, batch_size=50)
