"""What a power plan says: rows of plain numbers, and the files that hold them."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.folder import to_json
from tdd.validate.errors import InputError

__all__ = ["ExchangePlan", "PowerPlan"]

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class PowerPlan:
    """What an audit may expect.

    Attributes:
      rows: one dict for every n, m, share and level: num_calibration, num_tests, member_share, num_members,
        num_targets, alpha, power (mean share of the targets that are selected), power_se, power_q10, power_q50,
        power_q90, fdp, fdp_se, any_selected and any_true (probabilities of a selection, and of a right one),
        any_true_se, num_selected, num_selected_se, num_selected_q10, num_selected_q50, num_selected_q90,
        min_selections (what the sizes allow at least; m + 1: nothing), repetitions, extrapolated, drawn.
      curve: the same for every audit that was computed, the steps of the search among them.
      smallest: one dict for every n, m, level and criterion ("power", "any_true"): wanted; num_targets, target_share
        and member_share (None where all candidates together do not reach it); target_share_low and target_share_high
        (where the curve plus and minus two standard errors does); value and value_se of the curve there; extrapolated;
        reason (of a None, or of a share that the pool keeps from being smaller).
      about: source, method, null, options, warnings, seconds.
    """

    rows: tuple[dict[str, Any], ...]
    curve: tuple[dict[str, Any], ...]
    smallest: tuple[dict[str, Any], ...]
    about: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as power.json holds it."""
        return {
            "schema": SCHEMA,
            "kind": "power",
            **self.about,
            "rows": list(self.rows),
            "smallest": list(self.smallest),
            "curve": list(self.curve),
        }

    def save(self, folder: str | os.PathLike[str]) -> list[pathlib.Path]:
        """Write `power.json` and `power.csv` (the rows), each whole or not at all.

        Raises:
          InputError: the folder cannot be written, or the disk is full.
        """
        return _save(self.to_dict(), self.rows, folder)


@dataclasses.dataclass(frozen=True)
class ExchangePlan:
    """What a test of canonical order may expect.

    Attributes:
      rows: one dict for every number of shards and of shuffles, test and level, the cheapest first: num_shards,
        num_shuffles, test, alpha, power, power_se, smallest_effect (None where none up to the largest tried),
        smallest_effect_low, smallest_effect_high, log10_floor (of the smallest p-value), calls, tokens (None where the
        length of a shard is not known), reaches (the wanted power), extrapolated, repetitions.
      cheapest: for every test and level the first row that reaches the wanted power, or None.
      about: source, options, warnings, seconds.
    """

    rows: tuple[dict[str, Any], ...]
    cheapest: tuple[dict[str, Any], ...]
    about: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as power.json holds it."""
        return {
            "schema": SCHEMA,
            "kind": "exchange-power",
            **self.about,
            "rows": list(self.rows),
            "cheapest": list(self.cheapest),
        }

    def save(self, folder: str | os.PathLike[str]) -> list[pathlib.Path]:
        """As `PowerPlan.save`."""
        return _save(self.to_dict(), self.rows, folder)


def _save(whole: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], folder: str | os.PathLike[str]) -> list[Any]:
    place = pathlib.Path(folder)
    if place.exists() and not place.is_dir():
        raise InputError(f"cannot write {place}: it is a file; name a folder")
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files = [place / "power.json", place / "power.csv"]
    write_atomically(files[0], to_json(whole).encode())
    write_atomically(files[1], text.getvalue().encode())
    return files
