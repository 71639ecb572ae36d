"""Lists of numbers, one a position → nats: log-probabilities, and statistics of the distribution at every position.

With H_a the Renyi entropy of order a of a distribution p, and y the token that came:

    H_1/2 >= H_1 = -mu >= H_2 >= H_inf = -max_v log p_v >= H_2 / 2,      -log p_y >= H_inf >= 0.

Lists of another base, of the opposite sign, of another position or under another name break one of these.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.texts.rows import shown
from tdd.validate import InputError

STATISTICS = ("mu", "sigma", "renyi_half", "renyi_two", "renyi_inf", "m_entropy")
"""Fields of `tdd.records.TokenStats` that a file may hold beside log-probabilities, under the same names."""

_ORDERS = {"renyi_half": "1/2", "mu": "1", "renyi_two": "2", "renyi_inf": "inf"}
_ROUNDING = 1e-6
"""Log-probabilities this far above 0 are roundings of 0."""
_SLACK = 0.05
"""Relative to 1 + H. Probabilities of 32,000 tokens that are rounded to bfloat16, and no longer add up to 1, break the
inequalities by at most .001, those whose logarithms are rounded by .024."""
_LARGEST = 32 * math.log(2)
"""Entropy of the uniform distribution over 2^32 tokens."""


def check_numbers(source: str, place: str, values: Sequence[Any], offset: int, name: str = "") -> np.ndarray:
    """Numbers at the scored positions: [n] float64, n >= 1. `offset` positions stand before them."""
    if not values:
        raise InputError(f"{source}: {place} has no scored token; the first of a text is never scored, so give two")
    kinds = {type(value) for value in values}
    if not kinds <= {float, int}:
        for position, value in enumerate(values, start=offset):
            if value is None and name:
                raise InputError(
                    f"{source}: {place}: position {position} of {name} is null; only the first may be, in all lists"
                )
            if value is None:
                raise InputError(
                    f"{source}: {place}: position {position} has no log-probability (null); only the first token may "
                    "lack one. Servers leave out what they had cached: switch prefix caching off and ask again"
                )
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                where = f"position {position}" + f" of {name}" * bool(name)
                raise InputError(f"{source}: {place}: {where} holds {shown(value)}, no number")
    try:
        return np.array(values, np.float64)
    except OverflowError as error:
        what = name or "log-probability"
        raise InputError(f"{source}: {place}: one of the numbers has more digits than any {what}") from error


def check_log_probs(
    where: str, nats: np.ndarray, raw: np.ndarray, offset: int, polarity: str, floor: float | None
) -> None:
    """Neither NaN nor above 0; minus infinity only where a floor takes it."""

    def first(wrong: np.ndarray) -> tuple[int, float]:
        index = int(np.argmax(wrong))
        return index + offset, float(raw[index])

    if (missing := np.isnan(nats)).any():
        raise InputError(f"{where}: position {first(missing)[0]} holds NaN; leave the row out or score it again")
    if (above := nats > _ROUNDING).any():
        position, value = first(above)
        if polarity == "loss":
            raise InputError(f"{where}: position {position} holds {value:g}; -log p is never below 0")
        hint = "; if the numbers are -log p, say polarity='loss'" if (raw >= 0).all() else ""
        if hint and (raw <= 1).all():  # said of probabilities, that would turn them into scores of nothing
            hint = "; if the numbers are probabilities, give their logarithms"
        raise InputError(f"{where}: position {position} holds {value:g}; a log-probability is never above 0{hint}")
    if floor is None and (below := np.isinf(nats)).any():
        raise InputError(
            f"{where}: position {first(below)[0]} holds minus infinity, which makes the score infinite; give "
            "floor=, a smallest log-probability"
        )


_ALIKE = 4
"""Log-probabilities of so many tokens of a text are never all equal; those of fewer may be, when they are rounded."""

_CAUSE = (
    "a server that does not compute the prompt's log-probabilities (as one that ignores echo) fills such numbers in; "
    "ask again, and compare one text with a server that does"
)


def check_informative(where: str, nats: np.ndarray) -> None:
    """Not zero at every token, and not one number at four or more."""
    if len(nats) > 1 and not nats.any():
        raise InputError(f"{where}: all {len(nats)} log-probabilities are 0, which no text has: {_CAUSE}")
    if len(nats) >= _ALIKE and (nats == nats[0]).all():
        raise InputError(
            f"{where}: all {len(nats)} log-probabilities are {nats[0]:g}, and those of a text differ: {_CAUSE}"
        )


def check_sums(source: str, places: Sequence[str], sums: Sequence[np.ndarray]) -> None:
    """No item whose choices all have the log-likelihood 0, and no file whose items all have the same.

    Args:
      source: the file.
      places: where each item stands.
      sums: log-likelihoods of each item's choices, or of the item.
    """
    for place, values in zip(places, sums, strict=True):
        if len(values) > 1 and not values.any():
            raise InputError(
                f"{source}: {place}: the log-likelihoods of all {len(values)} choices are 0, which no model gives: "
                f"{_CAUSE}"
            )
    firsts = np.array([values[0] for values in sums])
    zeros = int(np.count_nonzero(firsts == 0))
    if len(firsts) > 1 and (firsts == firsts[0]).all() and (zeros or len(firsts) >= _ALIKE):
        raise InputError(
            f"{source}: all {len(firsts)} items have the log-likelihood {firsts[0]:g}, and those of texts differ: "
            f"{_CAUSE}"
        )
    if 2 * zeros > len(firsts) > 1:
        raise InputError(
            f"{source}: {zeros} of {len(firsts)} items have the log-likelihood 0, which few texts have: {_CAUSE}"
        )


def check_statistics(where: str, nats: Mapping[str, np.ndarray], scale: float, offset: int) -> None:
    """Each statistic finite and of its sign, and no two of them impossible together.

    `nats` has [n] for "log_prob", already checked, and for names of `STATISTICS`, as far as the file has them; `scale`
    is the number of nats in a unit of the file, in which messages give numbers.
    """

    def refuse(wrong: np.ndarray, *words: str | np.ndarray) -> None:
        if wrong.any():
            index = int(np.argmax(wrong))
            told = (word if isinstance(word, str) else f"{word[index] / scale:g}" for word in words)
            raise InputError(f"{where}: position {index + offset}{''.join(told)}")

    for name, values in nats.items():
        if name != "log_prob":
            refuse(~np.isfinite(values), f" of {name} holds ", values, "; leave the row out or compute it again")
    for name in (name for name in ("sigma", "m_entropy") if name in nats):
        refuse(nats[name] < -_ROUNDING, f" of {name} holds ", nats[name], ", which is never below 0")
    entropies = {name: -nats[name] if name == "mu" else nats[name] for name in _ORDERS if name in nats}
    for name, entropy in entropies.items():
        rule = "mu is sum p log p, minus the entropy: never above 0" if name == "mu" else "an entropy is never below 0"
        refuse(entropy < -_SLACK, f" of {name} holds ", nats[name], f"; {rule}")
        refuse(entropy > _LARGEST, f" of {name} holds ", nats[name], ", the entropy of more than 2^32 tokens")
    bounds = [(*pair, 1) for pair in itertools.combinations(entropies, 2)]
    if {"renyi_two", "renyi_inf"} <= entropies.keys():
        bounds.append(("renyi_inf", "renyi_two", 2))
    for larger, smaller, factor in bounds:
        low, high = entropies[smaller], factor * entropies[larger]
        order = f"the entropy of order {_ORDERS[smaller]} is never above {'twice ' * (factor == 2)}that of order "
        refuse(
            low > high + _SLACK * (1 + low),
            *(f": {smaller} holds ", nats[smaller], f" and {larger} ", nats[larger], f"; {order}{_ORDERS[larger]}"),
            ": the lists have different bases, are exchanged, or belong to different positions",
        )
    if "renyi_inf" in entropies and "log_prob" in nats:
        least = entropies["renyi_inf"]
        refuse(
            -nats["log_prob"] < least - _SLACK * (1 + least),
            *(": the token's log-probability is ", nats["log_prob"], " and renyi_inf ", nats["renyi_inf"]),
            "; no token is more likely than the most likely one: the lists have different bases, or belong to "
            "different positions",
        )
