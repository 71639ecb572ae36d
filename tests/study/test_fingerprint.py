"""What tells one study from another: functions, objects and arrays that differ are described differently."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd
from tdd.runs.described import described
from tdd.study import NormalShift, Sample, method, run

CUT = 0.0
SET = frozenset({"a", "b", "c"})


class Below:
    """A rule with a state, and a method that is a rule."""

    def __init__(self, cut):
        self.cut = cut

    def __call__(self, key, scores, calibration):
        return scores < self.cut

    def rule(self, key, scores, calibration):
        return scores < self.cut


class Fixed:
    """A design that is no dataclass."""

    def __init__(self, score):
        self.score = score

    def draw(self, key):
        return Sample(jnp.zeros(3), jnp.full(4, self.score), jnp.ones(4, bool))


def closing_over_a_function(cut):
    def inner(scores):
        return scores < cut

    def rule(key, scores, calibration):
        return inner(scores)

    return rule


def by_default(cut):
    def rule(key, scores, calibration, cut=cut):
        return scores < cut

    return rule


def by_keyword_default(cut):
    def rule(key, scores, calibration, *, cut=cut):
        return scores < cut

    return rule


def by_global(cut):
    global CUT
    CUT = cut
    return naming_a_global


def naming_a_global(key, scores, calibration):
    return through_another(scores)


def through_another(scores):
    return next(scores < CUT for _ in range(1))


MAKERS = {
    "object": Below,
    "bound method": lambda cut: Below(cut).rule,
    "closure of a closure": closing_over_a_function,
    "jit": lambda cut: jax.jit(lambda key, scores, calibration: scores < cut),
    "vmap": lambda cut: jax.vmap(lambda score: score < cut),
    "partial": lambda cut: functools.partial(by_default(0.0), cut=cut),
    "default": by_default,
    "keyword default": by_keyword_default,
    "global": by_global,
    "array": lambda cut: by_default(np.full(2, cut)),
    "design": Fixed,
    "set": lambda cut: {cut},
}


@pytest.mark.parametrize("kind", MAKERS)
def test_another_number_is_another_study(kind):
    make = MAKERS[kind]
    first, second, again = (described(make(cut)) for cut in (-1.0, 1.0, -1.0))
    assert first == again != second


def test_other_code_of_one_name_is_another_study():
    rules = [lambda key, scores, calibration: scores < 1, lambda key, scores, calibration: scores <= 1]
    assert described(rules[0]) != described(rules[1])

    def kinds(sign):
        class Design:
            def draw(self, key):
                return sign

        class Other(Design):
            def draw(self, key):
                return -sign

        Other.__qualname__ = Design.__qualname__
        return Design(), Other()

    one, other = kinds(1)
    assert described(one) != described(other)


@pytest.mark.parametrize("module", ["profile", "code", "statistics", "my_rules"])
def test_a_file_of_the_user_may_have_the_name_of_a_standard_module(module):
    """The code of a class in profile.py counts, though Python has a module of this name."""

    def of(number):
        functions = {"__module__": module, "decide": eval(f"lambda self: {number}", {"__name__": module})}
        return described(type("Rule", (), functions)())

    assert of(1) == of(1)
    assert of(1) != of(2)


def test_a_cycle_ends():
    rule = Below(0.0)
    vars(rule)["me"] = rule
    assert described(rule)["state"]["me"] == "itself"


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), np.float32(0.5), np.int64(3)])
def test_numbers_are_plain(value):
    assert isinstance(described(value), (str, float, int))
    assert not isinstance(described(value), np.generic)
    assert described(value) == described(value)


CODE = """
import json
from test_fingerprint import MAKERS, SET, described
print(json.dumps([described(make(2.0)) for make in MAKERS.values()] + [described(lambda x: x in {"a", "b", "c"})]))
print(json.dumps(described(SET)))
"""


@pytest.mark.slow("long")
def test_the_same_in_every_process():
    found = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", CODE], cwd=__file__.rpartition("/")[0], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu", "PATH": ""},
        )  # fmt: skip
        found.add(done.stdout)
    assert len(found) == 1
    assert " at 0x" not in found.pop()


@pytest.mark.parametrize("kind", ["object", "closure of a closure", "jit"])
def test_a_folder_is_not_continued_by_a_rule_with_another_number(kind, tmp_path):
    design = NormalShift(num_calibration=9, num_tests=5)

    def study(cut):
        rule = method(MAKERS[kind](cut), label="own")
        return run(design, rule, alphas=0.1, repetitions=16, folder=tmp_path)

    first = study(-1.0)
    assert study(-1.0).power == first.power
    with pytest.raises(tdd.InputError, match="another study"):
        study(2.0)
