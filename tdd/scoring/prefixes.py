"""Log-probabilities of sequences that begin alike: the shared prefix goes through the model once.

The prefix is a program of its own, and batches of suffixes behind it are batches of the engine. Prefixes are padded to
few lengths, suffixes to few lengths and batch sizes: all share a handful of compiled programs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import LanguageModel
from tdd.scoring.buckets import Batch
from tdd.scoring.devices import Devices
from tdd.scoring.engine import BatchRunner
from tdd.scoring.programs import Rows, TokenProgram, padded
from tdd.scoring.token_stats import Tiling
from tdd.scoring.tokenise import Window


class PrefixSums:
    """Sums of log-probabilities of suffixes that follow a common prefix.

    Args:
      lm: A model with `prefix`, `hidden_after` and `readout`.
      params: Its parameters, on the devices.
      devices: Each holds the cache of the prefix and takes whole batches of suffixes.
      token_budget: Tokens of a batch of suffixes; a longer suffix is a batch of its own.
    """

    def __init__(
        self, lm: LanguageModel, params: Any, devices: Devices, tile: Tiling, *, token_budget: int = 2048
    ) -> None:
        self.limit, self.budget = lm.max_length, token_budget
        self._program = SuffixProgram(lm, params, devices, token_budget, tile)
        self._runner = BatchRunner(lambda: self._program, len(devices), halve=not devices.spans)

    def __call__(self, prefix: np.ndarray, suffixes: Sequence[np.ndarray]) -> np.ndarray:
        """Sums over t >= 1 of log p(suffix[t] | prefix, suffix[:t]).

        Args:
          prefix: [P] token ids before every suffix, at least one; the last prefix stays on the devices.
          suffixes: Token ids, at least two each. The first is the last token that all have in common.

        Returns:
          [suffixes] float64, nats, added up in float64.

        Cost: one pass of the trunk over P tokens, one over those of the suffixes (padded by at most an eighth in length
        and a third in number), and the readout for scored tokens. 8 L P G d bytes a device for the prefix.
        """
        self._program.put_prefix(prefix)
        length = padded_length(max(map(len, suffixes)), self.limit)
        size = padded_size(len(suffixes), max(1, self.budget // length))
        windows = tuple(Window(0, 1, len(suffix)) for suffix in suffixes)
        every = np.arange(len(suffixes))
        rows = Rows(tuple(suffixes), every, windows, ("log_prob",))
        batches = [Batch("suffix", every[i : i + size], size, length) for i in range(0, len(every), size)]
        while True:
            halvings = self._runner.halvings
            parts = self._runner.run(enumerate(batches), lambda kind: rows)
            sums = [row_sums(values[0], rows.num_targets(batch.rows)) for _, batch, values in parts]
            if self._runner.halvings == halvings:  # else their shapes differ, and so may their rounding
                return np.concatenate(sums)


class SuffixProgram(TokenProgram):
    """Token statistics of suffixes behind the prefix that was put last."""

    _prefix: bytes | None = None
    _cache: Any = None

    def put_prefix(self, prefix: np.ndarray) -> None:
        """Compute what the prefix leaves behind on every device."""
        if self._prefix == prefix.tobytes():
            return
        self._prefix = self._cache = None  # two would be held at once
        length = padded_length(len(prefix), self.lm.max_length, steps=2, least=32)
        lanes = len(self.devices)
        tokens = self.devices.put([padded(prefix, length)[None]] * lanes)
        counts = self.devices.put([np.int32(len(prefix))] * lanes)
        self._cache = _prefix(self.lm, self.devices, self.params, tokens, counts)
        self._prefix = prefix.tobytes()

    def _hidden(self, tokens: Any, positions: Any, places: Any = None) -> jax.Array:
        return _trunk(self.lm, self.devices, self.params, self._cache, tokens, positions)


def row_sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sums in float64 of values [columns], `counts` of each row in turn."""
    return np.array([part.sum(dtype=np.float64) for part in np.split(values, np.cumsum(counts)[:-1])])


def padded_length(length: int, limit: int | None, *, steps: int = 8, least: int = 8) -> int:
    """The next of `steps` lengths an octave, multiples of `least`; never beyond the limit.

    >>> [padded_length(n, 1024) for n in (5, 65, 500, 1000)]
    [8, 72, 512, 1024]
    """
    step = max(least, (1 << (max(length, 1) - 1).bit_length()) // (2 * steps))
    rounded = -(-length // step) * step
    return rounded if limit is None else min(rounded, limit)


def padded_size(count: int, most: int) -> int:
    """Rows of a batch: `count` in as few batches of at most `most` as possible, rounded up to 1, 2, 3, 4, 6, 8, 12, ...

    >>> [padded_size(n, 16) for n in (1, 5, 16, 17, 51)]
    [1, 6, 16, 12, 16]
    """
    num_batches = -(-count // most)
    size = -(-count // num_batches)
    top = 1 << (size - 1).bit_length()
    return min(top * 3 // 4 if top >= 4 and size <= top * 3 // 4 else top, most)


@functools.partial(jax.jit, static_argnames=("lm", "devices"))
def _prefix(lm: LanguageModel, devices: Devices, params: Any, tokens: jax.Array, num_real: jax.Array) -> Any:
    assert lm.prefix is not None
    return devices.each(lm.prefix, params, tokens, num_real)


@functools.partial(jax.jit, static_argnames=("lm", "devices"))
def _trunk(
    lm: LanguageModel, devices: Devices, params: Any, cache: Any, tokens: jax.Array, positions: jax.Array
) -> jax.Array:
    hidden_after = lm.hidden_after
    assert hidden_after is not None

    def on_device(params: Any, cache: Any, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        hidden = hidden_after(params, cache, tokens)
        return jnp.take(hidden.reshape(-1, hidden.shape[-1]), positions, axis=0, mode="clip")

    return devices.each(on_device, params, cache, tokens, positions)
