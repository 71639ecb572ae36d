"""The plan of a run: rows that come from the store, and the batches of the others."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.runs.shards import Shard
from tdd.scoring.buckets import Batch, gradient_budget, plan
from tdd.scoring.devices import Devices
from tdd.scoring.inputs import DistinctRows, Model, PassInput
from tdd.scoring.store import ScoreStore
from tdd.scoring.store.address import address, fingerprint
from tdd.scoring.store.namespace import Namespace

__all__ = ["ScorePlan", "plan_scores"]

_READ = 4096
"""Stored rows that are read together."""

_MACHINE = ("platform", "device", "matmul_precision", "x64")
"""The part of an address that the machine adds to model and versions."""


@dataclasses.dataclass(frozen=True)
class ScorePlan:
    """The work of a run, in order.

    Attributes:
      stored: Groups of rows that were stored before the run began.
      batches: Batches of the rows that were not.
      namespaces: Pass -> where its rows are stored; empty without a store.
      facts: What all shards of the run must have alike: models to the bit, rows, machine. Batches follow from these.
      num_rows: Distinct rows.
      num_stored: Distinct rows that are in the store by now.
    """

    stored: Sequence[Batch]
    batches: Sequence[Batch]
    namespaces: Mapping[str, Namespace]
    facts: Mapping[str, Any]
    num_rows: int = 0
    num_stored: int = 0

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
            digest.update(f"{batch.kind} {batch.size} {batch.length} {batch.rows.tolist()}".encode())
        return digest.hexdigest()


def plan_scores(
    inputs: Mapping[str, PassInput],
    distinct: DistinctRows,
    models: Mapping[str, Model],
    devices: Devices,
    budget: int,
    store: ScoreStore | None,
) -> ScorePlan:
    """Look up every distinct row, and plan the batches of those that are not stored.

    The batches are made of the rows that were missing when a run with the same rows first began, which is written
    down: a run that is continued makes the same ones.
    """
    if store is None:
        return ScorePlan((), _batches(inputs, distinct.first, budget), {}, {})
    prints = {name: fingerprint(model.lm.spec, model.parameters()) for name, model in models.items()}
    addresses = {
        name: address(
            "gradient norms" if name == "gradient" else "token statistics",
            prints[inputs[name].model],
            devices,
            **inputs[name].identity(),
        )
        for name in distinct.keys
    }
    namespaces = {name: store.namespace(one) for name, one in addresses.items()}
    missing = {
        name: first & [not namespaces[name].has(key, inputs[name].rows.statistics) for key in distinct.keys[name]]
        for name, first in distinct.first.items()
    }
    ends = np.cumsum([len(mask) for mask in missing.values()])[:-1]
    run = _run_key(inputs, distinct, addresses, budget)
    plans = [
        dict(zip(missing, np.split(planned, ends), strict=True))
        for planned in store.plans(run, np.concatenate([np.zeros(0, bool), *missing.values()]))
    ]
    stored = []
    for name, first in distinct.first.items():
        planned = np.logical_or.reduce([np.zeros_like(first), *(masks[name] for masks in plans)])
        rows = np.flatnonzero(first & ~planned)
        places = [namespaces[name].place(distinct.keys[name][row]) for row in rows.tolist()]
        rows = rows[np.argsort(places, kind="stable")]
        lengths = inputs[name].rows.lengths
        for i in range(0, len(rows), _READ):
            group = rows[i : i + _READ]
            stored.append(Batch(name, group, len(group), int(lengths[group].max())))
    batches = [batch for masks in plans for batch in _batches(inputs, masks, budget)]
    named = {"model" if name == "text" else name: value for name, value in prints.items()}
    machine = {name: one[name] for one in addresses.values() for name in _MACHINE}
    facts = {**named, **machine, "tokens": _digest_of_keys(hashlib.sha256(), distinct)}
    num_rows, num_missing = (sum(int(mask.sum()) for mask in masks.values()) for masks in (distinct.first, missing))
    return ScorePlan(stored, batches, namespaces, facts, num_rows, num_rows - num_missing)


def _batches(inputs: Mapping[str, PassInput], chosen: Mapping[str, np.ndarray], budget: int) -> list[Batch]:
    """Batches of the chosen rows of all passes; passes whose models accept the same length share their shapes, and so
    programs."""
    rows = {name: np.flatnonzero(mask) for name, mask in chosen.items() if mask.any()}
    lengths = {name: inputs[name].rows.lengths[mine] for name, mine in rows.items()}
    together: dict[tuple[bool, int | None], list[str]] = {}
    for name in rows:
        together.setdefault((name == "gradient", inputs[name].limit), []).append(name)
    batches = [
        dataclasses.replace(batch, rows=rows[batch.kind][batch.rows])
        for (gradient, limit), names in together.items()
        for batch in plan(
            {name: lengths[name] for name in names},
            token_budget=gradient_budget(budget) if gradient else budget,
            limit=limit,
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
