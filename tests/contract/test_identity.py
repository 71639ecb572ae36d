"""Whatever changes a decision tells runs apart: options of procedures, functions among them, and a user's code."""

import dataclasses
import math

import pytest

import tdd
from tdd.procedures.procedure import known_procedures
from tdd.runs.folder import fingerprint

OTHERS = {
    "ptdi": {"proportion": "none", "eta": 0.1, "unit": "item"},
    "best_score": {"rule": "randomized"},
    "combined_score": {"rule": "cross_fit", "learn_from": "members"},
    "conditional": {"rule": "dkwm", "delta": 0.07},
    "weighted": {"rule": "homogeneous"},
    "ktd": {"rule": "closed", "proportion": ("conformal", "none"), "offset": ("ktd", 0)},
    "td4eval": {"combine": "hommel", "rule": "cauchy", "weights": (0.2, 0.8)},
    "jmcs": {"rule": "by", "eta": 0.3},
    "jecs": {"grid": (0.1, 0.3), "neighbours": math.isqrt},
}
"""Procedure -> option -> another value; with (rule, value) the option belongs to that rule."""


@pytest.mark.parametrize("name", OTHERS)
def test_every_option_is_in_the_fingerprint(name):
    kind = known_procedures()[name]
    own = {field.name for field in dataclasses.fields(kind)}
    assert own == OTHERS[name].keys(), "name another value of each option"
    for option, value in OTHERS[name].items():
        base = kind()
        if name == "ktd" and isinstance(value, tuple):
            base, value = kind(rule=value[0]), value[1]
        changed = dataclasses.replace(base, **{option: value})
        assert fingerprint(changed.identity()) != fingerprint(base.identity()), option


def functions():
    def first(count):
        return max(1, count // 2)

    def second(count):
        return max(1, count // 3)

    return first, second, lambda count: 1, lambda count: max(1, count // 4), math.isqrt


def test_functions_are_told_apart_by_name_and_code_and_stay_the_same_in_another_process():
    first, again = ([fingerprint(tdd.JECS(neighbours=one).identity()) for one in functions()] for _ in range(2))
    assert len({*first}) == len(first)
    assert first == again


def test_the_code_of_a_users_procedure_is_in_the_fingerprint():
    def defined(share):
        @dataclasses.dataclass(frozen=True)
        class Rule(tdd.PTDI):
            name = "users_rule"

            def select(self, evidence, alpha, key=None):
                return super().select(evidence, share * alpha, key)

        return Rule

    def halved():
        @dataclasses.dataclass(frozen=True)
        class Rule(tdd.PTDI):
            name = "users_rule"

            def select(self, evidence, alpha, key=None):
                return super().select(evidence, alpha / 2, key)

        return Rule

    kinds = defined(0.5), defined(0.5), halved()
    one, same, other = (fingerprint(kind().identity()) for kind in kinds)
    assert one == same != other
