"""Whatever changes a decision tells runs apart: options of procedures, functions among them, and a user's code."""

import dataclasses
import functools
import importlib
import inspect
import math
import pkgutil

import numpy as np
import pytest
import scored_models

import tdd
import tdd.study
from tdd.procedures.procedure import known_procedures
from tdd.runs.described import described
from tdd.runs.folder import fingerprint
from tdd.scoring.models import identity_of_given, provenance_of
from tdd.scoring.scores.score import OWN, SCORES, fields_of

OTHERS = {
    "ptdi": {"proportion": "none", "eta": 0.1, "unit": "item"},
    "best_score": {"rule": "randomized"},
    "combined_score": {"rule": "cross_fit", "learn_from": "members"},
    "conditional": {"rule": "dkwm", "delta": 0.07},
    "weighted": {"rule": "homogeneous"},
    "ktd": {"rule": "derandomized", "proportion": ("conformal", "none"), "offset": ("ktd", 0)},
    "td4eval": {"combine": "hommel", "rule": "cauchy", "weights": (0.2, 0.8)},
    "jmcs": {"rule": "by", "eta": 0.3},
    "jecs": {"grid": (0.1, 0.3), "neighbours": math.isqrt},
}
"""Procedure -> option -> another value; with (rule, value) the option belongs to that rule."""


def test_every_procedure_is_there():
    assert {name for name, kind in known_procedures().items() if kind.__module__.startswith("tdd.")} == OTHERS.keys()


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


def test_what_a_users_procedure_closes_over_and_its_properties_are_in_the_fingerprint():
    def rule(share, levels):
        class Rule(tdd.PTDI):
            name = "users_rule"

            @property
            def factor(self):
                return levels

            def select(self, evidence, alpha, key=None):
                return super().select(evidence, self.factor * share * alpha, key)

        return fingerprint(Rule().identity())

    assert len({rule(0.5, 1), rule(0.25, 1), rule(0.5, 2)}) == 3
    assert rule(0.5, 1) == rule(0.5, 1)


def changed_class(**defined):
    return described(type("Rule", (), defined))


def constant(value):
    return lambda *given: value


@pytest.mark.parametrize(
    "wrapped",
    [lambda value: value, constant, lambda value: property(constant(value)),
     lambda value: staticmethod(constant(value)), lambda value: classmethod(constant(value)),
     lambda value: functools.cached_property(constant(value)), lambda value: {"table": value}],
    ids=["value", "method", "property", "staticmethod", "classmethod", "cached_property", "table"],
)  # fmt: skip
def test_all_that_a_class_defines_counts(wrapped):
    first, again, other = (changed_class(given=wrapped(value)) for value in (1, 1, 2))
    assert first == again != other


class Slotted:
    __slots__ = ("count",)

    def __init__(self, count):
        self.count = count

    def __call__(self, count):
        return self.count


@pytest.mark.parametrize("make", [Slotted, lambda count: {9: count}.get], ids=["slots", "method of a dictionary"])
def test_what_an_object_without_a_dictionary_holds_counts(make):
    first, again, other = (fingerprint(tdd.JECS(neighbours=make(count)).identity()) for count in (1, 1, 2))
    assert first == again != other


def test_a_function_that_cannot_be_read_is_refused():
    with pytest.raises(tdd.InputError, match="cannot be told apart"):
        tdd.JECS(neighbours=np.frompyfunc(lambda count: 1, 1, 1)).identity()


def designs():
    """Every class of `tdd.study` that draws."""
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(tdd.study.__path__, "tdd.study.")]
    found = {kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)}
    return sorted((kind for kind in found if hasattr(kind, "draw") and dataclasses.is_dataclass(kind)), key=repr)


def filled(kind, changed=None):
    """An object with a number in every field, another one in the field `changed`; no value is checked."""
    made = object.__new__(kind)
    for number, field in enumerate(dataclasses.fields(kind)):
        object.__setattr__(made, field.name, number + 100 * (field.name == changed))
    return made


@pytest.mark.parametrize("kind", designs(), ids=lambda kind: kind.__name__)
def test_every_field_of_a_design_is_in_the_fingerprint(kind):
    assert described(filled(kind)) == described(filled(kind))
    for field in dataclasses.fields(kind):
        assert described(filled(kind, field.name)) != described(filled(kind)), field.name


SCORE_OPTIONS = {
    "loss": {"reduction": "sum"},
    "min_k": {"k": 0.1},
    "min_k_plus_plus": {"k": 0.1},
    "max_renyi": {"gamma": 2, "k": 0.1},
    "grad_norm": {"reduction": "mean"},
    "acmia": {"beta": 2},
    "surp": {"k": 0.1, "entropy": 1},
    "dc_pdd": {"cap": 0.02},
    "camia": {"signal": "above", "first": 100},
    "con_recall": {"gamma": 0.25},
    "lira": {"variance": "each", "signal": "logit"},
    "rmia": {"a": 0.5, "gamma": 2},
    "fsd": {"of": "min_k", "epochs": 2, "rate": 0.01, "rank": 8, "seed": 1},
}
"""Score -> option -> another value; scores without options are left out."""


@pytest.mark.parametrize("name", OWN)
def test_every_option_of_a_score_is_in_the_fingerprint(name):
    kind = SCORES[name]
    fields = fields_of(kind)
    options = SCORE_OPTIONS.get(name, {})
    assert options.keys() == {field for field, given in fields.items() if given is None}, "name another value of each"
    for option, value in options.items():
        assert kind(**{option: value}).label != kind().label, option
    for field, given in fields.items():
        if given is None:
            continue
        one, other = given_of(given.kind)
        several = given.least > 1
        first, second = ((one, other), (other, one)) if several else (one, other)
        assert identity_of(kind(**{field: first})) != identity_of(kind(**{field: second})), field


def identity_of(score):
    return fingerprint(identity_of_given({"column": score}))


@functools.cache
def given_of(kind):
    if kind == "texts":
        return [tdd.load_texts([words]) for words in ("one text", "another text")]
    return [scored_models.scored_model(seed) for seed in (0, 1)]


@pytest.mark.parametrize("changed", ["weights", "tokenizer"])
def test_a_model_in_memory_is_its_weights_and_its_tokenizer(changed):
    lm, params, tokenizer = scored_models.scored_model()
    other = (lm, scored_models.scored_model(1)[1], tokenizer)
    if changed == "tokenizer":
        other = (lm, params, scored_models.scored_model(bos=True)[2])
    first = provenance_of((lm, params, tokenizer))
    assert first != provenance_of(other)
    tokenizer(["w1 w2 w3"], truncation=True, max_length=2)
    assert first == provenance_of((lm, params, tokenizer))


def users_score(sign, **options):
    @dataclasses.dataclass(frozen=True)
    class Mine(tdd.Score):
        name = "mine"
        statistics = ("log_prob",)
        limit: float = 0.0

        def rows(self, stats):
            return sign * stats.log_prob.sum(axis=-1)

    return Mine(**options)


def test_the_code_of_a_users_score_is_in_the_fingerprint():
    makers = [lambda: users_score(1), lambda: users_score(2), lambda: users_score(1, limit=1.0)]
    first, *others = (identity_of(make()) for make in makers)
    assert first == identity_of(makers[0]())
    assert first not in others
    assert len({*others}) == 2
