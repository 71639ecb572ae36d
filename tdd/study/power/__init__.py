"""What an audit may expect to find, before it is run: plans, which are rows of plain numbers, and their files."""

from __future__ import annotations

import abc
import csv
import dataclasses
import io
import os
import pathlib
from typing import Any

from tdd.runs.atomic import disk_errors, write_atomically
from tdd.runs.display import Displayed, report_module
from tdd.runs.folder import read_sealed, write_sealed
from tdd.validate import InputError

SCHEMA = 1


class _Plan(Displayed):
    """The files of a plan."""

    rows: tuple[dict[str, Any], ...]

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything, as power.json holds it."""

    def _rows(self) -> tuple[dict[str, Any], ...]:
        return self.rows

    def save(self, folder: str | os.PathLike[str]) -> list[pathlib.Path]:
        """Write `power.json`, `power.csv` (the rows) and `report.html`, each whole or not at all.

        Raises:
          InputError: The folder cannot be written, or the disk is full.
        """
        place = pathlib.Path(folder)
        if place.exists() and not place.is_dir():
            raise InputError(f"cannot write {place}: it is a file; name a folder")
        with disk_errors(place):
            place.mkdir(parents=True, exist_ok=True)
        table = io.StringIO()
        writer = csv.DictWriter(table, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        files = [place / "power.json", place / "power.csv"]
        write_sealed(files[0], self.to_dict())
        write_atomically(files[1], table.getvalue().encode())
        self.write_page(place)
        return files


@dataclasses.dataclass(frozen=True, repr=False)
class PowerPlan(_Plan):
    """The results to expect of an audit.

    Attributes:
      rows: One dict for every n, m, fraction of members and level: num_calibration, num_tests, member_share,
        num_members, num_targets, alpha, power (mean fraction of the targets that is selected), power_se, power_q10,
        power_q50, power_q90, fdp, fdp_se, any_selected and any_true (probabilities of a selection, and of a right one),
        any_true_se, num_selected, num_selected_se, num_selected_q10, num_selected_q50, num_selected_q90,
        min_selections (the fewest that the sizes allow; m + 1: nothing can be selected), repetitions, extrapolated,
        drawn.
      curve: The same for every audit that was simulated, those of the search included.
      smallest: One dict for every n, m, level and criterion ("power", "any_true"): wanted; num_targets, target_share
        and member_share (None where all candidates together do not reach it); target_share_low and target_share_high
        (where the curve plus and minus two standard errors does); value and value_se of the curve there; extrapolated;
        reason (for a None, or for a fraction that the pool keeps from being smaller).
      about: Source, method, null, options, warnings, seconds.
    """

    rows: tuple[dict[str, Any], ...]
    curve: tuple[dict[str, Any], ...]
    smallest: tuple[dict[str, Any], ...]
    about: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        tables = {"rows": list(self.rows), "smallest": list(self.smallest), "curve": list(self.curve)}
        return {"schema": SCHEMA, "kind": "power", **self.about, **tables}

    def report(self) -> Any:  # noqa: D102
        return report_module("power").power_plan_report(self)


@dataclasses.dataclass(frozen=True, repr=False)
class ExchangePlan(_Plan):
    """The results to expect of a test of canonical order.

    Attributes:
      rows: One dict for every number of shards and of shuffles, test and level, the cheapest first: num_shards,
        num_shuffles, test, alpha, power, power_se, reaches (the wanted power), smallest_effect (None where none up to
        the largest tried does), smallest_effect_low, smallest_effect_high, log10_floor (of the smallest p-value),
        calls, tokens (None where the length of a shard is not known), extrapolated, repetitions.
      cheapest: For every test and level the first row that reaches the wanted power, or None.
      about: Source, options, warnings, seconds.
    """

    rows: tuple[dict[str, Any], ...]
    cheapest: tuple[dict[str, Any], ...]
    about: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        tables = {"rows": list(self.rows), "cheapest": list(self.cheapest)}
        return {"schema": SCHEMA, "kind": "exchange-power", **self.about, **tables}

    def report(self) -> Any:  # noqa: D102
        return report_module("power").exchange_plan_report(self)


def load_plan(folder: str | os.PathLike[str]) -> PowerPlan | ExchangePlan:
    """Read what `save` wrote.

    Raises:
      InputError: No power.json there, a damaged one, or one of another schema.
    """
    about = read_sealed(pathlib.Path(folder) / "power.json", SCHEMA, "plan again")
    del about["schema"]
    if about.pop("kind") == "power":
        return PowerPlan(*(tuple(about.pop(name)) for name in ("rows", "curve", "smallest")), about=about)
    return ExchangePlan(*(tuple(about.pop(name)) for name in ("rows", "cheapest")), about=about)
