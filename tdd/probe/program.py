"""Parameters → scores of all rows → `ProbeResult`; pure, one program, no copy of the parameters.

The rows lie in micro-batches of few shapes. `lax.map` goes through those of one shape one after another, so that
memory holds the activations of a single micro-batch, and of the logits a single tile where the model has `hidden` and
`readout`, or one micro-batch [B, T, V] where it only has `logits`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tdd.kernels.token_stats import tile_log_prob
from tdd.probe.evidence import ProbeResult
from tdd.probe.gradients import quantiles
from tdd.probe.inputs import Bucket, Layout
from tdd.procedures.ptdi import ProportionName, ptdi
from tdd.records import LanguageModel, TokenStats
from tdd.scoring.gradients import grad_norms
from tdd.scoring.scores.parts import orders_of
from tdd.scoring.scores.score import parse_score
from tdd.scoring.token_stats import head_log_prob, tiling, token_stats
from tdd.validate import InputError
from tdd.validate.arrays import in_whole

_ABSENT = tuple(
    field.name for field in dataclasses.fields(TokenStats) if field.name not in ("log_prob", "mask", "renyi")
)


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything that is static about an evaluation; probes that are alike share compiled programs."""

    lm: LanguageModel  # vocab_size 0 where only its logits can tell
    score: str
    sizes: tuple[int, int, int, int]  # suspects, references, canaries, canary references
    alpha: float
    proportion: ProportionName
    largest_id: int  # of any row

    def __call__(self, params: Any, layout: Layout, gradients: Layout | None) -> ProbeResult:
        """See `Probe.evaluate`; `gradients` holds the suspects, or is None where their norms are not asked for."""
        scores = _in_place(layout, functools.partial(self._scores, params))
        suspect, reference, canary, canary_reference = jnp.split(scores, np.cumsum(self.sizes)[:-1])
        masks = {"calibration_mask": jnp.isfinite(reference), "mask": jnp.isfinite(suspect)}
        selection = ptdi(reference, suspect, alpha=self.alpha, proportion=self.proportion, **masks)
        selected = selection.selected & masks["calibration_mask"].any()
        rank, num_ranks = _canary_rank(canary, canary_reference), self.sizes[3] + 1
        exposures = np.log2(num_ranks) - np.log2(np.arange(1, num_ranks + 1))
        return ProbeResult(
            suspect_scores=suspect,
            reference_scores=reference,
            p_values=selection.p_values,
            adjusted=selection.adjusted,
            selected=selected,
            num_flagged=selected.sum(dtype=jnp.int32),
            proportion=selection.proportion,
            canary_scores=canary,
            canary_rank=rank,
            canary_exposure=jnp.asarray(exposures.astype(np.float32))[rank - 1],
            canary_p_values=rank.astype(jnp.float32) / num_ranks,
            grad_norm_quantiles=self._grad_norm_quantiles(params, gradients),
            num_not_finite=(~jnp.isfinite(scores)).sum(dtype=jnp.int32),
        )

    def _scores(self, params: Any, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Scores [B] of one micro-batch [B, T]."""
        lm, mask, request = self._checked_model(params, tokens), _scored(tokens, lengths), parse_score(self.score)
        if set(request.computed) <= {"log_prob"}:
            log_prob = _log_probs(lm, params, tokens, mask)
            absent: dict[str, Any] = dict.fromkeys(_ABSENT, log_prob)
            stats = TokenStats(log_prob=log_prob, mask=mask, **absent)
        else:
            stats = token_stats(lm, params, tokens, mask, orders=orders_of(request.reads))
        return request.rows(stats).astype(jnp.float32)

    def _grad_norm_quantiles(self, params: Any, layout: Layout | None) -> jax.Array:
        if layout is None:
            return jnp.zeros(0, jnp.float32)

        def norms(tokens: jax.Array, lengths: jax.Array) -> jax.Array:
            return grad_norms(self._checked_model(params, tokens), params, tokens, _scored(tokens, lengths)).total

        return quantiles(_in_place(layout, norms))

    def _checked_model(self, params: Any, tokens: jax.Array) -> LanguageModel:
        """The model, once its results are known to be of the right shape and type; costs nothing at run time."""
        lm = self.lm
        if lm.hidden is None or lm.readout is None:
            name = str(getattr(lm.spec, "name", type(lm.spec).__name__))
            logits = jax.eval_shape(lm.logits, params, tokens)
            vocab_size = _check_logits(name, logits, tokens.shape, lm.vocab_size or None)
            if self.largest_id >= vocab_size:
                raise InputError(
                    f"the texts hold token id {self.largest_id}, but the logits are those of a vocabulary of "
                    f"{vocab_size}; pass the tokenizer, or the token ids, that the model is trained with"
                )
            return dataclasses.replace(lm, vocab_size=vocab_size)
        return lm


def as_language_model(model: Any, max_length: int | None) -> LanguageModel:
    """A `LanguageModel` as it is; a function `logits(params, tokens)` as one whose vocabulary its logits will tell."""
    if isinstance(model, LanguageModel):
        return model
    if any(kind.__name__ == "Module" and kind.__module__.startswith("flax.") for kind in type(model).__mro__):
        raise InputError(
            f"lm is the flax module {type(model).__name__} itself; pass tdd.from_linen(module, vocab_size=V), or the "
            "first of what tdd.from_nnx(module, vocab_size=V) returns"
        )
    if any(kind.__name__ == "Module" and kind.__module__.startswith("equinox.") for kind in type(model).__mro__):
        raise InputError(
            f"lm is the Equinox module {type(model).__name__} itself; pass the first of what "
            "tdd.from_equinox(module, vocab_size=V) returns"
        )
    if not callable(model):
        raise InputError(
            f"lm is {type(model).__name__}; pass a LanguageModel (tdd.load, tdd.from_linen, tdd.from_nnx, ...) or a "
            "function logits(params, tokens) -> [B, T, V]"
        )
    function: Any = model
    return LanguageModel(spec=_Function(function), vocab_size=0, max_length=max_length, logits=function)


@dataclasses.dataclass(frozen=True)
class _Function:
    """A logits function as the spec of a model."""

    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return f"the function {getattr(self.function, '__name__', type(self.function).__name__)!r}"


def _in_place(layout: Layout, batch_fn: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """One number of every row, in the order of the rows: [N]."""

    def bucket_numbers(bucket: Bucket) -> jax.Array:
        return lax.map(lambda batch: batch_fn(*batch), tuple(jnp.asarray(part) for part in bucket)).reshape(-1)

    return jnp.take(jnp.concatenate([bucket_numbers(bucket) for bucket in layout.buckets]), layout.place)


def _scored(tokens: jax.Array, lengths: jax.Array) -> jax.Array:
    """Mask of the scored tokens: all of a text but the first."""
    position = jnp.arange(tokens.shape[1])
    return (position >= 1) & (position < lengths[:, None])


def _log_probs(lm: LanguageModel, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    """log p of every scored token, [B, T]; the other statistics are not computed."""
    targets, scored = (jnp.roll(x, -1, axis=1).reshape(-1) for x in (tokens, mask))
    if lm.hidden is None or lm.readout is None:
        logits = in_whole(lm.logits(params, tokens))
        on_cpu, elsewhere = (functools.partial(tile_log_prob, block=tiling(name).block) for name in ("cpu", "gpu"))
        log_prob = lax.platform_dependent(logits.reshape(-1, logits.shape[-1]), targets, cpu=on_cpu, default=elsewhere)
    else:
        hidden = in_whole(lm.hidden(params, tokens))
        log_prob = head_log_prob(lm, params, hidden.reshape(-1, hidden.shape[-1]), targets, scored, None)
    return jnp.roll(log_prob.reshape(mask.shape), 1, axis=1)


def _canary_rank(scores: jax.Array, references: jax.Array) -> jax.Array:
    """1 + how many references score as low or lower; ties and scores that are not finite count against the canary."""
    below = ~(references[None, :] > scores[:, None]) | ~jnp.isfinite(references)[None, :]
    return 1 + jnp.where(jnp.isfinite(scores)[:, None], below, True).sum(1, dtype=jnp.int32)


def _check_logits(name: str, logits: Any, tokens: Sequence[int], vocab_size: int | None) -> int:
    """Logits [B, T, V] of a floating type; returns V."""
    wanted = f"floating logits [B, T, V] = ({tokens[0]}, {tokens[1]}, {vocab_size or 'V'})"
    if not hasattr(logits, "shape") or not hasattr(logits, "dtype"):
        raise InputError(f"{name} returned {type(logits).__name__}; expected one array of {wanted}")
    shape = tuple(logits.shape)
    right = len(shape) == 3 and shape[:2] == tuple(tokens) and vocab_size in (None, shape[2])
    if not right or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise InputError(f"{name} returned {logits.dtype} of shape {shape}; expected {wanted}")
    return shape[2]
