"""What a test of canonical order says in words: its outcome, what spoils it, what it leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tdd.audit.decide import level_in_words

__all__ = ["NOT_RANDOM", "data_warnings", "is_known", "open_points", "outcome", "p_words", "run_warnings"]

NOT_RANDOM = 0.05
"""Level of the check for order structure without a model."""

_MANY_NAMES = 8
_MANY_COPIES = 0.05
_FEW_SHARDS = 20
_NEAR_LEVEL = 5  # a p-value above a fifth of its level is close to it

_SEEN = {
    "neighbours": "neighbours share more or fewer words (mean similarity {observed:.3f}, {expected:.3f} in shuffles)",
    "lengths": "lengths follow the position (rank correlation {observed:.2f})",
    "alphabet": "{observed:.0%} of neighbours are in alphabetical order ({expected:.0%} in shuffles)",
    "numbers": "the first numbers of {observed:.0%} of neighbours ascend ({expected:.0%} in shuffles)",
}
_FIELD = "{observed:.0%} of neighbours have the same value of {name} ({expected:.0%} in shuffles)"


def outcome(run: Mapping[str, Any]) -> str:
    """The result and its error rate in a few sentences."""
    data, alpha = run["data"], run["selection"]["alpha"]
    level = level_in_words(alpha)
    if len(data) == 1:
        return _outcome_of_one(data[0], level)
    found = [one["name"] for one in data if one["rejected"]]
    if not found:
        return (
            f"For none of {len(data)} data sets a dependence of the model on the published order was found at level "
            f"{level} (Benjamini and Hochberg). That does not show that they were absent from the training data."
        )
    listed = ", ".join(found[:_MANY_NAMES]) + (f" and {len(found) - _MANY_NAMES} more" if found[_MANY_NAMES:] else "")
    return (
        f"The model depends on the published order of {len(found)} of {len(data)} data sets, at level {level} "
        f"(Benjamini and Hochberg): {listed}. If the assumptions hold, the expected share of data sets that it does "
        f"not depend on among those listed is at most {level}."
    )


def data_warnings(one: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """What a reader must know before believing the result of one data set (its entry in the run, and the run)."""
    found = [*_of_order(one), *_of_copies(one), *_of_test(one, run), *_of_control(one, run)]
    name = one["name"]
    return [f"{name}: {text}" for text in found]


def run_warnings(run: Mapping[str, Any]) -> list[str]:
    """What concerns the whole run."""
    found = []
    control, data = run.get("control"), run["data"]
    if control is not None and control["sha256"] == run["model"]["sha256"]:
        found.append(
            "the control is the model itself, so it controls nothing: give a model that cannot have seen the data"
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
        "That the examples were published in random order is taken for granted. Visible structure is looked for without "
        "the model, but no computation on the examples can show that there is none.",
        "A small p-value says that the model depends on the published order. It does not say how the order came into "
        "it, how often, or which of the examples it has seen.",
        "Without a small p-value nothing is shown: a data set that was trained on once, in another order, in another "
        "format or example by example usually leaves no trace in the order.",
        "Only verbatim copies in order are looked for. Paraphrases, translations and the sources that a benchmark was "
        "made from are not.",
        "The level holds for one look, with separator, template, shards and test chosen beforehand. Settings and models "
        "that were tried before and are not in this run count as further tests.",
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
            "No negative control was run: a model that cannot have seen the data set (--control) would show whether the "
            "published order is likely for other reasons."
        )
    else:
        points.append(
            "A control that finds nothing does not prove the published order random: another model may notice what the "
            "control does not."
        )
    return points


def p_words(p_value: Any, log_p_value: Any = None) -> str:
    """A p-value as a reader takes it in: .031 as it is, tiny ones as a power of ten.

    >>> p_words(0.0312), p_words(0.0, -46.05)
    ('0.031', '1.0e-20')
    """
    if not is_known(p_value):
        return "unknown"
    log = log_p_value if is_known(log_p_value) else math.log(p_value) if p_value > 0 else -math.inf
    if log == -math.inf:
        return "0"
    if log > math.log(1e-3):
        return f"{p_value:.2g}"
    exponent = math.floor(log / math.log(10))
    digits = f"{math.exp(log - exponent * math.log(10)):.1f}"
    return f"{digits}e{exponent}" if digits != "10.0" else f"1.0e{exponent + 1}"


def is_known(value: Any) -> bool:
    """A number, neither None nor NaN."""
    return value is not None and not math.isnan(value)


def _outcome_of_one(one: Mapping[str, Any], level: str) -> str:
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


def _of_order(one: Mapping[str, Any]) -> list[str]:
    structure, found = one["structure"], []
    if structure.get("sorted"):
        found.append(
            f"the published order is sorted ({structure['sorted']}), so it is not random and the guarantee is void: a "
            "model may prefer sorted texts without having seen these"
        )
    if structure["p_value"] <= NOT_RANDOM:
        strongest = min(structure["tests"], key=lambda test: test["p_value"])
        words = _SEEN.get(strongest["name"], _FIELD).format(**strongest)
        found.append(
            f"the published order does not look random even without the model (p = {p_words(structure['p_value'])}): "
            f"{words}. A model that never saw the data set may prefer such an order; a small p-value then proves "
            "nothing about training"
        )
    return found


def _of_copies(one: Mapping[str, Any]) -> list[str]:
    copies, found = one["duplicates"], []
    if copies["num_within_shards"]:
        found.append(
            f"{copies['num_within_shards']} of {copies['num_examples']} examples repeat another of their shard: orders "
            "that exchange them are the same text, and the test loses power"
        )
    if copies["share"] > _MANY_COPIES:
        least = "" if copies["complete"] else "at least "
        found.append(
            f"{least}{copies['share']:.0%} of the examples have an exact or a near duplicate in the data set; copies "
            "are often published side by side, which is an order that is not random"
        )
    return found


def _of_test(one: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    alpha, number = run["selection"]["alpha"], len(run["data"])
    found = []
    masked = one.get("num_masked", 0)
    if masked:
        found.append(
            f"{masked} of {one['num_shards']} shards have no log-probability under the model (NaN) and were left out"
        )
    if one["test"] == "t":
        if one["skewed"]:
            found.append(
                f"the shard statistics have a long left tail (skewness {one['skewness']:.1f}), where the t-test rejects "
                'too often; decide by "combined", "rank_sum" or "exact"'
            )
        if one["num_shards"] - masked < _FEW_SHARDS:
            found.append(
                f"the t-test relies on many shards and there are {one['num_shards'] - masked}; the other tests hold "
                "their level for any number"
            )
    floor = (one.get("tests") or {}).get(one["test"], {}).get("log_smallest_p")
    if floor is not None and floor > math.log(alpha / number):
        among = f" among {number} data sets" if number > 1 else ""
        found.append(
            f"the test cannot give a p-value below {p_words(math.exp(floor), floor)}, so alone{among} it cannot reject; "
            "use more shuffles or more shards"
        )
    if one["rejected"] and one["test"] != "permutation" and one["adjusted"] > alpha / _NEAR_LEVEL:
        found.append(
            f"its p-value is close to the level ({p_words(one['adjusted'])}"
            f"{' adjusted' if number > 1 else ''} against {alpha:g}): settings that were tried before would undo it"
        )
    long = one.get("num_long_examples", 0)
    if long:
        found.append(
            f"{long} of {one['num_examples']} examples are as long as the model's context, which sees nothing of their "
            "neighbours: they only cost time"
        )
    return found


def _of_control(one: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    control, alpha = one["control"], run["selection"]["alpha"]
    if control is None:
        return []
    if not is_known(control["p_value"]):
        return ["the negative control has no p-value (its log-probabilities are NaN)"]
    if control["p_value"] > alpha:
        return []
    return [
        f"the negative control depends on the published order too (p = {p_words(**_p_of(control))}): the order is likely "
        "for other reasons than training, and a small p-value of the model proves nothing"
    ]


def _p_of(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("p_value", "log_p_value")}
