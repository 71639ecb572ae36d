"""The compiled programs of a pass: token statistics and gradient norms of batches of rows.

Token statistics take two programs a batch: the trunk, compiled once a bucket, gathers the hidden states of the scored
positions into one buffer of fixed capacity; the head, compiled once for all buckets, makes statistics of it. A model
that only has `logits` takes one program a bucket.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import LanguageModel
from tdd.scoring.buckets import STEP
from tdd.scoring.devices import Devices
from tdd.scoring.scores.parts import orders_of
from tdd.scoring.token_stats import Tiling, model_statistics, trunk_rows, wanted_statistics
from tdd.scoring.tokenise import Window


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of one pass: windows over tokenised texts."""

    tokens: tuple[np.ndarray, ...]  # token ids of each text
    text: np.ndarray  # [R] index of the text of each row
    windows: Sequence[Window]  # [R] window of each row
    statistics: tuple[str, ...]  # fields of `TokenStats` that the pass delivers
    # token ids in front of every row, none of them scored
    before: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row: [R]."""
        return len(self.before) + np.array([window.stop - window.start for window in self.windows], np.int64)

    def num_targets(self, rows: np.ndarray) -> np.ndarray:
        """Scored targets of the given rows."""
        return np.array([self.windows[row].stop - self.windows[row].first_target for row in rows], np.int64)


class _Laid(NamedTuple):
    """A piece of rows, row after row."""

    tokens: np.ndarray  # [size, length]
    positions: np.ndarray  # flat positions whose next token is scored
    targets: np.ndarray  # these next tokens
    places: np.ndarray  # flat positions of all tokens but the last of each row
    scored: np.ndarray  # which of the places are positions


def _lay_out(piece: np.ndarray, size: int, length: int, rows: Rows) -> _Laid:
    num_before = len(rows.before)
    tokens = np.zeros((size, length), np.int32)
    tokens[: len(piece), :num_before] = rows.before
    nothing = np.zeros(0, np.int32)
    positions, targets, places, scored, num_places = [nothing], [nothing], [nothing], [nothing], 0
    for i, row in enumerate(piece):
        window, text = rows.windows[row], rows.tokens[int(rows.text[row])]
        tokens[i, num_before : num_before + window.stop - window.start] = text[window.start : window.stop]
        offset = i * length + num_before - window.start - 1
        positions.append(np.arange(offset + window.first_target, offset + window.stop, dtype=np.int32))
        targets.append(text[window.first_target : window.stop])
        places.append(np.arange(i * length, offset + window.stop, dtype=np.int32))
        scored.append(positions[-1] - i * length + num_places)
        num_places += len(places[-1])
    return _Laid(tokens, *map(np.concatenate, (positions, targets, places, scored)))


class TokenProgram:
    """Token statistics of one model, whose batches have at most `capacity` scored positions."""

    def __init__(self, lm: LanguageModel, params: Any, devices: Devices, capacity: int, tile: Tiling) -> None:
        of_lm = lm.hidden is not None and lm.readout is not None
        if lm.on_cpu is not None and of_lm and devices.platform == "cpu" and len(devices) == 1:
            params = lm.on_cpu(lm, params)
        self.lm, self.params, self.devices = lm, params, devices
        self.capacity, self.tile = capacity, tile

    def start(
        self,
        pieces: Sequence[np.ndarray],
        size: int,
        length: int,
        rows: Rows,
        halvings: int,
        num_places: int | None = None,
    ) -> Any:
        """Begin to compute a piece of rows on each device, padded to [size, length].

        `halvings` memory errors have halved the batch, and halve the head's tiles. Where `num_places` is given, so many
        of the size · length tokens are computed outside attention, or as many as a halved batch has.
        """
        laid = [_lay_out(piece, size, length, rows) for piece in pieces]
        tokens, positions, targets, places, scored = zip(*laid, strict=True)
        tile = self.tile._replace(chunk=max(1, self.tile.chunk >> halvings))
        put = self.devices.put
        if self.lm.hidden is None or self.lm.readout is None:
            following, counted = np.zeros((2, len(pieces), size * length), np.int32)
            for i, (position, target) in enumerate(zip(positions, targets, strict=True)):
                following[i, position], counted[i, position] = target, 1
            arrays = put(tokens), put([*following]), put([*counted])
            others = tuple(orders_of(rows.statistics).items())
            return _from_logits(self.lm, self.devices, self.params, *arrays, tile=tile, others=others), positions
        if num_places is not None and halvings:
            num_places = max(1, -(-max(map(len, places)) // STEP)) * STEP
        capacity = max(self.capacity >> halvings, size * length if num_places is None else num_places)
        capacity = -(-capacity // tile.chunk) * tile.chunk
        if num_places is None:
            hidden = self._hidden(put(tokens), put([padded(p, capacity) for p in positions]))
        else:
            kept = put([padded(p, num_places, size * length) for p in places])
            hidden = self._hidden(put(tokens), put([padded(p, capacity) for p in scored]), kept)
        counts = put([np.int32(len(target)) for target in targets])
        following = put([padded(target, capacity) for target in targets])
        num_rows = self._num_rows(max(map(len, targets)), capacity, tile)
        arrays = hidden, following, counts
        out = _head(self.lm, self.devices, self.params, *arrays, tile=tile, wanted=rows.statistics, num_rows=num_rows)
        return out, [slice(len(target)) for target in targets]

    def _num_rows(self, most: int, capacity: int, tile: Tiling) -> int:
        """Rows that the head computes: all on CPU, which counts the tiles itself; else eighths of them, so that few
        programs are compiled."""
        step = -(-capacity // (8 * tile.chunk)) * tile.chunk
        return capacity if tile.block is not None else min(capacity, max(1, -(-most // step)) * step)

    def fetch(self, started: Any, rows: Rows) -> list[np.ndarray]:
        """Results of each piece, [fields, columns] float32; columns row after row."""
        out, places = started
        values = [self.devices.fetch(out[name]) for name in rows.statistics]
        return [
            np.stack([field[device][place].astype(np.float32) for field in values])
            for device, place in enumerate(places)
        ]

    def _hidden(self, tokens: Any, positions: Any, places: Any = None) -> jax.Array:
        """Hidden states at flat positions of the tokens, or at positions of those at the places; on every device."""
        return _trunk(self.lm, self.devices, self.params, tokens, positions, places)


class GradientProgram:
    """Gradient norms of the texts' summed losses under one model; one compiled program a bucket."""

    def __init__(self, lm: LanguageModel, params: Any, devices: Devices) -> None:
        self.lm, self.params, self.devices = lm, params, devices

    def start(self, pieces: Sequence[np.ndarray], size: int, length: int, rows: Rows, halvings: int) -> Any:
        """See `TokenProgram`."""
        laid = [_lay_out(piece, size, length, rows) for piece in pieces]
        masks = np.zeros((len(pieces), size * length), bool)
        for mask, one in zip(masks, laid, strict=True):
            mask[one.positions + 1] = True  # the token after a position is the target
        tokens = self.devices.put([one.tokens for one in laid])
        mask = self.devices.put([*masks.reshape(-1, size, length)])
        return _norms(self.lm, self.devices, self.params, tokens, mask), [len(piece) for piece in pieces]

    def fetch(self, started: Any, rows: Rows) -> list[np.ndarray]:
        """See `TokenProgram`: one column a row."""
        out, counts = started
        return [norms[None, :count] for norms, count in zip(self.devices.fetch(out), counts, strict=True)]


PassProgram: TypeAlias = TokenProgram | GradientProgram


def padded(values: np.ndarray, size: int, behind: int = 0) -> np.ndarray:
    """Zeros, or another number, behind the values, up to `size`."""
    return np.pad(values, (0, size - len(values)), constant_values=behind)


_plain = functools.partial(jax.jit, static_argnames=("lm", "devices"))


@_plain
def _trunk(
    lm: LanguageModel,
    devices: Devices,
    params: Any,
    tokens: jax.Array,
    positions: jax.Array,
    places: jax.Array | None = None,
) -> jax.Array:
    def at_places(params: Any, tokens: jax.Array, positions: jax.Array, places: jax.Array) -> jax.Array:
        assert lm.hidden_at is not None
        return jnp.take(lm.hidden_at(lm, params, tokens, places), positions, axis=0, mode="clip")

    if places is None:
        return devices.each(functools.partial(trunk_rows, lm), params, tokens, positions)
    return devices.each(at_places, params, tokens, positions, places)


@functools.partial(jax.jit, static_argnames=("lm", "devices", "tile", "wanted", "num_rows"))
def _head(
    lm: LanguageModel,
    devices: Devices,
    params: Any,
    *arrays: jax.Array,
    tile: Tiling,
    num_rows: int,
    wanted: tuple[str, ...],
) -> Any:
    """The wanted statistics, by name, of the first `count` <= `num_rows` hidden states and targets of [capacity].

    The last bits of one may depend on which others are wanted with it.
    """

    def on_device(params: Any, hidden: jax.Array, targets: jax.Array, count: jax.Array) -> Any:
        given = (lm, params, hidden[:num_rows], targets[:num_rows], jnp.arange(num_rows) < count, tile)
        return wanted_statistics(*given, wanted)

    return devices.each(on_device, params, *arrays)


@functools.partial(jax.jit, static_argnames=("lm", "devices", "tile", "others"))
def _from_logits(
    lm: LanguageModel,
    devices: Devices,
    params: Any,
    *arrays: jax.Array,
    tile: Tiling,
    others: tuple[tuple[str, float], ...] = (),
) -> Any:
    """All statistics by name, and the Renyi entropies of `others`, name and order."""

    def on_device(params: Any, tokens: jax.Array, targets: jax.Array, scored: jax.Array) -> Any:
        return model_statistics(lm, params, tokens, targets, scored > 0, tile, dict(others))

    return devices.each(on_device, params, *arrays)


@_plain
def _norms(lm: LanguageModel, devices: Devices, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    from tdd.scoring.gradients import grad_norms

    return devices.each(lambda *arrays: grad_norms(lm, *arrays).total, params, tokens, mask)
