"""Checks of runs: options of an audit, the direction of the null, the output folder."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "check_calibration",
    "check_cluster_proportion",
    "check_column_names",
    "check_columns_exist",
    "check_delta",
    "check_direction",
    "check_drawable",
    "check_items",
    "check_knockoff_numbers",
    "check_knockoffs",
    "check_knockoffs_apart",
    "check_knockoffs_once",
    "check_known_labels",
    "check_members",
    "check_output_file",
    "check_paraphrased",
    "check_paraphrases",
    "check_proportion_used",
    "check_run",
    "check_run_folder",
    "check_schema",
    "check_unit",
    "check_unscaled",
    "check_used",
    "deciding_columns",
    "detectors",
    "reported",
]


_DECISION = ("run the audit again", ("decision", "checks", "inputs", "model"))
_PARTS = {
    "audit": _DECISION,
    "select": _DECISION,
    "exchange": ("run the test again", ("data", "selection", "options", "control", "model")),
    "probe": ("save the probe again", ("name", "options", "inputs", "alarm", "first_alarm", "guarantees", "looks")),
}
"""Of each kind of run: how to get another, and what its run.json holds beside sentences."""


def check_direction(null: str | None, needed: str, method: str) -> None:
    """The null that the caller names, if any, is the one that the method tests."""
    if null is None or null == needed:
        return
    if null not in ("nonmember", "member"):
        raise InputError(f'null must be "nonmember" or "member", got {null!r}')
    raise InputError(
        f'{method} tests the null "{needed}" and calibrates on known {needed}s; null={null!r} would turn its '
        f"guarantee round. Pass known {needed}s as calibration and leave null out"
    )


def check_used(method: str, **options: tuple[Any, str]) -> None:
    """No option that the method would ignore; each is given with the methods that it belongs to, by commas."""
    for name, (value, owners) in options.items():
        if value is not None and method not in owners.split(","):
            words = " and ".join(repr(owner) for owner in owners.split(","))
            raise InputError(
                f"{name}={value!r} belongs to method {words}, and {method!r} does not use it; leave it out"
            )


def check_proportion_used(method: str, rule: str | None, proportion: str | None) -> None:
    """Of the knockoff rules, "conformal" alone estimates a proportion."""
    if method == "ktd" and proportion is not None and rule != "conformal":
        raise InputError(f"proportion={proportion!r} belongs to rule 'conformal' of method 'ktd'; leave it out")


def check_cluster_proportion(proportion: str, clustered: bool) -> None:
    """The estimates whose guarantee is stated for clusters without a condition on ties."""
    if clustered and proportion not in ("storey", "none"):
        raise InputError(
            f"proportion={proportion!r} is not offered where items come in clusters; use 'storey' or 'none'"
        )


def check_unscaled(**options: Any) -> None:
    """Items of clusters are decided on by e-values, which no estimate of a proportion scales."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}={value!r} has no use with unit='item', which decides by e-values; leave it out")


def check_unit(own: str, unit: str | None, grouped: bool) -> None:
    """A unit of decision, given or of the procedure, only where clusters are named."""
    unit = own if unit is None and own != "cluster" else unit
    if unit is not None and not grouped:
        raise InputError(f"unit={unit!r} needs clusters: name their column (group_field) and use method 'ptdi'")


def check_delta(delta: float, max_draws: int) -> None:
    """A level of the simultaneous bounds that Monte Carlo draws can resolve."""
    if delta * (max_draws + 1) < 1:
        raise InputError(f"delta={delta!r} is too small for {max_draws} draws: give at least {1 / (max_draws + 1):g}")


def check_knockoffs_apart(names: Sequence[str], knockoffs: Sequence[str]) -> None:
    """No column is its own knockoff, and none is named twice."""
    both = [name for name in knockoffs if name in names or list(knockoffs).count(name) > 1]
    if both:
        raise InputError(f"knockoffs names {both[0]!r}, which is the score itself or named twice; leave it out")


def check_knockoffs(method: str, needed: bool, knockoffs: Sequence[str]) -> None:
    """Knockoffs where the method needs them."""
    if needed and not knockoffs:
        raise InputError(
            f"knockoffs are missing: method {method!r} compares each item with its knockoff paraphrases; name the "
            "columns or fields that hold them (knockoff_fields, --knockoff-fields; in a table of scores --knockoffs)"
        )


def check_calibration(method: str, calibration: Any, needed: bool) -> None:
    """Calibration texts where the method needs them."""
    if needed and calibration is None:
        raise InputError(f"calibration is missing: {method} compares candidates with texts for which the null holds")


def check_knockoffs_once(knockoffs: Sequence[Any], calibration_knockoffs: Sequence[Any], fields: Sequence[str]) -> None:
    """Knockoffs are columns of the texts' own tables or collections of their own, not both."""
    if fields and (knockoffs or calibration_knockoffs):
        given = "knockoffs" if knockoffs else "calibration_knockoffs"
        raise InputError(
            f"{given} and knockoff_fields={list(fields)!r} were both given; name the columns of one table, or give "
            "collections of texts, not both"
        )


def check_paraphrased(calibrated: bool, calibration_knockoffs: Sequence[Any]) -> None:
    """Calibration texts where there are knockoffs of them."""
    if calibration_knockoffs and not calibrated:
        raise InputError("calibration_knockoffs were given without calibration, the texts that they paraphrase")


def check_knockoff_numbers(own: int, calibration: int, conformal: bool) -> None:
    """Calibration items have as many knockoffs each as candidates, or none where the rule needs none."""
    if conformal and not calibration:
        raise InputError(
            "rule 'conformal' needs knockoffs of the calibration texts too, made as those of the candidates; name "
            "their columns (knockoff_fields, with calibration a table that has them) or give calibration_knockoffs"
        )
    if own and calibration and own != calibration:
        raise InputError(
            f"candidates have {own} knockoffs each and calibration items {calibration}; both need the same number, "
            "made the same way"
        )


def check_paraphrases(texts: Any, owners: Any, role: str) -> None:
    """One paraphrase an item, in the same order."""
    if len(texts) != len(owners):
        raise InputError(f"{role} has {len(texts)} texts for {len(owners)} items; one paraphrase an item is needed")
    apart = next((i for i, (a, b) in enumerate(zip(texts.ids, owners.ids, strict=True)) if a != b), None)
    if apart is not None:
        raise InputError(
            f"{role} is in another order: its id {texts.ids[apart]!r} stands where the items have "
            f"{owners.ids[apart]!r}; give the paraphrases the ids and the order of their items"
        )


def detectors(score: str | Sequence[str], *, several: bool) -> tuple[str, ...]:
    """Names of the scores that decide: one, or the K detectors of a combination."""
    names = (score,) if isinstance(score, str) else tuple(score)
    if not names:
        raise InputError("score names nothing; at least one score decides")
    if len(names) > 1 and not several:
        raise InputError(
            f"score names {len(names)} scores ({', '.join(names)}) and this method decides on one; choose it before "
            "looking at results, or combine them with method td4eval"
        )
    if len(set(names)) < len(names):
        raise InputError(f"score names a detector twice: {', '.join(names)}")
    return names


def check_members(needed: bool, count: int) -> None:
    """Known members for the moment estimate."""
    if needed and not count:
        raise InputError('proportion="moment" needs known members; give a table of members or a member role')


def check_columns_exist(names: Iterable[str], available: Iterable[str], argument: str) -> None:
    """Columns that the table has."""
    known = list(available)
    for name in names:
        if name not in known:
            raise InputError(f"{argument} names {name!r}, which is not a score column; there are {', '.join(known)}")


def deciding_columns(
    wanted: Sequence[str] | None, free: Sequence[str], available: Iterable[str], number: str
) -> tuple[str, ...]:
    """The column or columns that decide: those asked for, else the only ones there are."""
    names = tuple(free if wanted is None else wanted)
    if wanted is None and number == "one" and len(names) != 1:
        raise InputError(
            f"score is missing and the table has {len(names)} score columns: {', '.join(names)}; choose the one that "
            "decides before looking at results"
        )
    known = list(available)
    for name in names:
        if name not in known:
            raise InputError(f"score {name!r} is not a score column; there are {', '.join(known)}")
    if number == "one" and len(names) != 1:
        raise InputError(
            f"score names {len(names)} columns ({', '.join(names)}) and this method decides on one; choose it before "
            "looking at results"
        )
    if not names:
        raise InputError("score names no column; at least one detector or model is needed")
    if len(set(names)) < len(names):
        raise InputError(f"score names a column twice: {', '.join(names)}")
    return names


def check_known_labels(labels: Sequence[int] | np.ndarray, ids: Sequence[str] | np.ndarray, null: str) -> None:
    """Calibration items whose truth is known are on the null's side."""
    known = np.asarray(labels, dtype=np.int64)
    if known.size == 0:
        return
    wrong = np.flatnonzero(known == (1 if null == "nonmember" else 0))
    if wrong.size:
        other = "member (label 1)" if null == "nonmember" else "non-member (label 0)"
        raise InputError(
            f"{wrong.size} of {known.size} calibration items are labelled as {other}, the first is "
            f'{ids[int(wrong[0])]!r}; the null "{null}" is calibrated on known {null}s. Remove them or exchange the '
            "roles of the two inputs"
        )


def check_run_folder(folder: pathlib.Path, fingerprint: str) -> None:
    """An output folder is new, empty, or holds the same run."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"output {folder} is a file; give a folder")
    marker = folder / "inputs.json"
    no_result = (marker, folder / "shards")
    holds = [path for path in folder.iterdir() if not path.name.startswith(".") and path not in no_result]
    if not marker.exists():
        if holds:
            raise InputError(f"output folder {folder} is not empty and holds no run; give a new or an empty folder")
        return
    try:
        held: Any = json.loads(marker.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{marker} cannot be read ({error}); give another output folder") from error
    if not isinstance(held, dict):
        raise InputError(f"{marker} does not describe a run; give another output folder")
    if holds and held.get("fingerprint") != fingerprint:  # a run that has computed nothing yet may be replaced
        raise InputError(
            f"output folder {folder} holds a run of other inputs or options ({held.get('summary', 'unknown')}); give "
            "another folder, or remove this one"
        )


def check_column_names(names: Iterable[str], reserved: Sequence[str]) -> None:
    """No score is called like a column of the result."""
    taken = [name for name in names if name in reserved]
    if taken:
        raise InputError(
            f"score column {taken[0]!r} has the name of a column of the result ({', '.join(reserved)}); rename it, or "
            "choose the score columns without it"
        )


def check_schema(run: Any, place: pathlib.Path, schema: int) -> None:
    """A run.json of this version."""
    found = run.get("schema") if isinstance(run, dict) else None
    if found != schema:
        raise InputError(f"{place} has schema {found!r}, this version reads {schema}")


def check_run(run: Mapping[str, Any], place: pathlib.Path) -> None:
    """A run.json that a report can be made of."""
    kind = run.get("kind")
    if not isinstance(kind, str) or kind not in _PARTS:
        raise InputError(f"{place} is a run of kind {kind!r}; this version reads {', '.join(_PARTS)}")
    again, parts = _PARTS[kind]
    missing = [name for name in ("outcome", *parts, "warnings", "open_points") if name not in run]
    if missing:
        raise InputError(f"{place} is damaged: it lacks {', '.join(missing)}; {again}")


@contextlib.contextmanager
def reported(run: Mapping[str, Any], folder: pathlib.Path) -> Iterator[None]:
    """Turn a wrong type in a run of an earlier version, which no SHA-256 seals, into an InputError."""
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if "files" in run:
            raise
        raise InputError(
            f"{folder} is damaged: a value in it is of another kind than a report needs ({type(error).__name__}: "
            f"{error}); {_PARTS[run['kind']][0]}"
        ) from error


def check_drawable(run: Any, folder: pathlib.Path) -> None:
    """A run whose figure the report draws."""
    if run["kind"] != "probe":
        there = "its figure is figure.png there" if run["kind"] == "exchange" else "it has no figure"
        raise InputError(f"--plot draws probes; {folder} holds a run of kind {run['kind']!r}: {there}")
    if not run["looks"]:
        raise InputError(f"{folder} holds a probe that has not looked yet: there is nothing to draw")


def check_items(header: Sequence[str], rows: Sequence[Sequence[str]], place: pathlib.Path) -> None:
    """An items.csv that belongs to a run."""
    missing = [name for name in ("id", "p_value", "adjusted", "selected") if name not in header]
    if missing or any(len(row) != len(header) for row in rows):
        what = f"lacks the columns {', '.join(missing)}" if missing else "has rows of different lengths"
        raise InputError(f"{place} is damaged: it {what}; run the audit again")


def check_output_file(path: pathlib.Path, endings: Sequence[str], inputs: Iterable[str | None] = ()) -> None:
    """A file name whose ending says a format that can be written, and none of the files that are read."""
    if path.suffix not in endings:
        raise InputError(f"output {path} must end in {', '.join(endings)}, got {path.suffix or 'no ending'!r}")
    if not path.parent.exists():
        raise InputError(f"output folder {path.parent} does not exist; create it first")
    if path.exists() and any(os.path.exists(source) and path.samefile(source) for source in inputs if source):
        raise InputError(f"output {path} is a file that is read, and would be lost; give another name")
