"""The order of a benchmark as its own reference: shards as published against other orders of the same items."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.exchange.orders import shard_bounds
from tdd.kernels.trajectories import Evidence
from tdd.probe.benchmark_watch import Contamination
from tdd.probe.evidence import ProbeState, SetEvidence
from tdd.probe.leak import shard_rises
from tdd.probe.program import as_language_model
from tdd.probe.result import ProbeResult
from tdd.probe.stream import token_rows
from tdd.records import Guarantee, Texts
from tdd.scoring.tokenise import prepends_bos
from tdd.texts import load_texts
from tdd.validate import guards as checks
from tdd.validate.arrays import as_count
from tdd.validate.errors import InputError
from tdd.validate.scoring import check_max_length

__all__ = ["OrderContamination", "ShardEvidence"]

_SHARD_SIZE = 8

GUARANTEES = {
    "set": Guarantee(
        "P(an alarm at any look of the run) <= alpha",
        (
            "the order in which the benchmark was published is random",
            "given everything that the training did, which of the orders of a shard is the published one is uniformly "
            "random, in every shard independently: nothing of the training depends on the published order",
            "shards, orders, looks and horizon were fixed beforehand",
            "training reacts to the evidence by stopping at most",
        ),
        "finite-sample",
        "slots over relabelled trajectories (tdd.kernels.trajectories); the relabellings: the sharded exchangeability "
        "test, section 3.2",
    ),
    "items": Guarantee("nothing: no shard is flagged", (), "none", "shards of one benchmark are no draws of one law"),
}

GUARANTEE_ROWS = [("tdd.probe.contamination", "alarm, without reference", GUARANTEES["set"])]


@dataclasses.dataclass(frozen=True)
class ShardEvidence(SetEvidence):
    """`SetEvidence` over orders of shards: scores are taken relative to the mean over the orders of their shard.

    Attributes:
      num_shards: r; the suspects are the canonical orders, references i k .. i k + k - 1 those of shard i.
    """

    num_shards: int

    def item_e_values(self, result: ProbeResult) -> jax.Array:
        """None: shards of one benchmark are no draws of one law."""
        return jnp.zeros_like(result.suspect_scores)

    def observe(self, labels: jax.Array, state: ProbeState, result: ProbeResult) -> tuple[ProbeState, Evidence]:
        """Take in one look. A shard with a score that is not finite is left out, under every labelling alike."""
        scores = _by_shard(result, self.num_shards)
        centred = scores - jnp.mean(scores, axis=1, keepdims=True)  # not finite where one of them is not
        shuffled = centred[:, 1:].reshape(-1)
        return super().observe(
            labels, state, dataclasses.replace(result, suspect_scores=centred[:, 0], reference_scores=shuffled)
        )


class OrderContamination(Contamination):
    """Watch whether a model comes to prefer the published order of a benchmark; made by `contamination`.

    Under the null hypothesis which of the k + 1 orders of a shard is the published one is uniformly random, in every
    shard independently, given everything that the training did: the relabellings are those.

    A look's `result` has the published shards as suspects and the shuffled ones as references; shards of one benchmark
    are no draws of one law, so there are no p-values of single shards (NaN), none is flagged, and the estimated
    proportion is 0.
    """

    def __init__(
        self,
        lm: Any,
        benchmark: Any,
        *,
        tokenizer: Any = None,
        num_shards: int | None = None,
        num_shuffles: int = 9,
        separator: Any = "\n\n",
        seed: int = 0,
        num_draws: int = 9_999,
        alpha: float = 0.05,
        **options: Any,
    ) -> None:
        k = as_count(num_shuffles, "num_shuffles")
        head, items, between = _item_rows(benchmark, tokenizer, separator)
        longest = options.get("max_length")
        limit = check_max_length(longest, as_language_model(lm, longest).max_length)
        bounds = _bounds(items, len(head), len(between), num_shards, limit)
        rng = np.random.default_rng(seed)
        orders = [_orders(items, first, stop, k, rng) for first, stop in bounds]
        rows = [[_joined(head, [items[i] for i in order], between) for order in shard] for shard in orders]
        _check_orders(len(bounds), k, alpha)
        super().__init__(
            lm,
            [shard[0] for shard in rows],
            [row for shard in rows for row in shard[1:]],
            seed=seed,
            num_draws=num_draws,
            alpha=alpha,
            proportion="none",
            **options,
        )
        r = len(bounds)
        fields = {field.name: getattr(self._rule, field.name) for field in dataclasses.fields(self._rule)}
        self._rule = ShardEvidence(**fields, num_shards=r)
        self._labels = _labels(r, k, num_draws, seed)

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """What holds of the "set", over the whole run; of single shards nothing is said."""
        return GUARANTEES

    def evaluate(self, params: Any) -> ProbeResult:
        """Scores of all orders; pure, as `Probe.evaluate`."""
        result = super().evaluate(params)
        unknown = jnp.full_like(result.p_values, jnp.nan)
        return dataclasses.replace(
            result,
            p_values=unknown,
            adjusted=unknown,
            selected=jnp.zeros_like(result.selected),
            num_flagged=jnp.zeros_like(result.num_flagged),
            proportion=jnp.zeros_like(result.proportion),
        )

    def _rises(self) -> np.ndarray:
        return shard_rises(np.stack([np.asarray(_by_shard(one.result, self.sizes[0])) for one in self.history]))

    def _bounds(self, look: int, selected: np.ndarray) -> tuple[int, int]:
        return 0, 0  # no shard is named


def _by_shard(result: ProbeResult, num_shards: int) -> jax.Array:
    """[r, k + 1] scores, the canonical order first."""
    return jnp.concatenate(
        [result.suspect_scores[:, None], jnp.reshape(result.reference_scores, (num_shards, -1))], axis=1
    )


def _labels(num_shards: int, num_shuffles: int, num_draws: int, seed: int) -> np.ndarray:
    """[B + 1, r (k + 1)] bool: one order of each shard; in row 0 the canonical one."""
    chosen = np.random.default_rng([seed, 1]).integers(0, num_shuffles + 1, (num_draws + 1, num_shards))
    chosen[0] = 0
    shard = np.arange(num_shards)
    column = np.where(chosen == 0, shard, num_shards + shard * num_shuffles + chosen - 1)
    labels = np.zeros((num_draws + 1, num_shards * (num_shuffles + 1)), bool)
    np.put_along_axis(labels, column, True, axis=1)
    return labels


def _item_rows(benchmark: Any, tokenizer: Any, separator: Any) -> tuple[list[int], list[np.ndarray], list[int]]:
    """What stands before every shard, the token ids of each item, and those between two items."""
    if isinstance(benchmark, np.ndarray):
        benchmark = list(benchmark)
    held = benchmark if isinstance(benchmark, (Texts, list, tuple)) else load_texts(benchmark)
    items = token_rows("benchmark", held, tokenizer, may_be_empty=False)
    if not isinstance(separator, str):
        return (
            [],
            items,
            [int(i) for row in checks.rows_of_ids("separator", [separator] if np.size(separator) else []) for i in row],
        )
    if tokenizer is None:
        return [], items, []
    between = token_rows("separator", [separator], tokenizer, may_be_empty=False)[0].tolist() if separator else []
    head = list(tokenizer(["a"], add_special_tokens=True)["input_ids"][0][:1]) if prepends_bos(tokenizer) else []
    return head, items, between


def _bounds(
    items: Sequence[np.ndarray], head: int, between: int, num_shards: int | None, limit: int | None
) -> tuple[tuple[int, int], ...]:
    """Contiguous shards that fit the context."""
    count = len(items)
    _check_num_items(count, num_shards)
    choices = [num_shards] if num_shards else sorted({-(-count // size) for size in range(2, _SHARD_SIZE + 1)})
    lengths = np.array([len(row) for row in items])
    longest = 0
    for shards in choices:
        if 2 * shards > count:
            continue
        bounds = shard_bounds(count, shards)
        longest = max(head + lengths[a:b].sum() + between * (b - a - 1) for a, b in bounds)
        if limit is None or longest <= limit:
            return bounds
    raise _shards_too_long(int(longest), limit, num_shards)


def _orders(
    items: Sequence[np.ndarray], first: int, stop: int, count: int, rng: np.random.Generator
) -> list[list[int]]:
    """The canonical order of a shard and `count` others, drawn uniformly from those that read otherwise."""
    content = [row.tobytes() for row in items]
    _check_num_orders(first, [content[i] for i in range(first, stop)], count)
    found = {tuple(content[first:stop]): list(range(first, stop))}
    while len(found) <= count:
        order = [int(i) for i in first + rng.permutation(stop - first)]
        found.setdefault(tuple(content[i] for i in order), order)
    return list(found.values())


def _joined(head: list[int], rows: Sequence[np.ndarray], between: list[int]) -> np.ndarray:
    parts: list[Any] = [head, rows[0]]
    for row in rows[1:]:
        parts += [between, row]
    return np.concatenate([np.asarray(part, np.int32) for part in parts])


def _check_num_items(count: int, num_shards: Any) -> None:
    """Items that can be cut into so many shards of two or more."""
    if num_shards is not None:
        whole = isinstance(num_shards, (int, np.integer)) and not isinstance(num_shards, bool)
        if not whole or num_shards < 1 or 2 * num_shards > count:
            raise InputError(
                f"num_shards={num_shards!r} must be a whole number from 1 to {count // 2}: a shard has two items or "
                f"more, and the benchmark has {count}"
            )
    if count < 2:
        raise InputError(f"benchmark has {count} item; the order of two or more can be tested, or give a reference")


def _shards_too_long(longest: int, limit: Any, num_shards: int | None) -> InputError:
    """Shards that do not fit the context."""
    advice = "use more shards" if num_shards else "shorten the items, or give a reference"
    return InputError(
        f"num_shards={num_shards}: a shard of the benchmark has {longest} tokens, more than the limit of {limit}; "
        f"{advice}"
    )


def _check_num_orders(first: int, items: Sequence[bytes], num_shuffles: int) -> None:
    """A shard has so many orders that read otherwise."""
    orders = math.factorial(len(items))
    for repeats in collections.Counter(items).values():
        orders //= math.factorial(repeats)
    if orders - 1 < num_shuffles:
        raise InputError(
            f"the shard that begins at item {first + 1} of the benchmark has {len(items)} items and {orders - 1} other "
            f"orders that read differently, fewer than num_shuffles={num_shuffles}; use fewer shards or shuffles, or "
            "remove repeated items"
        )


def _check_orders(num_shards: int, num_shuffles: int, alpha: float) -> None:
    """An alarm is possible at all."""
    if (num_shuffles + 1) ** num_shards * float(alpha) < 1:
        raise InputError(
            f"{num_shards} shards in {num_shuffles + 1} orders each can be relabelled in only "
            f"{(num_shuffles + 1) ** num_shards} ways, too few for a p-value of alpha={alpha:g}; raise num_shuffles"
        )
