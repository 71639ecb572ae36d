"""Training on given texts, so that it is known what a model was trained on.

The loop is plain: AdamW on the mean next-token loss, warm-up, cosine, clipped gradients, float32. Everything
random comes from the seed and the epoch, so a run that is interrupted and resumed ends with the same bits as
one that is not (on the same machine and versions).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tdd.lab.batches import Batch, Batches, encode
from tdd.lab.config import TrainConfig
from tdd.lab.optimizer import adamw_direction, learning_rates
from tdd.lab.state import CHECKPOINT_FOLDER, RunFolder, RunRecord, run_fingerprint
from tdd.lab.step import mean_loss, update
from tdd.records import LanguageModel
from tdd.validate.lab import check_texts

__all__ = ["CHECKPOINT_FOLDER", "TrainConfig", "TrainResult", "evaluation_loss", "train"]


class TrainResult(NamedTuple):
    """What `train` returns.

    Attributes:
      params: trained parameters, float32.
      history: one dict an epoch: epoch (from 1), step, loss (mean over the epoch's scored tokens, each at the
        parameters of its step), eval_loss (None without evaluation texts).
    """

    params: Any
    history: tuple[dict[str, Any], ...]


def train(
    lm: LanguageModel,
    params: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    config: TrainConfig,
    out: str | os.PathLike[str] | None = None,
    eval_texts: Sequence[str] | None = None,
    save_dtype: str = "float32",
    on_step: Callable[[int, Any], None] | None = None,
    progress: bool = False,
) -> TrainResult:
    """Train all parameters of `lm` on `texts`; from `params`, be they random or a checkpoint's.

    Every text is a sequence of its own, as it is when it is scored. A run with `out` saves its state there
    every `config.save_every` steps; called again with the same arguments after an interruption it goes on
    from there. At the end the state gives way to `checkpoint/` in Hugging Face's format and `training.json`
    (configuration, history).

    Args:
      lm: the model; `tdd.models.decoder.language_model(spec)` or any other. Saving needs the former.
      params: its parameters, left untouched; trained as float32.
      tokenizer: a Hugging Face tokenizer.
      texts: what to train on.
      config: how to train.
      out: folder for state and checkpoint, or None to keep everything in memory.
      eval_texts: held-out texts, whose mean loss is computed after each epoch.
      save_dtype: dtype of the checkpoint's weights: "float32", "bfloat16" or "float16".
      on_step: called after each step as `on_step(step, params)`, steps counted from 1. The parameters are
        valid only during the call; copy what must outlive it.
      progress: whether to show a progress bar on standard error.

    Raises:
      InputError: unusable texts or configuration, or an `out` that holds a run of other inputs.

    Cost: 6 P flop a token and epoch for P parameters; memory 4 copies of the parameters and the activations.
    """
    batches = _batches("texts", texts, lm, tokenizer, config)
    total_steps = config.epochs * batches.per_epoch
    rates = learning_rates(total_steps, peak=config.learning_rate, warmup=config.warmup, final=config.final)
    held_out = None if eval_texts is None else _batches("eval_texts", eval_texts, lm, tokenizer, config)
    params = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32, copy=True), params)
    optimizer = adamw_direction(
        beta1=config.beta1,
        beta2=config.beta2,
        eps=config.eps,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
    )
    moments = optimizer.init(params)

    record, run = RunRecord(), None
    if out is not None:
        run = RunFolder(out, lm, tokenizer, save_dtype, run_fingerprint(lm, params, config, batches, held_out))
        (params, moments), record = run.open((params, moments))

    with _progress_bar(progress, total_steps, record.step) as advance:
        for batch in _remaining(batches, config.epochs, record.step):
            rate = rates[record.step]
            params, moments, loss, count = update(lm, optimizer, params, moments, *batch, rate)
            record = record.after_step(float(loss), int(count))
            if on_step is not None:
                on_step(record.step, params)
            if record.step % batches.per_epoch == 0:
                record = record.after_epoch(None if held_out is None else mean_loss(lm, params, held_out))
            if run is not None and record.step % config.save_every == 0:
                run.save((params, moments), record)
            advance(record)

    if run is not None:
        run.finish(params, config, record)
    return TrainResult(params, record.history)


def evaluation_loss(
    lm: LanguageModel, params: Any, tokenizer: Any, texts: Sequence[str], *, config: TrainConfig
) -> float:
    """Mean loss in nats over all scored tokens of `texts`, cut and batched as in training.

    Args:
      lm: the model.
      params: its parameters.
      tokenizer: a Hugging Face tokenizer.
      texts: what to evaluate on.
      config: for `max_length`, `batch_size` and `num_buckets`.
    """
    return mean_loss(lm, params, _batches("texts", texts, lm, tokenizer, config))


def _batches(name: str, texts: Sequence[str], lm: LanguageModel, tokenizer: Any, config: TrainConfig) -> Batches:
    """Texts as shuffled batches of token ids."""
    check_texts(name, texts)
    max_length = min(config.max_length, lm.max_length or config.max_length)
    return Batches(
        encode(name, tokenizer, texts, max_length=max_length, vocab_size=lm.vocab_size),
        batch_size=config.batch_size,
        num_buckets=config.num_buckets,
        max_length=max_length,
        seed=config.seed,
    )


def _remaining(batches: Batches, epochs: int, step: int) -> Iterator[Batch]:
    """The batches that a run of `step` finished steps has still to see."""
    first, done = divmod(step, batches.per_epoch)
    for epoch in range(first, epochs):
        yield from batches.epoch(epoch, start=done if epoch == first else 0)


@contextlib.contextmanager
def _progress_bar(shown: bool, total: int, done: int) -> Iterator[Callable[[RunRecord], None]]:
    """A bar on standard error; gives the function to call with the record after each step."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps, loss {task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        task = bar.add_task("training", total=total, completed=done, loss="?")

        def advance(record: RunRecord) -> None:
            bar.update(task, completed=record.step, loss=f"{record.recent_loss:.3f}")

        yield advance
