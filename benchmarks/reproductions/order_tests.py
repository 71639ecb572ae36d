"""Every test of canonical order on many data sets under one model, by the pieces of `tdd.run_exchange`."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tdd.records import Texts

if TYPE_CHECKING:
    from benchmarks.reproductions.models import Base

__all__ = ["ORDER_TESTS", "order_tests"]

ORDER_TESTS = ("rank_sum", "exact", "combined", "t", "permutation")


def order_tests(
    model: Base,
    sets: Mapping[str, Texts],
    *,
    num_shards: int,
    num_shuffles: int,
    seed: int,
    folder: pathlib.Path | None = None,
    separator: str = "\n\n",
    progress: bool = False,
    fewer: Sequence[int] = (),
) -> dict[str, dict[str, Any]]:
    """Test each data set.

    Args:
      model: The model.
      sets: Name -> examples in canonical order.
      num_shards: r.
      num_shuffles: k.
      seed: Random seed of shuffles and relabellings.
      folder: Keeps scored batches, so that an interrupted pass continues; None keeps nothing.
      separator: String between two examples.
      progress: Whether to show a bar.
      fewer: Numbers of shuffles below `num_shuffles`; the tests are also those of the first so many shuffles.

    Returns:
      Name -> num_tokens; loss (nats a token in canonical order); effect (canonical minus mean shuffled log-probability,
      averaged over shards, over the root mean variance of the shuffles within a shard); tests (name -> p_value,
      log_p_value, statistic, log_smallest_p); with `fewer`, by_shuffles (number of
      shuffles as a word -> tests).
    """
    import contextlib

    import jax

    from tdd.exchange.data import Options, Shards, load_sets
    from tdd.exchange.passes import run_sets
    from tdd.exchange.result import tests_of
    from tdd.runs.display import progress_bar
    from tdd.scoring.devices import find_devices
    from tdd.scoring.how import Run
    from tdd.scoring.inputs import Model
    from tdd.scoring.store import ScoreStore

    shards = [Shards.cut(data, num_shards=num_shards, suffix=1.0, seed=seed) for data in load_sets(dict(sets))]
    tested = Model(model.lm, model.params, model.tokenizer, "model")
    where = find_devices(None, None, shard_params=False)
    how = Run(token_budget=4096 if where.platform == "cpu" else 65_536)
    options = Options(separator=separator, how=how)
    calls = len(shards) * num_shards * (num_shuffles + 1)
    with contextlib.ExitStack() as stack:
        store = None if folder is None else stack.enter_context(ScoreStore(folder))
        advance = stack.enter_context(progress_bar("orders", calls, enabled=progress, unit="orders"))
        passes = run_sets(
            tested, where, shards, [num_shuffles] * len(shards), options,
            sequences=[None] * len(shards), store=store, advance=advance,
        )  # fmt: skip
    results = {}
    for number, scored in enumerate(passes):
        canonical, shuffled = scored.log_probs[:, 0], scored.log_probs[:, 1:]
        key = jax.random.fold_in(jax.random.key(seed), number)
        by_shuffles = {k: tests_of(canonical, shuffled[:, :k], ORDER_TESTS, key)[0] for k in (*fewer, num_shuffles)}
        spread = float(np.sqrt(shuffled.var(axis=1, ddof=1).mean()))
        tokens = int(scored.rows.num_tokens.sum())
        results[scored.shards.data.name] = {
            "num_tokens": tokens,
            "loss": -float(canonical.sum()) / tokens,
            "effect": float((canonical - shuffled.mean(axis=1)).mean()) / spread if spread else 0.0,
            "tests": by_shuffles[num_shuffles],
            **({"by_shuffles": {str(k): tests for k, tests in by_shuffles.items()}} if fewer else {}),
        }
    return results
