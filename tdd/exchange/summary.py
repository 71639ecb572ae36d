"""The words of a test of canonical order: its outcome, its warnings, what it leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tdd.runs.display import format_p_value, is_known, level_in_words
from tdd.validate import InputError

NOT_RANDOM = 0.005
"""Level of each check of the published order: structure without a model, and the negative control. If one fails, the
verdict is withheld; an order that is random is doubted with a probability of at most 1%."""

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
_MANY_NAMES = 8


def outcome(run: Mapping[str, Any]) -> str:
    """The result and its error rate in a few sentences."""
    data, alpha = run["data"], run["selection"]["alpha"]
    level = level_in_words(alpha)
    if len(data) == 1:
        return _outcome_of_one(data[0], alpha)
    decided = [entry for entry in data if not in_doubt(entry) and is_known(entry["p_value"])]
    rejected, total = [entry["name"] for entry in decided if entry["rejected"]], len(decided)
    without = len(data) - total
    withheld = f" No verdict is given on {without} of {len(data)} data sets: see the warnings." if without else ""
    if not decided:
        return f"No verdict is given on any of {len(data)} data sets: see the warnings."
    if not rejected:
        return (
            f"No dependence of the model on the published order of {total} data set{'' if total == 1 else 's'} was "
            f"found at level {level} (Benjamini and Hochberg). That does not show absence from the training data."
            f"{withheld}"
        )
    more = f" and {len(rejected) - _MANY_NAMES} more" if rejected[_MANY_NAMES:] else ""
    listed = ", ".join(rejected[:_MANY_NAMES]) + more
    which = "the only data set with a verdict" if total == 1 else f"{len(rejected)} of {total} data sets"
    return (
        f"Evidence at level {level} (Benjamini and Hochberg) that the model depends on the published order of "
        f"{which}: {listed}. If the assumptions hold, the expected fraction of data sets "
        f"without such a dependence among those listed is at most {level}.{withheld}"
    )


def run_warnings(run: Mapping[str, Any]) -> list[str]:
    """Warnings that concern the whole run."""
    warnings = []
    control, data = run.get("control"), run["data"]
    if control is not None and control["sha256"] == run["model"]["sha256"]:
        warnings.append(
            "the control is the model itself, so it controls nothing: give a model that cannot have seen the data"
        )
    doubtful = [entry["name"] for entry in data if in_doubt(entry)]
    if doubtful:
        which = doubtful[0] if len(doubtful) == 1 else f"{len(doubtful)} of the data sets"
        warnings.append(
            f"the published order of {which} does not look random (below): a model that never saw these examples may "
            "prefer such an order, and a small p-value then proves nothing about training"
        )
    hashes = [entry["sha256"] for entry in data]
    if len(set(hashes)) < len(hashes):
        warnings.append(
            "two of the data sets hold the same examples in the same order: they are one hypothesis, counted twice"
        )
    return warnings


def open_points(run: Mapping[str, Any]) -> list[str]:
    """The points that the run does not establish."""
    data = run["data"]
    points = [
        "That the examples were published in random order is assumed. Visible structure is looked for "
        "without the model, but no computation on the examples can show that there is none.",
        "A small p-value says at most that the model depends on the published order. It does not say how the order "
        "came into it, how often, or which of the examples it has seen.",
        "Without a small p-value nothing is shown: a data set that was trained on once, in another order, in another "
        "format or example by example usually leaves no trace in the order.",
        "Only verbatim copies in order are looked for: neither paraphrases nor translations, nor the sources of a "
        "benchmark.",
        "Not checked: that separator, template, shards and test were chosen beforehand. Settings and models that were "
        "tried before and are not in this run count as further tests.",
    ]
    if len(data) > 1:
        points.append(
            "Not checked: that the p-values of the data sets are independent or positively dependent. Those of data "
            "sets that share examples may be neither."
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


def data_warnings(entry: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """Warnings that concern one data set: its entry in the run, and the run."""
    of_data = [*_of_order(entry), *_of_copies(entry), *_of_tokens(entry)]
    warnings = [*of_data, *_of_test(entry, run), *_of_control(entry, run)]
    return [f"data set {entry['name']}: {text}" for text in warnings]


def in_doubt(entry: Mapping[str, Any]) -> bool:
    """True if structure without the model, or the control, speaks against a random order of a data set."""
    control = entry["control"]
    controlled = control is not None and is_known(control["p_value"]) and control["p_value"] <= NOT_RANDOM
    return _has_structure(entry) or controlled


def _has_structure(entry: Mapping[str, Any]) -> bool:
    structure = entry["structure"]
    return bool(structure.get("sorted")) or structure["p_value"] <= NOT_RANDOM


def _outcome_of_one(entry: Mapping[str, Any], alpha: float) -> str:
    if in_doubt(entry):
        why = "does not look random" if _has_structure(entry) else "is preferred by the control model too"
        return (
            f"No verdict on the data set {entry['name']}: its published order {why} (see the warnings), so a model may "
            "prefer it without having seen it."
        )
    p, level = format_p_value(entry["p_value"], entry["log_p_value"], alpha), level_in_words(alpha)
    if not is_known(entry["p_value"]):
        return (
            f"Whether the model depends on the published order of the data set {entry['name']} cannot be said: no "
            "p-value."
        )
    if not entry["rejected"]:
        return (
            f"No dependence of the model on the published order of the data set {entry['name']} was found at level "
            f"{level} (p = {p}). That does not show that the data set was absent from the training data."
        )
    how = "" if entry["guarantee"]["kind"] == "finite-sample" else " in the limit of many shards"
    return (
        f"Evidence at level {level} that the model depends on the published order of the data set {entry['name']} "
        f"(p = {p}). If that order is random, and the settings were fixed beforehand, a model that knows nothing of it "
        f"gives such a result with a probability of at most {level}{how}."
    )


def _of_order(entry: Mapping[str, Any]) -> list[str]:
    structure, warnings = entry["structure"], []
    if structure.get("sorted"):
        warnings.append(
            f"the published order is sorted ({structure['sorted']}), so it is not random and the guarantee is void"
        )
    if structure["p_value"] <= NOT_RANDOM:
        strongest = min(structure["tests"], key=lambda test: test["p_value"])
        words = _SEEN.get(strongest["name"], _FIELD).format(**strongest)
        warnings.append(
            "the published order does not look random even without the model "
            f"(p = {format_p_value(structure['p_value'], level=NOT_RANDOM)}): {words}"
        )
    return warnings


def _of_copies(entry: Mapping[str, Any]) -> list[str]:
    copies, warnings = entry["duplicates"], []
    if copies["num_within_shards"]:
        warnings.append(
            f"{copies['num_within_shards']} of {copies['num_examples']} examples repeat another of their shard: orders "
            "that exchange them are the same text, and the test loses power"
        )
    if copies["share"] > _MANY_COPIES:
        least = "" if copies["complete"] else "at least "
        warnings.append(
            f"{least}{copies['share']:.0%} of the examples have an exact or a near duplicate in the data set; copies "
            "are often published side by side, which is an order that is not random"
        )
    return warnings


def _of_test(entry: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    alpha, number = run["selection"]["alpha"], len(run["data"])
    warnings = []
    masked = entry.get("num_masked", 0)
    if masked:
        warnings.append(
            f"{masked} of {entry['num_shards']} shards have no log-probability under the model (NaN) and were left out"
        )
    if entry["test"] == "t":
        if entry["skewed"]:
            warnings.append(
                f"the shard statistics have a long left tail (skewness {entry['skewness']:.1f}), where the t-test "
                'rejects too often; decide by "combined", "rank_sum" or "exact"'
            )
        if entry["num_shards"] - masked < _FEW_SHARDS:
            warnings.append(
                f"the t-test relies on many shards and there are {entry['num_shards'] - masked}; the other tests hold "
                "their level for any number"
            )
    warnings += _of_reach(entry, run, entry["num_shards"] - masked, alpha / number)
    if entry["rejected"] and entry["test"] != "permutation" and entry["adjusted"] > alpha / _NEAR_LEVEL:
        warnings.append(
            f"its p-value is close to the level ({format_p_value(entry['adjusted'])}"
            f"{' adjusted' if number > 1 else ''} against {alpha:g}): it does not count if other "
            "settings were tried before"
        )
    long = entry.get("num_long_examples", 0)
    if long:
        warnings.append(
            f"examples as long as the model's context, which sees nothing of their neighbours: {long} of "
            f"{entry['num_examples']}; they only cost time"
        )
    return warnings


def _of_reach(entry: Mapping[str, Any], run: Mapping[str, Any], num_shards: int, level: float) -> list[str]:
    """A test that cannot reject any data set: too few shuffles for its shards."""
    alone = "alone among several data sets it" if len(run["data"]) > 1 else "it"
    floor = (entry.get("tests") or {}).get(entry["test"], {}).get("log_smallest_p")
    if floor is not None and floor > math.log(level) + 1e-9:
        return [
            f"the test cannot give a p-value below {format_p_value(math.exp(floor), floor)}, so {alone} cannot reject; "
            "use more shuffles or more shards"
        ]
    if not entry["sequential"] or num_shards == 0:
        return []
    rule, most = entry["sequential"]["rule"], entry["num_shuffles"]
    test = run["options"]["test"] if rule == "spending" else "permutation" if rule == "besag_clifford" else rule
    needed = _needed(num_shards, level, test)
    if rule == "spending" and needed <= most:
        from tdd.kernels.sequential import default_looks, look_weights

        looks = default_looks(most)
        weights = zip(looks, look_weights(looks), strict=True)
        if any(_needed(num_shards, level * float(weight), test) <= look for look, weight in weights):
            return []
        return [
            f"with at most {most} shuffles {alone} cannot reject: the looks of spending share the level, and each has "
            "too little of it; use more shuffles or more shards"
        ]
    if needed <= most:
        return []
    if needed == math.inf:
        return [f"{alone} cannot reject with any number of shuffles; use more shards"]
    return [
        f"with at most {most} shuffles {alone} cannot reject: {rule} needs {needed} at least; use more "
        "shuffles or more shards"
    ]


def _needed(num_shards: int, level: float, test: str) -> float:
    """Fewest shuffles with which a test can reach the level; infinite if no number suffices."""
    from tdd.procedures.exchangeability import shuffles_needed

    try:
        return shuffles_needed(num_shards, level, test)
    except InputError:
        return math.inf


def _of_tokens(entry: Mapping[str, Any]) -> list[str]:
    """Fewer different texts than so many random orders have: examples that the model cannot tell apart."""
    number = math.factorial(min(12, entry["permuted_a_shard"][0]))  # of 12 examples already, orders hardly repeat
    seen = number * -math.expm1((entry["shuffles_used"] + 1) * math.log1p(-1 / number))
    orders, different = entry["num_shards"] * (entry["shuffles_used"] + 1), entry["calls"]["sequences"]
    if different >= seen * entry["num_shards"] / 2:
        return []
    return [
        f"to the model, {orders:,} orders are only {different:,} different texts: it cannot tell many examples apart, "
        "perhaps because its tokenizer does not know their words; the test loses power"
    ]


def _of_control(entry: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    control, alpha = entry["control"], run["selection"]["alpha"]
    if control is None:
        return []
    if not is_known(control["p_value"]):
        return ["the negative control has no p-value (its log-probabilities are NaN)"]
    if control["p_value"] > alpha:
        return []
    return [
        "the negative control depends on the published order too "
        f"(p = {format_p_value(control['p_value'], control['log_p_value'])}): that order is likely for other reasons "
        "than training"
    ]
