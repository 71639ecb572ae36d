"""Tests of guarantees: a promise is held, its broken twin is convicted, one false-alarm budget for the suite.

A check looks at its repetitions several times, after 2,000, 4,000, 8,000, ... of them. A promise fails where a
confidence bound, valid at any sample size, says at some look that it does not hold; it is met where such a bound says
that it does, or at the last look. The looks share the check's level, and the checks share the suite's budget: a correct
project fails a run with probability at most `SUITE_FALSE_ALARM`. A twin is drawn until a bound convicts it, in either
tier; the promises have 2,000 repetitions in the default tier and 10^5 in the slow one.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from tdd.study.claims import mean_radius

SUITE_FALSE_ALARM = 1e-3
SHORT, MANY, LONG = 2_000, 8_000, 100_000
CONVICTION = 1e-5
"""Largest level at which a twin is convicted."""


class GuaranteeViolated(AssertionError):
    """A confidence bound excludes what was promised."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """What one check may use: a level, and repetitions for a promise that is not settled earlier."""

    level: float
    repetitions: int = SHORT

    def split(self, parts):
        return dataclasses.replace(self, level=self.level / parts)


class Source:
    """Repetitions of `one(key) -> pytree of scalars`, in chunks of a compiled program, drawn as far as needed.

    The first chunks give all scalars; where a check wants many more of one of them, that one is computed by itself.
    Repetition i has the same key however many are drawn, and whatever `batch` is.
    """

    def __init__(self, one, seed, batch, most):
        self.one, self.batch = one, min(batch, SHORT, most)
        self.keys = jax.random.split(jax.random.key(seed), most)
        self.traced = self.program(one).trace(self.keys[:SHORT])
        self.structure = jax.tree.structure(self.traced.out_info)
        self.programs, self.values = {}, None

    def program(self, one, **options):
        return jax.jit(functools.partial(jax.lax.map, one, batch_size=self.batch), **options)

    def start(self):
        self.programs["all"] = self.traced.lower().compile()
        self.values = [np.asarray(x, np.float64) for x in jax.tree.leaves(self.programs["all"](self.keys[:SHORT]))]

    def more(self, leaf):
        """Draw further values of a scalar; many of them by a program that was compiled with more care."""
        start = len(self.values[leaf])
        keys, many = self.keys[start : start + SHORT], start >= MANY
        if not many and len(keys) == SHORT:
            found = dict(enumerate(jax.tree.leaves(self.programs["all"](keys))))
        else:
            if (leaf, many) not in self.programs:
                options = {"compiler_options": {"xla_backend_optimization_level": 1}} if many else {}
                self.programs[leaf, many] = self.program(lambda key: jax.tree.leaves(self.one(key))[leaf], **options)
            found = {leaf: self.programs[leaf, many](keys)}
        for other, further in found.items():
            if len(self.values[other]) == start:
                self.values[other] = np.concatenate([self.values[other], np.asarray(further, np.float64)])

    def first(self, leaf, count):
        if self.values is None:
            self.start()
        while len(self.values[leaf]) < count:
            self.more(leaf)
        return self.values[leaf][:count]


class Draws(np.lib.mixins.NDArrayOperatorsMixin):
    """Values of the repetitions, drawn when a check asks for them; arithmetic gives further draws.

    Attributes:
      first: number of repetitions -> array of their values.
      most: how many there can be.
    """

    def __init__(self, first, most):
        self.first, self.most = first, most

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if method != "__call__" or options:
            return NotImplemented
        most = min(x.most for x in inputs if isinstance(x, Draws))
        return Draws(lambda n: ufunc(*(x.first(n) if isinstance(x, Draws) else x for x in inputs)), most)


def given(values):
    """Draws out of an array that is there."""
    values = np.asarray(values, np.float64)
    return Draws(lambda count: values[:count], len(values))


def simulate(one, *, seed, batch=2_000, most=LONG):
    """The pytree of `one(key)` with `Draws` for its scalars; nothing is computed yet."""
    source = Source(one, seed, batch, most)
    leaves = range(source.structure.num_leaves)
    return source.structure.unflatten(Draws(functools.partial(source.first, leaf), most) for leaf in leaves)


def looks(repetitions):
    """Numbers of repetitions at which a check looks."""
    found = [SHORT * 2**k for k in range(20) if SHORT * 2**k < repetitions]
    return [*found, repetitions]


def _interval(values, level):
    assert values.min() >= 0
    assert values.max() <= 1
    mean, values = values.mean(), values.astype(np.float64)
    return mean - mean_radius(values, level), mean + mean_radius(values, level)


def assert_at_most(draws, bound, budget):
    """Mean of values in [0, 1] <= bound, or GuaranteeViolated."""
    numbers = looks(min(budget.repetitions, draws.most))
    for number in numbers:
        values = draws.first(number)
        low, high = _interval(values, budget.level / len(numbers))
        if low > bound:
            raise GuaranteeViolated(
                f"mean {values.mean():.5f} of {number} > {bound:.5f}: at level {budget.level:.1e} at least {low:.5f}"
            )
        if high <= bound:
            return


def assert_equals(draws, target, budget):
    """Mean of values in [0, 1] equals target within the confidence bounds of both sides."""
    assert_at_most(draws, target, budget.split(2))
    assert_at_most(1 - draws, 1 - target, budget.split(2))


def assert_exceeds(draws, bound, budget):
    """A broken twin: its mean is convicted of exceeding the bound."""
    assert_exceeds_somewhere([(draws, bound)], budget)


def assert_differs(draws, target, budget):
    """A twin of an equality: its mean is convicted of another value."""
    assert_exceeds_somewhere([(draws, target), (1 - draws, 1 - target)], budget)


def assert_exceeds_somewhere(pairs, budget):
    """Some of the means is convicted of exceeding its bound; the twin is drawn until it is."""
    level = min(budget.level, CONVICTION) / len(pairs)
    numbers = looks(min(draws.most for draws, _ in pairs))
    for number in numbers:
        if any(_interval(draws.first(number), level / len(numbers))[0] > bound for draws, bound in pairs):
            return
    means = ", ".join(f"{draws.first(numbers[-1]).mean():.5f} against {bound:.5f}" for draws, bound in pairs)
    raise AssertionError(f"a broken twin was not caught in {numbers[-1]} repetitions: {means}")


def _at(p_values, levels):
    return [(p_values <= level * (1 + 1e-6), level) for level in levels]


def assert_super_uniform(p_values, levels, budget):
    """P(p <= t) <= t at each of the levels."""
    for reached, level in _at(p_values, levels):
        assert_at_most(reached, level, budget)


def assert_not_super_uniform(p_values, levels, budget):
    """A broken twin: P(p <= t) > t at one of the levels."""
    assert_exceeds_somewhere(_at(p_values, levels), budget)


def false_discovery_proportion(selected, null):
    """FDP of one repetition."""
    return jnp.sum(selected & null) / jnp.maximum(jnp.sum(selected), 1)
