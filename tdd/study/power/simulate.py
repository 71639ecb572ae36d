"""Simulated audits of given sizes, one row of results a level, and searches on their increasing curves."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import resample, resample_pool, tally
from tdd.procedures.procedure import Procedure, as_procedure, known_procedures
from tdd.procedures.values import PTDI
from tdd.records import Null
from tdd.study.engine import STEP, exact_levels, prepared, repetition, shape
from tdd.study.methods import StudyMethod, method
from tdd.study.power.scores import NormalScores, ScorePool
from tdd.study.results import Totals
from tdd.study.runner import BlockSums, sum_over_blocks
from tdd.validate import InputError
from tdd.validate.arrays import key_of_seed

QUANTILES = {"q10": 0.1, "q50": 0.5, "q90": 0.9}
_FAST, _FEWEST, _MOST = 10_000, 256, 4_096  # repetitions
_NUMBERS = 4e6  # scores that the repetitions of one audit may draw, where sorting dominates
_POOL_LANES, _POOL_BYTES = 1024, 10 * 2**20
_RANGE = 2**15  # repetitions a call


@dataclasses.dataclass(frozen=True)
class Rule:
    """A decision rule."""

    select: StudyMethod  # its name is that of the rule
    null: Null  # which items calibrate, and are not to be selected
    kind: str  # the scores of an item, as in `ScorePool`
    procedure: Procedure  # knows the fewest selections of the rule
    proportion: str = ""  # estimate of `tdd.ptdi` where the fixed-pool engine decides alike

    @property
    def label(self) -> str:
        """The name of the rule."""
        return self.select.name

    @property
    def targets(self) -> str:
        """The items that it is right to select, in words."""
        return "members" if self.null == "nonmember" else "clean items"


def as_rule(given: str | Procedure) -> Rule:
    """The rule of a procedure, or "bh" or "bh:null=member": `tdd.bh` on conformal p-values.

    Raises:
      InputError: An unknown procedure, or one that needs more than scores, calibration items and knockoffs.
    """
    if isinstance(given, str):
        name, _, options = given.partition(":")
        if name == "bh":
            null: Null = "member" if options == "null=member" else "nonmember"
            if options not in ("", f"null={null}"):
                raise InputError(f"bh has one option, null=nonmember or null=member; got {given!r}")
            return Rule(method("bh"), null, "one", PTDI("none"), "none" if null == "nonmember" else "")
        if name not in known_procedures():
            raise InputError(f"method {name!r} is not known; choose one of bh, {', '.join(known_procedures())}")
    procedure = as_procedure(given)
    if lacking := [name for name in procedure.needs if name not in ("calibration", "knockoffs")]:
        raise InputError(f"method {procedure.label!r} needs {', '.join(lacking)}, which a power plan does not draw")
    if procedure.columns == "models":
        raise InputError(f"method {procedure.label!r} needs several models, which a power plan does not draw")
    kind = "several" if procedure.columns == "detectors" else "knockoffs" if "knockoffs" in procedure.needs else "one"
    proportion = procedure.proportion if type(procedure) is PTDI and procedure.eta == PTDI.eta else ""
    return Rule(method(procedure), procedure.null, kind, procedure, proportion)


_Program: TypeAlias = tuple[BlockSums, Callable[[int, int, int], Any], int]
"""Compiled sums, `(n, m, num_targets) -> operands`, and the number of repetitions."""


class Simulator:
    """`simulator(n, m, num_targets) -> rows`, one a level, as `PowerPlan` describes them.

    Every call uses the same random numbers, and every audit is simulated once. `most` are the largest n and m that will
    be asked for; `repetitions=None` are 256 to 10,000 on a pool, 10^8 item draws where that allows, and elsewhere 256
    to 4,096, 4·10^6 scores.
    """

    def __init__(
        self,
        law: NormalScores | ScorePool,
        rule: Rule,
        levels: tuple[float, ...],
        *,
        most: tuple[int, int],
        repetitions: int | None,
        seed: int,
        devices: Sequence[Any],
    ):
        self.law, self.rule, self.levels, self.most = law, rule, levels, most
        self.repetitions, self.devices = repetitions, tuple(devices)
        self.key = key_of_seed(seed)
        self.exact_levels = exact_levels(levels)
        self.audits: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
        self._programs: dict[bool, _Program] = {}

    def __call__(self, n: int, m: int, num_targets: int) -> list[dict[str, Any]]:
        """The audit of these sizes."""
        sizes = (n, m, num_targets)
        if sizes not in self.audits:
            exact = self.law.without_replacement(*sizes)
            if exact not in self._programs:
                on_pool = exact and self.rule.proportion
                self._programs[exact] = self._pool_program() if on_pool else self._design_program(exact)
            sums, operands, count = self._programs[exact]
            drawn = operands(*sizes)
            parts = [sums(drawn, first, min(first + _RANGE, count)) for first in range(0, count, _RANGE)]
            self.audits[sizes] = self._rows(*sizes, _results(parts, len(self.levels), m), count, exact)
        return self.audits[sizes]

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float) -> int:
        """The smallest number of selections that the sizes allow; m + 1 where nothing can be selected."""
        knockoffs = self.law.num_scores - 1 if self.rule.kind == "knockoffs" else 1
        return self.rule.procedure.min_selections(n, m, num_targets, alpha, knockoffs)

    def _rows(
        self, n: int, m: int, num_targets: int, results: dict[str, np.ndarray], repetitions: int, exact: bool
    ) -> list[dict[str, Any]]:
        members = num_targets if self.rule.null == "nonmember" else m - num_targets
        return [
            {
                "num_calibration": n,
                "num_tests": m,
                "member_share": members / m,
                "num_members": members,
                "num_targets": num_targets,
                "alpha": alpha,
                **{name: float(values[i]) for name, values in results.items()},
                "min_selections": self.min_selections(n, m, num_targets, alpha),
                "repetitions": repetitions,
                "extrapolated": isinstance(self.law, ScorePool) and not exact,
                "drawn": self.law.drawn(exact),
            }
            for i, alpha in enumerate(self.levels)
        ]

    def _pool_program(self) -> _Program:
        """Splits of a prepared pool by the engine of `tdd.study.resample`: sizes are operands."""
        assert isinstance(self.law, ScorePool)
        pool, size = self.law.prepared(), self.law.num_nulls + self.law.num_targets
        tails = resample_pool.tails(self.law.num_nulls, PTDI.eta)
        lanes = _POOL_LANES
        while lanes > 16 and 6 * size * lanes > _POOL_BYTES:
            lanes //= 2

        def operands(n: int, m: int, num_targets: int) -> Any:
            return pool, resample_pool.fixed_split(n, m, num_targets), self.exact_levels, tails, self.key

        sums = _pool_sums(self.rule.proportion, len(self.levels), lanes, self.devices)
        return sums, operands, self.repetitions or int(np.clip(1e8 // size, _FEWEST, _FAST))

    def _design_program(self, exact: bool) -> _Program:
        """A design with places for the largest audit: sizes are its data."""
        design = prepared(self.law.design(self.most, self.rule.null, exact=exact), [{}])[0]
        _, lanes = shape(design, self.key)
        count = self.repetitions
        if count is None:
            count = int(np.clip(_NUMBERS // (self.law.num_scores * sum(self.most)), _FEWEST, _MOST))
            count = -(-count // STEP) * STEP if count > STEP else count

        def operands(n: int, m: int, num_targets: int) -> Any:
            sizes = {"num_calibration": np.int32(n), "num_tests": np.int32(m), "num_targets": np.int32(num_targets)}
            return dataclasses.replace(design, **sizes), self.exact_levels, self.key

        return _design_sums(self.rule.select, self.levels, lanes, self.devices), operands, count


class _Sums(NamedTuple):
    """A tally [A], and [A] uint32 numbers of repetitions with a selection, and with a right one."""

    tally: tally.Tally
    any_selected: jax.Array
    any_true: jax.Array


def _summed(
    one_block: Callable[[Any, jax.Array], tuple[Any, Any, Any, Any]], num_levels: int, lanes: int, devices: Any
) -> BlockSums:
    """Compile the sums of `(operands, index) -> false and selected [A, L], targets and items [L]`."""

    def added(operands: Any, index: jax.Array, real: jax.Array, totals: _Sums) -> _Sums:
        false, selected, targets, items = one_block(operands, index)
        counts = [jnp.sum(event & real, axis=-1, dtype=jnp.uint32) for event in (selected > 0, selected > false)]
        tallied = tally.update(totals.tally, false, selected, targets, items, real=real)
        return _Sums(tallied, totals.any_selected + counts[0], totals.any_true + counts[1])

    def zero() -> _Sums:
        counts = jnp.zeros(num_levels, jnp.uint32)
        return _Sums(tally.zero((num_levels,)), counts, counts)

    return sum_over_blocks(added, zero, lanes=lanes, devices=devices)


@functools.lru_cache(maxsize=32)
def _design_sums(rule: StudyMethod, levels: tuple[float, ...], lanes: int, devices: tuple[Any, ...]) -> BlockSums:
    """The compiled sums of a design; operands are the design, exact levels and the key."""

    def one_block(operands: Any, index: jax.Array) -> tuple[Any, Any, Any, Any]:
        design, exact, key = operands
        counts = jax.vmap(lambda i: repetition(design, (rule,), levels, exact, jax.random.fold_in(key, i)))(index)
        return counts.false[:, 0].T, counts.selected[:, 0].T, counts.targets, counts.items

    return _summed(one_block, len(levels), lanes, devices)


@functools.lru_cache(maxsize=32)
def _pool_sums(proportion: str, num_levels: int, lanes: int, devices: tuple[Any, ...]) -> BlockSums:
    """The compiled sums of PTDI on a pool; operands are the pool, the split, exact levels, tails and the key."""

    def one_block(operands: Any, index: jax.Array) -> tuple[Any, Any, Any, Any]:
        pool, split, levels, tails, key = operands
        keys = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(key, i)))(index)
        drawn = resample.draw(pool, split, keys.T)
        decided = resample.decide(pool, drawn, levels, proportions=(proportion,), tails=tails)
        return decided.false[0], decided.selected[0], drawn.test_members, drawn.num_tests

    return _summed(one_block, num_levels, lanes, devices)


def _results(parts: Sequence[Any], num_levels: int, num_tests: int) -> dict[str, np.ndarray]:
    """[A] values of each column, from the sums of all calls."""
    totals, counts = Totals.zero((num_levels,)), np.zeros((2, num_levels), np.int64)
    for part in parts:
        totals = totals.add(part.tally)
        counts += [np.asarray(count).astype(np.int64).sum(axis=0) for count in (part.any_selected, part.any_true)]
    means, errors = totals.means(), totals.standard_errors(cautious=True)
    results = {
        "power": means[:, 1],
        "power_se": errors[:, 1],
        "fdp": means[:, 0],
        "fdp_se": errors[:, 0],
        "any_selected": counts[0] / totals.repetitions,
        "any_true": counts[1] / totals.repetitions,
        "any_true_se": binomial_error(counts[1], totals.repetitions),
        "num_selected": means[:, 3] * num_tests,
        "num_selected_se": np.nan_to_num(totals.standard_errors()[:, 3]) * num_tests,
    }
    quantiles = totals.quantiles(tuple(QUANTILES.values()))
    results |= {f"power_{name}": quantiles[:, 1, i] for i, name in enumerate(QUANTILES)}
    return results | {
        f"num_selected_{name}": np.rint(quantiles[:, 3, i] * num_tests) for i, name in enumerate(QUANTILES)
    }


def binomial_error(count: np.ndarray, repetitions: int) -> np.ndarray:
    """The standard error of a relative frequency, as if two repetitions more had had 0 and 1."""
    frequency = (count + 1) / (repetitions + 2)
    return np.sqrt(frequency * (1 - frequency) / (repetitions + 2))


_FINE = 0.01  # a bracket narrower than this fraction of its upper end is not halved again
_LARGEST, _SMALLEST = 64.0, 1 / 64  # effects that are tried
_NARROW = 1.2  # ratio of the ends of a bracket of effects


class Crossing(NamedTuple):
    """Where an increasing curve over counts reaches a wanted height."""

    count: int | None  # the smallest count found to reach it; None where even the largest does not
    low: int | None  # the count at which the curve plus two standard errors reaches it, at most `count`
    high: int | None  # the count at which the curve minus two standard errors reaches it; None where none does
    value: float  # of the curve at `count`, or at the end
    error: float  # standard error of that value


def smallest_count(
    curve: Callable[[int], tuple[float, float]], known: Sequence[int], most: int, wanted: float, *, fewest: int = 1
) -> Crossing:
    """Search fewest..most for the smallest count at which the curve is at least `wanted`.

    The curve is evaluated at the end, then between the known counts that enclose the crossing, in halves (of the
    logarithm while the ends are far apart), until the bracket is one item or 1% wide. Common random numbers make the
    differences between neighbours far better known than the values, so that the search does not go astray; the errors
    of the values are in `low` and `high`, by linear interpolation. The curve, `count -> (value, standard error)`,
    increases up to noise and keeps what it has computed; the `known` counts were evaluated before.
    """
    end, error = curve(most)
    if end < wanted:
        return Crossing(None, None, None, end, error)
    points = {count: curve(count) for count in sorted({*known, most}) if fewest <= count <= most}
    high = min(count for count, (value, _) in points.items() if value >= wanted)
    low = max((count for count in points if count < high), default=fewest - 1)
    while high - low > max(1, _FINE * high):
        middle = math.isqrt(low * high) if high > 2 * low > 0 else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1)
        points[middle] = curve(middle)
        low, high = (low, middle) if points[middle][0] >= wanted else (middle, high)
    near, far = (_crossing(points, sign, wanted, _on_line) for sign in (2, -2))
    return Crossing(high, near, None if far is None else max(far, high), *points[high])


class Effect(NamedTuple):
    """The smallest effect with the wanted power, and where the curve plus and minus two s.e. has it; None: nowhere."""

    smallest_effect: float | None
    smallest_effect_low: float | None
    smallest_effect_high: float | None


def smallest_effect(curve: Callable[[float], tuple[float, float]], start: float, wanted: float) -> Effect:
    """Search the effects from 1/64 to 64 for the smallest at which the curve is at least `wanted`.

    The curve, `effect -> (value, standard error)`, increases up to noise; `start`, a power of two, is tried first.
    """
    points = {start: curve(start)}
    low = high = start
    while points[low][0] >= wanted and low > _SMALLEST:
        high, low = low, low / 2
        points[low] = curve(low)
    while points[high][0] < wanted and high < _LARGEST:
        low, high = high, high * 2
        points[high] = curve(high)
    if points[low][0] < wanted <= points[high][0]:
        top = high
        while high / low > _NARROW:
            middle = math.sqrt(low * high)
            points[middle] = curve(middle)
            low, high = (low, middle) if points[middle][0] >= wanted else (middle, high)
        if points[top][0] - 2 * points[top][1] < wanted:  # for the far end of the interval
            points[2 * top] = curve(2 * top)
    return Effect(*(_crossing(points, sign, wanted, _on_log_line) for sign in (0, 2, -2)))


def _on_line(low: int, high: int, fraction: float) -> int:
    return round(float(low + fraction * (high - low)))


def _on_log_line(low: float, high: float, fraction: float) -> float:
    return float(low * (high / low) ** fraction)


def _crossing(
    points: dict[Any, tuple[float, float]], sign: float, wanted: float, between: Callable[[Any, Any, float], Any]
) -> Any:
    """The first place at which the line through value + sign·error reaches a height; None where it does not."""
    places = sorted(points)
    heights = [points[place][0] + sign * points[place][1] for place in places]
    i = next((i for i, height in enumerate(heights) if height >= wanted), None)
    if i is None:
        return None
    if i == 0:
        return places[0]
    fraction = (wanted - heights[i - 1]) / (heights[i] - heights[i - 1])
    return between(places[i - 1], places[i], fraction)
