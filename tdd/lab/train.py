"""Training on given texts, so that it is known what a model was trained on.

AdamW on the mean next-token loss, with warm-up, cosine decay and clipped gradients. All randomness comes from the seed
and the epoch, so a resumed run ends with the same bits as an uninterrupted one, on the same machine and versions.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tdd.lab.checks import check_texts
from tdd.lab.lora import Lora, adaptable
from tdd.lab.recipe import TrainConfig
from tdd.lab.state import RunFolder, RunRecord, run_fingerprint
from tdd.lab.step import Stepper, learning_rates, mean_loss
from tdd.lab.tokens import Batch, Batches, encode
from tdd.records import LanguageModel
from tdd.runs.display import progress_bar
from tdd.validate.settings import on_own_devices


class TrainResult(NamedTuple):
    """The result of `train`.

    Attributes:
      params: Trained parameters, float32; with LoRA, the base with the factors merged into it.
      history: One dict per epoch: epoch (from 1), step, loss (mean over the epoch's scored tokens, each at the
        parameters of its step), eval_loss (None without evaluation texts; of the float32 parameters).
      factors: LoRA's factors (`tdd.lab.lora`), or None.
    """

    params: Any
    history: tuple[dict[str, Any], ...]
    factors: Any = None


@on_own_devices()
def train(
    lm: LanguageModel,
    params: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    config: TrainConfig,
    lora: Lora | None = None,
    out: str | os.PathLike[str] | None = None,
    eval_texts: Sequence[str] | None = None,
    save_dtype: str = "float32",
    on_step: Callable[[int, Any], None] | None = None,
    progress: bool = False,
) -> TrainResult:
    """Train `lm` on `texts`, all of its parameters or LoRA's factors, starting at `params`.

    Every text is a sequence of its own, as it is when it is scored. A run with `out` saves its state there
    every `config.save_every` steps; called again with the same arguments after an interruption it continues
    from there. At the end the state is replaced by `checkpoint/` in Hugging Face's format and `training.json`
    (configuration, history). An interruption between two batches of one accumulated step loses only that step.

    Args:
      lm: The model; `tdd.models.language_model.language_model(spec)` or any other. Saving needs the former.
      params: Its parameters, left untouched; trained as float32.
      tokenizer: A Hugging Face tokenizer.
      texts: Training texts.
      config: Options of the training.
      lora: Adapt the model by low-rank factors: `params` are shared and unchanged, only the factors are trained and
        have optimizer state, and they are merged for evaluation, `on_step` and the checkpoint. None trains all.
      out: Folder for state and checkpoint, or None to keep everything in memory.
      eval_texts: Held-out texts, whose mean loss is computed after each epoch.
      save_dtype: Type of the checkpoint's weights: "float32", "bfloat16" or "float16".
      on_step: Called after each step as `on_step(step, params)`, steps counted from 1. The parameters are
        valid only during the call; copy what must outlive it.
      progress: Whether to show a progress bar on standard error, if that is a terminal.

    Raises:
      InputError: Unusable texts or configuration, or an `out` that holds a run of other inputs.

    Cost: 6 P flop per token and epoch for P parameters; memory 4 copies of the parameters (5 if gradients are
    accumulated) and the activations. LoRA saves the two copies that are optimizer state, not the flop: gradients pass
    through the merged matrices.
    """
    batches = _batches("texts", texts, lm, tokenizer, config)
    steps_per_epoch = -(-batches.per_epoch // config.accumulate)
    total_steps = config.epochs * steps_per_epoch
    rates = learning_rates(total_steps, peak=config.learning_rate, warmup=config.warmup, final=config.final)
    held_out = None if eval_texts is None else _batches("eval_texts", eval_texts, lm, tokenizer, config)
    stepper = Stepper(lm, config, lora, params)

    record, run = RunRecord(), None
    if out is not None:
        first = stepper.frozen if lora is not None else stepper.trained
        fingerprint = run_fingerprint(lm, first, config, batches, held_out, lora)
        run = RunFolder(out, lm, tokenizer, save_dtype, fingerprint)
        (stepper.trained, stepper.moments), record = run.open((stepper.trained, stepper.moments))

    with progress_bar("training", total_steps, enabled=progress, unit="steps") as advance:
        advance(record.step)
        for group in _remaining(batches, config, record.step):
            record = record.after_step(*stepper.step(group, rates[record.step], record.step))
            if on_step is not None:
                on_step(record.step, stepper.params)
            if record.step % steps_per_epoch == 0:
                record = record.after_epoch(None if held_out is None else mean_loss(lm, stepper.params, held_out))
            if run is not None and record.step % config.save_every == 0:
                run.save((stepper.trained, stepper.moments), record)
            advance(1, description=f"training, loss {record.recent_loss:.3f}")

    params = stepper.params
    if run is not None:
        if record.step % config.save_every:  # a run that is killed while its checkpoint is written goes on from here
            run.save((stepper.trained, stepper.moments), record)
        run.finish(params, config, lora, record)
    return TrainResult(params, record.history, None if lora is None else stepper.trained)


@on_own_devices()
def tune(
    lm: LanguageModel,
    params: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    epochs: int = 3,
    rate: float = 1e-3,
    rank: int = 16,
    seed: int = 0,
) -> tuple[Any, dict[str, Any]]:
    """Fine-tune a model on a few texts by LoRA, as the score "fsd" compares it with what it was.

    `train` with alpha = 2 `rank`, batches of 8 texts, a weight decay of 0.0005 on the factors, and a learning rate that
    rises to `rate` on the first tenth of the steps and falls to 0 by a cosine. The same arguments give the same bits on
    one machine and one set of versions.

    Returns:
      The parameters, float32, and what they depend on: the options, the steps and the loss of every epoch.

    Raises:
      InputError: as `train`; a rank beyond the smaller side of a matrix, or a model without adaptable matrices.

    Cost: `epochs` forward and backward passes over the texts; memory for a second copy of the parameters in float32.
    """
    lora = Lora(rank, 2.0 * rank, adaptable(params))
    config = TrainConfig(
        epochs=epochs, batch_size=8, learning_rate=rate, warmup=0.1, final=0.0, weight_decay=5e-4, seed=seed
    )
    result = train(lm, params, tokenizer, texts, config=config, lora=lora)
    record = {
        "lora": dataclasses.asdict(lora),
        **{name: getattr(config, name) for name in ("epochs", "batch_size", "learning_rate", "seed")},
        "steps": result.history[-1]["step"],
        "losses": [line["loss"] for line in result.history],
    }
    return result.params, record


def evaluation_loss(
    lm: LanguageModel, params: Any, tokenizer: Any, texts: Sequence[str], *, config: TrainConfig
) -> float:
    """Mean loss in nats over all scored tokens of `texts`, cut and batched as in training.

    Arguments as in `train`; `config` gives `max_length`, `batch_size` and `num_buckets`.
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


def _remaining(batches: Batches, config: TrainConfig, step: int) -> Iterator[list[Batch]]:
    """The batches of each remaining step of a run with `step` finished steps."""
    first, done = divmod(step, -(-batches.per_epoch // config.accumulate))
    for epoch in range(first, config.epochs):
        left = batches.epoch(epoch, start=done * config.accumulate if epoch == first else 0)
        while group := list(itertools.islice(left, config.accumulate)):
            yield group
