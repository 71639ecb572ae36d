"""What a test of canonical order says in words: its outcome, what spoils it, what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tdd.audit.decide import level_in_words
from tdd.exchange.cautions import NOT_RANDOM, data_warnings, in_doubt
from tdd.exchange.p_words import is_known, p_words

__all__ = ["NOT_RANDOM", "data_warnings", "is_known", "open_points", "outcome", "p_words", "run_warnings"]

_MANY_NAMES = 8


def outcome(run: Mapping[str, Any]) -> str:
    """The result and its error rate in a few sentences."""
    data, alpha = run["data"], run["selection"]["alpha"]
    level = level_in_words(alpha)
    if len(data) == 1:
        return _outcome_of_one(data[0], level)
    doubtful = [one["name"] for one in data if in_doubt(one)]
    found = [one["name"] for one in data if one["rejected"] and not in_doubt(one)]
    withheld = (
        f" No verdict is given on {len(doubtful)} of the data sets, whose published order does not look random: see "
        "the warnings."
        if doubtful
        else ""
    )
    if not found:
        return (
            f"For none of {len(data) - len(doubtful)} data sets a dependence of the model on the published order was "
            f"found at level {level} (Benjamini and Hochberg). That does not show that they were absent from the "
            f"training data.{withheld}"
        )
    listed = ", ".join(found[:_MANY_NAMES]) + (f" and {len(found) - _MANY_NAMES} more" if found[_MANY_NAMES:] else "")
    total = len(data) - len(doubtful)
    return (
        f"The model depends on the published order of {len(found)} of {total} data sets, at level {level} "
        f"(Benjamini and Hochberg): {listed}. If the assumptions hold, the expected share of data sets that it does "
        f"not depend on among those listed is at most {level}.{withheld}"
    )


def run_warnings(run: Mapping[str, Any]) -> list[str]:
    """What concerns the whole run."""
    found = []
    control, data = run.get("control"), run["data"]
    if control is not None and control["sha256"] == run["model"]["sha256"]:
        found.append(
            "the control is the model itself, so it controls nothing: give a model that cannot have seen the data"
        )
    doubtful = [one["name"] for one in data if in_doubt(one)]
    if doubtful:
        which = doubtful[0] if len(doubtful) == 1 else f"{len(doubtful)} of the data sets"
        found.append(
            f"the published order of {which} does not look random (below): a model that never saw these examples may "
            "prefer such an order, and a small p-value then proves nothing about training"
        )
    hashes = [one["sha256"] for one in data]
    if len(set(hashes)) < len(hashes):
        found.append(
            "two of the data sets hold the same examples in the same order: they are one hypothesis, counted twice"
        )
    return found


def open_points(run: Mapping[str, Any]) -> list[str]:
    """What the run does not establish."""
    data = run["data"]
    points = [
        "That the examples were published in random order is taken for granted. Visible structure is looked for "
        "without the model, but no computation on the examples can show that there is none.",
        "A small p-value says at most that the model depends on the published order. It does not say how the order "
        "came into it, how often, or which of the examples it has seen.",
        "Without a small p-value nothing is shown: a data set that was trained on once, in another order, in another "
        "format or example by example usually leaves no trace in the order.",
        "Only verbatim copies in order are looked for. Paraphrases, translations and the sources that a benchmark was "
        "made from are not.",
        "The level holds for one look, with separator, template, shards and test chosen beforehand. Settings and "
        "models that were tried before and are not in this run count as further tests.",
    ]
    if len(data) > 1:
        points.append(
            "The level over several data sets takes their p-values as independent or positively dependent; data sets "
            "that share examples may be neither."
        )
    else:
        points.append("If other data sets or other models are tested too, correct for all of them together.")
    if run.get("control") is None:
        points.append(
            "No negative control was run: a model that cannot have seen the data set (--control) would show whether "
            "the published order is likely for other reasons."
        )
    else:
        points.append(
            "A control that finds nothing does not prove the published order random: another model may notice what the "
            "control does not."
        )
    return points


def _outcome_of_one(one: Mapping[str, Any], level: str) -> str:
    if in_doubt(one):
        return (
            f"No verdict on {one['name']}: its published order does not look random (see the warnings), so that a "
            "model may prefer it without having seen it."
        )
    p = p_words(one["p_value"], one["log_p_value"])
    if not is_known(one["p_value"]):
        return f"Whether the model depends on the published order of {one['name']} cannot be said: no p-value."
    if not one["rejected"]:
        return (
            f"No dependence of the model on the published order of {one['name']} was found (p = {p}, level {level}). "
            "That does not show that the data set was absent from the training data."
        )
    how = "" if one["guarantee"]["kind"] == "finite-sample" else " in the limit of many shards"
    return (
        f"The model depends on the published order of {one['name']} (p = {p}, level {level}). If that order is random, "
        f"a model that knows nothing of it gives such a result with a probability of at most {level}{how}."
    )
