"""A probe in loops and beside metric writers of other libraries. None of them is imported.

A writer has one of these methods, of which the first is called, or is a function of (step, scalars):

    write_scalars(step, scalars)         clu.metric_writers
    add_scalar(name, value, step)        tensorboardX, torch.utils.tensorboard
    scalar(name, value, step)            flax.metrics.tensorboard
    log(scalars, step=step)              wandb, Levanter's trackers
    log_metrics(scalars, step=step)      mlflow, comet

Anything else raises `InputError` before training. In a run of several processes every process calls the probe, as it
calls the training step; give writers to one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tdd.validate import InputError

_METHODS = ("write_scalars", "add_scalar", "scalar", "log", "log_metrics")


def logged(probe: Any, *writers: Any) -> Callable[[int, Any], Any]:
    """The probe with its numbers handed to writers: call it after every training step as `(step, params)`.

        watch = logged(probe, metric_writers.create_default_writer(workdir))
        for step, batch in enumerate(batches):
            state = train_step(state, batch)
            watch(step, state.params)

    Args:
      probe: a `tdd.Probe`.
      *writers: each gets `record.scalars()` of every look; see the top of this module.

    Returns:
      A function that returns what the probe returns: a record, or None if no look was due.
    """
    for writer in writers:
        _sender(writer)

    def watch(step: int, params: Any) -> Any:
        record = probe(step, params)
        if record is not None:
            for writer in writers:
                write_scalars(writer, record.step, record.scalars())
        return record

    return watch


def periodic_action(probe: Any, params: Callable[[], Any], *writers: Any) -> Callable[..., bool]:
    """A hook of CLU's loops, called as `hook(step)` or `hook(step, t)` beside `clu.periodic_actions`.

        hooks = [
            periodic_actions.ReportProgress(num_train_steps=num_steps, writer=writer),
            periodic_action(probe, lambda: state.params, writer),  # where the loop assigns `state`
        ]

    Args:
      probe: a `tdd.Probe`.
      params: returns the current parameters; called only when a look is due.
      *writers: see the top of this module.

    Returns:
      A hook that returns whether it looked.
    """
    watch = _when_due(probe, lambda _: params(), writers)

    def hook(step: int, t: float | None = None) -> bool:
        del t
        return watch(step, None) is not None

    return hook


def levanter_hook(probe: Any, params: Callable[[Any], Any], *writers: Any) -> Callable[[Any], None]:
    """A hook of Levanter's trainer, called with its `StepInfo`.

        hook = levanter_hook(probe, lambda info: arrays_of(info.model), levanter.tracker)
        trainer.add_hook(hook, every=probe.every)

    Steps are counted as Levanter counts them: from 0, `info.step` is the one that was just completed. The last call of
    a run, which Levanter forces at any step, looks only if a look is due at its step.

    Args:
      probe: a `tdd.Probe`.
      params: (StepInfo) -> the parameters that the probe's model takes: for an Equinox model
        `equinox.filter(info.model, equinox.is_array)` where the logits put the rest back.
      *writers: see the top of this module; `levanter.tracker` itself is one.
    """
    watch = _when_due(probe, params, writers)

    def hook(info: Any) -> None:
        watch(int(info.step), info)

    return hook


def tunix_hooks(probe: Any, params: Callable[[Any], Any], *writers: Any) -> Any:
    """Training hooks of tunix's `PeftTrainer`.

        def logits(model, tokens):  # models of tunix take positions, cache and mask, and return logits and cache
            length = tokens.shape[1]
            positions = jnp.broadcast_to(jnp.arange(length), tokens.shape)
            return model(tokens, positions, None, jnp.tril(jnp.ones((1, length, length), bool)))[0]

        adapted = functools.partial(tdd.from_nnx, vocab_size=V, method=logits)
        probe = tdd.Probe(adapted(model)[0], suspect=..., reference=..., tokenizer=tokenizer)
        trainer = PeftTrainer(model, optimizer, config)
        trainer.with_training_hooks(tunix_hooks(probe, lambda trainer: adapted(trainer.model)[1]))

    The step is `trainer.train_steps`, the number of updates that the parameters have had: the step that tunix passes
    to the hook is that of buffered metrics, one behind. A trainer has one set of hooks; if it is taken, call
    `logged(probe, ...)(trainer.train_steps, params)` in its `on_train_step_end`.

    Args:
      probe: a `tdd.Probe`.
      params: (trainer) -> the parameters that the probe's model takes; called only when a look is due.
      *writers: see the top of this module; without any, the numbers go to the trainer's own metrics logger, under
        "tdd".

    Returns:
      An object with the methods of `tunix.sft.hooks.TrainingHooks`.
    """
    return _TunixHooks(probe, params, writers)


class _TunixHooks:
    """The methods of `tunix.sft.hooks.TrainingHooks`; see `tunix_hooks`."""

    def __init__(self, probe: Any, params: Callable[[Any], Any], writers: tuple[Any, ...]) -> None:
        self._to_trainer = not writers
        self._watch = _when_due(probe, params, writers)

    def on_train_step_end(self, train_ctx: Any, train_step: Any = None, train_loss: Any = None) -> None:
        record = self._watch(train_ctx.train_steps, train_ctx)
        if record is not None and self._to_trainer:
            for name, value in record.scalars(prefix="").items():
                train_ctx.metrics_logger.log("tdd", name, value, "train", record.step)

    on_train_start = on_train_end = on_train_step_end  # a look if one is due at the first and at the last step

    def on_train_step_start(self, train_ctx: Any, eval_loss: Any = None) -> None:
        del train_ctx, eval_loss

    on_eval_step_start = on_eval_step_end = on_train_step_start


def write_scalars(writer: Any, step: int, scalars: Mapping[str, float]) -> None:
    """Hand named numbers of a step to a writer; see the top of this module."""
    _sender(writer)(step, scalars)


def _sender(writer: Any) -> Callable[[int, Mapping[str, float]], Any]:
    """The writer as a function of (step, scalars)."""
    methods = ((name, getattr(writer, name, None)) for name in _METHODS)
    name, send = next(((name, method) for name, method in methods if callable(method)), ("", writer))
    if not callable(send):
        raise InputError(
            f"writer {type(writer).__name__} has none of the methods {', '.join(_METHODS)} and cannot be called; pass "
            "a function of (step, scalars)"
        )

    def one_by_one(step: int, scalars: Mapping[str, float]) -> None:
        for key, value in scalars.items():
            send(key, value, step)

    if name in ("add_scalar", "scalar"):
        return one_by_one
    if name in ("log", "log_metrics"):
        return lambda step, scalars: send(dict(scalars), step=step)
    return send


def _when_due(probe: Any, params: Callable[[Any], Any], writers: tuple[Any, ...]) -> Callable[[int, Any], Any]:
    """(step, context) -> record or None; `params(context)` is called only if a look is due."""
    watch = logged(probe, *writers)
    return lambda step, context: watch(step, params(context)) if probe.due(step) else None
