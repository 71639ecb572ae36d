"""Has a benchmark leaked into the training data, and when: watched while training goes on."""

from __future__ import annotations

from typing import Any

from tdd.probe.benchmark_order import OrderContamination
from tdd.probe.benchmark_watch import Contamination
from tdd.validate.errors import InputError

__all__ = ["contamination"]


def contamination(
    lm: Any,
    benchmark: Any,
    reference: Any = None,
    *,
    tokenizer: Any = None,
    alpha: float = 0.05,
    every: int = 500,
    num_steps: int | None = None,
    score: str = "loss",
    num_shards: int | None = None,
    num_shuffles: int | None = None,
    separator: Any = None,
    name: str = "contamination",
    **options: Any,
) -> Contamination:
    r"""Watch a held-out benchmark while a model is trained, and say with control when it has leaked into training.

        watch = tdd.probe.contamination(lm, benchmark, fresh_items, tokenizer=tokenizer, every=500, num_steps=20_000)
        for step, batch in enumerate(batches):
            params, opt_state = train_step(params, opt_state, batch)
            watch(step, params)
            if watch.alarm:
                print(watch.leak())

    With `reference`, the items are compared with items of the same kind that are certainly not in the training data.
    Without, the order of the benchmark is its own reference: contiguous shards of it in the published order are
    compared with `num_shuffles` other orders of the same items (`OrderContamination`), which finds a benchmark that
    was trained on as a file, and names no items.

    Guarantee: P(alarm at any look of the whole run) <= alpha if the benchmark is not in the training data; finite-
    sample, for the looks that `every` fixes beforehand. It assumes that benchmark and reference are a random division
    of texts of one kind, chosen and prepared alike; without a reference, that the published order is random and nothing
    else of the training depends on it.

    Args:
      lm: the model that is trained: a `LanguageModel` or a function `logits(params, tokens) -> [B, T, V]`.
      benchmark: the items: strings, `Texts`, what `tdd.load_texts` reads, or rows of token ids.
      reference: items of the same kind, likewise; None: other orders of the benchmark.
      tokenizer: for strings.
      alpha: level of the alarm over the whole run.
      every: steps between two looks.
      num_steps: steps of the whole run; None where that is not known.
      score: as in `Probe`.
      num_shards: without a reference: contiguous parts of the benchmark; by default as many as hold up to 8 items
        and fit the context.
      num_shuffles: without a reference: other orders of each shard; a look costs 1 + num_shuffles times the
        benchmark. 9 by default.
      separator: without a reference: text (or token ids) between two items, "\n\n" by default.
      name: shown in reports.
      options: further options of `Probe`: baseline, statistic, num_draws, max_length, seed, ...

    Returns:
      A `Probe` with one more method, `leak() -> Leak | None`: when it began (an estimate), by when it is certain, how
      many items at least, and which.

    Raises:
      InputError: as `Probe`; options of the order with a reference; shards too small for so many orders.

    References: the order of a data set: the sharded exchangeability test, section 3.2.
    """
    common = {"alpha": alpha, "every": every, "num_steps": num_steps, "score": score, "name": name, **options}
    if reference is not None:
        _check_no_options(num_shards=num_shards, num_shuffles=num_shuffles, separator=separator)
        return Contamination(lm, benchmark, reference, tokenizer=tokenizer, **common)
    return OrderContamination(
        lm,
        benchmark,
        tokenizer=tokenizer,
        num_shards=num_shards,
        num_shuffles=9 if num_shuffles is None else num_shuffles,
        separator="\n\n" if separator is None else separator,
        **common,
    )


def _check_no_options(**options: Any) -> None:
    """Nothing is said of the order of a benchmark that is compared with a reference."""
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name}={value!r} is for a benchmark whose order is its own reference: leave it out, or leave out "
                "reference"
            )
