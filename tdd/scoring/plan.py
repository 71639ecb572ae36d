"""The plan of a block of texts: rows that come from the store, and the batches of the others."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tdd.runs.shards import Shard
from tdd.scoring.buckets import Batch, Shape, bucket_price, gradient_budget, most_buckets, plan
from tdd.scoring.devices import Devices
from tdd.scoring.inputs import DistinctRows, Model, PassInput, is_gradient
from tdd.scoring.store import ScoreStore
from tdd.scoring.store.address import address, fingerprint
from tdd.scoring.store.namespace import Namespace

_READ = 4096
"""Stored rows that are read together."""

_MACHINE = ("platform", "device", "matmul_precision", "x64")
"""The part of an address that the machine adds to model and versions."""


@dataclasses.dataclass(frozen=True)
class ScorePlan:
    """The work of a block of texts, in order."""

    stored: Sequence[Batch]  # groups of rows that were stored before the run came to the block
    batches: Sequence[Batch]  # batches of the rows that were not
    namespaces: Mapping[str, Namespace]  # pass -> where its rows are stored; empty without a store
    # what all shards of the run must have alike: models to the bit, rows, machine. Batches follow from these
    facts: Mapping[str, Any]
    num_rows: int = 0  # distinct rows
    num_stored: int = 0  # distinct rows that are in the store by now

    def numbered(self, shard: Shard | None = None) -> list[tuple[int, Batch]]:
        """Everything with its number, or the batches of a shard; the numbers of batches are the same in all shards.

        A shard has consecutive batches of each pass, which have few shapes: it compiles few of the programs.
        """
        if shard is None:
            return [*enumerate((*self.batches, *self.stored))]
        mine: list[tuple[int, Batch]] = []
        for _, group in itertools.groupby(enumerate(self.batches), lambda entry: entry[1].kind):
            batches = [*group]
            part = shard.part([batch.num_tokens for _, batch in batches])
            mine += batches[part.start : part.stop]
        return mine

    def batches_digest(self) -> str:
        """SHA-256 of the batches."""
        digest = hashlib.sha256()
        for batch in self.batches:
            digest.update(f"{batch.kind} {batch.size} {batch.length} {batch.num_tokens} {batch.rows.tolist()}".encode())
        return digest.hexdigest()


class Planner:
    """Plans the blocks of a run, one after the other.

    The batches of a block are made of the rows that were missing when a run with the same rows first came to it, which
    is written down: a run that is continued makes the same ones. Rows of blocks before it are not missing.

    Args:
      models: "text"; "reference", "reference 2", ... and "tuned" where a score needs them.
      budget: Tokens a batch.
      store: Where rows are looked up, or None.
      alone: False if rows of a block are computed or stored elsewhere or later: shards, processes in lockstep, models
        whose turn comes later.
    """

    def __init__(
        self, models: Mapping[str, Model], devices: Devices, budget: int, store: ScoreStore | None, *, alone: bool
    ) -> None:
        self._devices, self._budget, self._store, self._alone = devices, budget, store, alone
        self._prices = {name: bucket_price(model.num_parameters(), devices.platform) for name, model in models.items()}
        known = {name: (model.lm.hidden_at, model.lm.hidden, model.lm.readout) for name, model in models.items()}
        # models whose padding is left out, where that was measured
        self._compact = {name for name, all_of in known.items() if None not in all_of and devices.platform == "cpu"}
        self._prints: dict[str, str] = {}
        if store is not None:
            self._prints = {name: fingerprint(model.lm.spec, model.parameters()) for name, model in models.items()}
        self._compiled: dict[_Programs, dict[int, Shape]] = {}
        self._planned: dict[tuple[Namespace, tuple[str, ...]], set[bytes]] = {}

    def plan(self, inputs: Mapping[str, PassInput], distinct: DistinctRows, share: float = 1.0) -> ScorePlan:
        """Look up every distinct row of a block, and plan the batches of those that are not stored.

        The block is about this `share` of the run, and pays as much of the price of a shape.
        """
        store, prints = self._store, self._prints
        if store is None:
            return ScorePlan((), self._batches(inputs, [distinct.first], share), {}, {})
        addresses = {
            name: address(
                "gradient norms" if is_gradient(name) else "token statistics",
                prints[inputs[name].model],
                self._devices,
                **inputs[name].identity(),
            )
            for name in distinct.keys
        }
        namespaces = {name: store.namespace(one) for name, one in addresses.items()}
        before = {
            name: [
                keys
                for (space, fields), keys in self._planned.items()
                if space is namespaces[name] and set(inputs[name].rows.statistics) <= set(fields)
            ]
            for name in distinct.keys
        }

        def is_planned(name: str, key: bytes) -> bool:
            return any(key in keys for keys in before[name])

        missing = {
            name: first
            & [
                not (is_planned(name, key) or namespaces[name].has(key, inputs[name].rows.statistics))
                for key in distinct.keys[name]
            ]
            for name, first in distinct.first.items()
        }
        ends = np.cumsum([len(mask) for mask in missing.values()])[:-1]
        run = _run_key(inputs, distinct, addresses, self._budget)
        plans = [
            dict(zip(missing, np.split(planned, ends), strict=True))
            for planned in store.plans(run, np.concatenate([np.zeros(0, bool), *missing.values()]))
        ]
        stored = []
        for name, first in distinct.first.items():
            planned = np.logical_or.reduce([np.zeros_like(first), *(masks[name] for masks in plans)])
            rows = np.flatnonzero(first & ~planned)
            keys = [distinct.keys[name][row] for row in rows.tolist()]
            places = [0 if is_planned(name, key) else namespaces[name].place(key) for key in keys]
            rows = rows[np.argsort(places, kind="stable")]
            lengths = inputs[name].rows.lengths
            for i in range(0, len(rows), _READ):
                group = rows[i : i + _READ]
                stored.append(Batch(name, group, len(group), int(lengths[group].max())))
        batches = self._batches(inputs, plans, share)
        if not self._alone:
            for name, keys in distinct.keys.items():
                here = self._planned.setdefault((namespaces[name], inputs[name].rows.statistics), set())
                here.update(itertools.compress(keys, distinct.first[name]))
        named = {"model" if name == "text" else name: value for name, value in prints.items()}
        machine = {name: one[name] for one in addresses.values() for name in _MACHINE}
        facts = {**named, **machine, "tokens": _digest_of_keys(hashlib.sha256(), distinct)}
        num_rows, num_missing = (sum(int(mask.sum()) for mask in masks.values()) for masks in (distinct.first, missing))
        return ScorePlan(stored, batches, namespaces, facts, num_rows, num_rows - num_missing)

    def _batches(
        self, inputs: Mapping[str, PassInput], plans: Sequence[Mapping[str, np.ndarray]], share: float
    ) -> list[Batch]:
        """Batches of the rows that are planned together; their shapes are those of earlier blocks where that is no
        waste."""
        most = most_buckets(self._devices.platform)
        prices = {name: max(1, round(share * self._prices[one.model])) for name, one in inputs.items()}
        programs = {
            name: (
                is_gradient(name),
                one.limit,
                one.model in self._compact and one.prefix is None and not is_gradient(name),
            )
            for name, one in inputs.items()
        }
        planned = [_batches(inputs, masks, self._budget, most, prices, programs, self._compiled) for masks in plans]
        for batch in itertools.chain(*planned[:1]):
            self._compiled.setdefault(programs[batch.kind], {})[batch.length] = batch.size, batch.capacity
        return [*itertools.chain(*planned)]


_Programs: TypeAlias = tuple[bool, int | None, bool]
"""What passes that share programs have in common: whether they are for gradients, the longest row, and whether padding
is left out."""


def _batches(
    inputs: Mapping[str, PassInput],
    chosen: Mapping[str, np.ndarray],
    budget: int,
    max_buckets: int,
    prices: Mapping[str, int],
    programs: Mapping[str, _Programs],
    compiled: Mapping[_Programs, Mapping[int, Shape]],
) -> list[Batch]:
    """Batches of the chosen rows of all passes; passes whose models accept the same length share their shapes, and so
    programs."""
    rows = {name: np.flatnonzero(mask) for name, mask in chosen.items() if mask.any()}
    lengths = {name: inputs[name].rows.lengths[mine] for name, mine in rows.items()}
    together: dict[_Programs, list[str]] = {}
    for name in rows:
        together.setdefault(programs[name], []).append(name)
    batches = [
        dataclasses.replace(batch, rows=rows[batch.kind][batch.rows])
        for (gradient, limit, compact), names in together.items()
        for batch in plan(
            {name: lengths[name] for name in names},
            token_budget=gradient_budget(budget) if gradient else budget,
            max_buckets=max_buckets,
            price=min(prices[name] for name in names),
            limit=limit,
            compiled=compiled.get((gradient, limit, compact)),
            compact=compact,
        )
    ]
    return sorted(batches, key=lambda batch: [*rows].index(batch.kind))


def _run_key(inputs: Mapping[str, PassInput], distinct: DistinctRows, addresses: Mapping[str, Any], budget: int) -> str:
    """SHA-256 of the rows of a run and of everything that its batches depend on."""
    options = {name: [addresses[name], inputs[name].limit, inputs[name].rows.statistics] for name in distinct.keys}
    return _digest_of_keys(hashlib.sha256(json.dumps([options, budget]).encode()), distinct)


def _digest_of_keys(digest: Any, distinct: DistinctRows) -> str:
    """With the keys of all passes added, which are digests of tokens."""
    for keys in distinct.keys.values():
        digest.update(len(keys).to_bytes(8, "little") + b"".join(keys))
    return digest.hexdigest()
