"""The decoder as a `LanguageModel`, with its gradient norms and its shared prefixes."""

from __future__ import annotations

import functools

from tdd.models.decoder import hidden, logits, readout
from tdd.models.gradients import grad_sqnorm
from tdd.models.prefix import hidden_after, prefix
from tdd.models.spec import DecoderSpec
from tdd.records import LanguageModel

__all__ = ["language_model"]


@functools.cache
def language_model(spec: DecoderSpec) -> LanguageModel:
    """The decoder as a `LanguageModel`: the same object for equal specs, so nothing retraces."""
    return LanguageModel(
        spec=spec,
        vocab_size=spec.vocab_size,
        max_length=spec.max_length,
        logits=functools.partial(logits, spec),
        hidden=functools.partial(hidden, spec),
        readout=functools.partial(readout, spec),
        soft_cap=spec.soft_cap,
        grad_sqnorm=functools.partial(grad_sqnorm, spec),
        prefix=functools.partial(prefix, spec),
        hidden_after=functools.partial(hidden_after, spec),
    )
