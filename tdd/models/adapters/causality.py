"""A cheap test that an adapted model is causal and that its parts agree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import LanguageModel
from tdd.validate import InputError
from tdd.validate.files import check_tokens

__all__ = ["check_causal"]


def check_causal(lm: LanguageModel, params: Any, tokens: Any, *, tolerance: float = 1e-4) -> None:
    """Fail unless logits at position t depend on tokens 0..t only, and `hidden` and `readout` reproduce them.

    For up to four cuts, the tokens after the cut are replaced by others; logits before the cut must not change. The
    scores of a model that sees later tokens look plausible and mean nothing.

    Args:
      lm: The model.
      params: Its parameters.
      tokens: [B, T] token ids, T >= 2; 16 tokens of one text are enough.
      tolerance: Largest change of a logit, relative to the largest logit.

    Raises:
      InputError: The model is not causal, its logits are not finite, or the fast path differs from them.

    Cost: One forward pass over 5 B rows.
    """
    rows = np.asarray(tokens)
    check_tokens(rows.shape, rows.dtype, lm.max_length)
    if rows.shape[1] < 2:
        raise InputError(f"tokens have shape {tuple(rows.shape)}; causality is tested on two tokens or more")
    batch, length = rows.shape
    cuts = sorted({1, length // 3, 2 * length // 3, length - 1} - {0})
    other = (rows + 1 + np.arange(length) % max(1, lm.vocab_size - 1)) % lm.vocab_size
    changed = [np.where(np.arange(length) < cut, rows, other) for cut in cuts]
    everything = jnp.asarray(np.concatenate([rows, *changed]), jnp.int32)
    name = str(getattr(lm.spec, "name", type(lm.spec).__name__))
    logits = np.asarray(jax.jit(lm.logits)(params, everything)).reshape(len(cuts) + 1, batch, length, -1)
    if np.isnan(logits).any() or np.isposinf(logits).any():  # minus infinity excludes a token on purpose
        raise InputError(f"the logits of {name!r} hold NaN or infinity; check its parameters")
    scale = max(1e-30, float(np.abs(logits[np.isfinite(logits)]).max(initial=0)))
    for cut, altered in zip(cuts, logits[1:], strict=True):
        change = _difference(altered[:, :cut], logits[0, :, :cut]).max(axis=(0, 2)) / scale
        position = int(np.argmax(change > tolerance))
        if change[position] > tolerance:
            raise InputError(
                f"{name!r} is not causal: its logits at position {position} change by {change[position]:.1e} of the "
                f"largest logit when tokens {cut} and later are replaced; give it a causal attention mask, and shift "
                "nothing: logits at position t describe token t + 1"
            )
    if lm.hidden is not None and lm.readout is not None:
        hidden = jax.jit(lm.hidden)(params, everything[:batch])
        fast = jnp.einsum("btd,vd->btv", hidden, lm.readout(params), precision="highest").astype(jnp.float32)
        fast = fast if lm.soft_cap is None else lm.soft_cap * jnp.tanh(fast / lm.soft_cap)
        difference = float(_difference(np.asarray(fast), logits[0]).max()) / scale
        if not difference <= tolerance:
            raise InputError(
                f"hidden and readout of {name!r} do not reproduce its logits (relative difference {difference:.1e}): "
                "hidden must include the final norm, readout is [V, D], a bias or scale of the head is not part of it"
            )


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b|, and 0 where both exclude a token (minus infinity)."""
    return np.abs(np.subtract(a, b, out=np.zeros_like(a), where=a != b))
