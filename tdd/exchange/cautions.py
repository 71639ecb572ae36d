"""What a reader must know before believing the test of one data set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tdd.exchange.p_words import is_known, p_words
from tdd.validate.errors import InputError

__all__ = ["NOT_RANDOM", "data_warnings", "in_doubt"]

NOT_RANDOM = 0.005
"""Level of each check of the published order: structure without a model, and the negative control. Where one fails a
verdict is withheld, so that an order that is random is doubted with a probability of at most 1 %."""

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


def data_warnings(one: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """What a reader must know before believing the result of one data set (its entry in the run, and the run)."""
    found = [*_of_order(one), *_of_copies(one), *_of_tokens(one), *_of_test(one, run), *_of_control(one, run)]
    name = one["name"]
    return [f"{name}: {text}" for text in found]


def in_doubt(one: Mapping[str, Any]) -> bool:
    """Whether the checks speak against a random order of a data set: structure without the model, or the control."""
    control, structure = one["control"], one["structure"]
    controlled = control is not None and is_known(control["p_value"]) and control["p_value"] <= NOT_RANDOM
    return bool(structure.get("sorted")) or structure["p_value"] <= NOT_RANDOM or controlled


def _of_order(one: Mapping[str, Any]) -> list[str]:
    structure, found = one["structure"], []
    if structure.get("sorted"):
        found.append(
            f"the published order is sorted ({structure['sorted']}), so it is not random and the guarantee is void"
        )
    if structure["p_value"] <= NOT_RANDOM:
        strongest = min(structure["tests"], key=lambda test: test["p_value"])
        words = _SEEN.get(strongest["name"], _FIELD).format(**strongest)
        found.append(
            "the published order does not look random even without the model "
            f"(p = {p_words(structure['p_value'])}): {words}"
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
                f"the shard statistics have a long left tail (skewness {one['skewness']:.1f}), where the t-test "
                'rejects too often; decide by "combined", "rank_sum" or "exact"'
            )
        if one["num_shards"] - masked < _FEW_SHARDS:
            found.append(
                f"the t-test relies on many shards and there are {one['num_shards'] - masked}; the other tests hold "
                "their level for any number"
            )
    found += _of_reach(one, run, one["num_shards"] - masked, alpha / number)
    if one["rejected"] and one["test"] != "permutation" and one["adjusted"] > alpha / _NEAR_LEVEL:
        found.append(
            f"its p-value is close to the level ({p_words(one['adjusted'])}"
            f"{' adjusted' if number > 1 else ''} against {alpha:g}): settings that were tried before would undo it"
        )
    long = one.get("num_long_examples", 0)
    if long:
        found.append(
            f"examples as long as the model's context, which sees nothing of their neighbours: {long} of "
            f"{one['num_examples']}; they only cost time"
        )
    return found


def _of_reach(one: Mapping[str, Any], run: Mapping[str, Any], num_shards: int, level: float) -> list[str]:
    """A test that cannot reject whatever the data set: too few shuffles for its shards."""
    alone = "alone among several data sets it" if len(run["data"]) > 1 else "it"
    floor = (one.get("tests") or {}).get(one["test"], {}).get("log_smallest_p")
    if floor is not None and floor > math.log(level) + 1e-9:
        return [
            f"the test cannot give a p-value below {p_words(math.exp(floor), floor)}, so {alone} cannot reject; use "
            "more shuffles or more shards"
        ]
    if not one["sequential"] or num_shards == 0:
        return []
    rule, most = one["sequential"]["rule"], one["num_shuffles"]
    test = run["options"]["test"] if rule == "spending" else "permutation" if rule == "besag_clifford" else rule
    needed = _needed(num_shards, level, test)
    if rule == "spending" and needed <= most:
        from tdd.kernels.sequential import default_looks, look_weights

        looks = default_looks(most)
        shares = zip(looks, look_weights(looks), strict=True)
        if any(_needed(num_shards, level * float(share), test) <= look for look, share in shares):
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
    """Fewest shuffles with which a test can reach the level; infinite where no number suffices."""
    from tdd.procedures.exchangeability import shuffles_needed

    try:
        return shuffles_needed(num_shards, level, test)
    except InputError:
        return math.inf


def _of_tokens(one: Mapping[str, Any]) -> list[str]:
    """Fewer different texts than so many random orders have: examples that the model cannot tell apart."""
    number = math.factorial(min(12, one["permuted_a_shard"][0]))  # of 12 examples already, orders hardly repeat
    seen = number * -math.expm1((one["shuffles_used"] + 1) * math.log1p(-1 / number))
    orders, different = one["num_shards"] * (one["shuffles_used"] + 1), one["calls"]["sequences"]
    if different >= seen * one["num_shards"] / 2:
        return []
    return [
        f"to the model, {orders:,} orders are only {different:,} different texts: it cannot tell many examples apart, "
        "perhaps because its tokenizer does not know their words; the test loses power"
    ]


def _of_control(one: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    control, alpha = one["control"], run["selection"]["alpha"]
    if control is None:
        return []
    if not is_known(control["p_value"]):
        return ["the negative control has no p-value (its log-probabilities are NaN)"]
    if control["p_value"] > alpha:
        return []
    return [
        f"the negative control depends on the published order too (p = {p_words(**_p_of(control))}): that order is "
        "likely for other reasons than training"
    ]


def _p_of(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("p_value", "log_p_value")}
