"""JMCS and JECS: one clean set for several models, calibrated on items that all of them were trained on.

An item's null hypothesis is that it is a member of at least one of the K models. Its p-value is the largest of its K
conformal p-values, calibrated on shared known members.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import conformal, envelope, stepup
from tdd.kernels import proportion as proportions
from tdd.procedures.calls import (
    CHOSEN_BEFOREHAND,
    decided_by_rank,
    exact_fraction,
    first_items,
    level_operand,
    ordered_panels,
    tracing,
)
from tdd.procedures.procedure import Procedure, WithOption, check_options, least_calibration_by_rank, masks
from tdd.records import Difference, Evidence, Guarantee, JointSelection, Selection
from tdd.validate import InputError, arrays
from tdd.validate.settings import in_own_settings

Rule = Literal["bh", "storey", "by"]
RULES = ("bh", "storey", "by")
GRID = tuple(Fraction(i, 10) for i in range(1, 10))

_MIN_ABOVE = 10  # p-values above a grid point that make it a candidate

# `jecs` warns if there are fewer calibration items than _FEW or than _FEW_ROOTS·sqrt(m).
_FEW, _FEW_ROOTS = 1_000, 20

_SHARED = (
    "the calibration items are members of the training data of every model",
    "for each model, scores of the calibration items and of the candidates that it was trained on are exchangeable",
    CHOSEN_BEFOREHAND,
)
_INDEPENDENT = (
    "given its labels, the scores of an item under the K models are independent, and so are items: not so in practice, "
    'where a text is easy or difficult for all models; jmcs with rule="by" needs no independence'
)

_ENVELOPE = (
    *_SHARED,
    _INDEPENDENT,
    "the distribution function of the largest p-value of a contaminated item is convex",
    "just above tau contaminated items are at least as dense as among all items above tau",
)
_LIMIT = "GCR <= alpha in the limit of many items"

GUARANTEES: dict[str, Guarantee] = {
    "bh": Guarantee.finite_sample(
        "GCR <= alpha * m0/m if models are independent; GCR <= alpha * (1 + 1/2 + ... + 1/m) in any case",
        (*_SHARED, _INDEPENDENT),
        "JECS eq. 10-12 (the paper states it without independence, where it fails)",
    ),
    "storey": Guarantee.finite_sample(
        "GCR <= alpha if models are independent; no bound otherwise",
        (*_SHARED, _INDEPENDENT),
        "Storey's estimate on the largest p-values; argued at tdd.jmcs",
    ),
    "by": Guarantee.finite_sample(
        "GCR <= alpha * m0/m", _SHARED, "JECS eq. 10-11 with Benjamini & Yekutieli (2001), theorem 1.3"
    ),
    "jecs": Guarantee(
        _LIMIT,
        (*_ENVELOPE, "calibration items grow faster than the square root of the number of candidates above tau"),
        "asymptotic",
        "JECS proposition 2 and theorem 3",
    ),
    "jecs, neighbours": Guarantee(
        _LIMIT,
        (
            *_ENVELOPE,
            "with the number N of candidates above tau, the k neighbours grow without bound and k/N falls to 0",
            "calibration items grow faster than N/k",
        ),
        "asymptotic",
        "JECS propositions 2 and 6 and theorem 3",
    ),
}

GUARANTEE_ROWS = [
    *[("tdd.jmcs", f'rule="{name}"', GUARANTEES[name]) for name in RULES],
    ("tdd.jecs", "", GUARANTEES["jecs"]),
    ("tdd.jecs", "neighbours=k", GUARANTEES["jecs, neighbours"]),
]

DIFFERENCES = [
    Difference(
        "tdd.study.baselines.selected_by_each", "JECS", "eq. 5", "BH for each model, in the text",
        'Storey-BH; BH with step="bh"', "the numbers of the paper's table 1 are those of Storey-BH",
    ),
    Difference(
        "tdd.jmcs", "JECS", "eq. 12", "GCR <= alpha in finite samples",
        "claimed for models that are independent given the labels; alpha (1 + ... + 1/m) and \"by\" in any case",
        "counterexample: 3/4 at level 2/3 for n = m = 2",
    ),
    Difference(
        "tdd.jecs", "JECS", "section 3.3", "the density above tau is estimated from the k nearest p-values",
        "the whole group of ties of the k-th one counts", "conformal p-values lie on a lattice: many are equal",
    ),
    Difference(
        "tdd.jecs", "JECS", "appendix D.1", "tau is any point of the grid",
        "points with fewer than ten p-values above them are passed over",
        "fewer have at most three neighbours; where no point is left the selection is that of tdd.jmcs",
    ),
]  # fmt: skip


@in_own_settings()
def jmcs(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    rule: Rule = "bh",
    eta: Any = 0.5,
    calibration_mask: Any = None,
    mask: Any = None,
) -> JointSelection:
    """Joint max conformal selection: items that no model was trained on, at a contamination rate of at most alpha.

    p_j^(k) = (1 + #{i: T_i^(k) >= T_j^(k)})/(n+1) for each model k, P_j = max_k p_j^(k), a step-up procedure on P
    (JECS, section 3.2, eq. 10-12).

    Guarantee: on the global contamination rate GCR = E[contaminated selected / selected], in finite samples, if each
    model's scores of the calibration items and of the candidates it was trained on are exchangeable, and, for "bh" and
    "storey", if the scores of an item under different models are independent given its labels:
      "bh": BH at alpha; GCR <= alpha·m0/m. Without independence the bound is alpha·(1 + ... + 1/m), and alpha itself is
        exceeded in an example: 3/4 at 2/3 for n = m = 2.
      "storey": BH at alpha/pi0, pi0 = (1 + #{P_j >= lambda})/(m (1 - lambda)), uncapped; GCR <= alpha, and no bound
        without independence. Stronger if most candidates are clean, weaker if many are contaminated: their P_j lie near
        1, and pi0 exceeds 1.
      "by": BH at alpha/(1 + 1/2 + ... + 1/m); GCR <= alpha·m0/m under any dependence.
    Differs from the paper (`DIFFERENCES`): eq. 12 is claimed for independent models only.

    In practice a text that is difficult for one model is difficult for all: read the bound as alpha·(1 + 1/2 + ... +
    1/m) for "bh", as none for "storey", or use "by". (Measured with shared difficulty, correlations .5 and .9, "bh" and
    "storey" keep alpha; counterexamples have to be constructed: `tdd study validity`.)

    Why "storey" holds: let model k be one that was trained on item j, Q_j = p_j^(k) <= P_j, and hold fixed all scores
    of the other models, model k's scores of the other candidates, and the unordered scores of model k on calibration
    and j. Then Q_j is super-uniform, every P_i is non-decreasing in Q_j, and hence the number R of selections
    non-increasing; pi0 is at least its value A_j at the smallest Q_j with item j left out. So j contributes at most
    E[1{Q_j <= alpha R/(m A_j)}/R] <= E[alpha/(m A_j)]. The Q_i <= P_i of the m0 - 1 other contaminated items reach
    lambda as independent trials whose probabilities p_i depend on the calibration only, E[1/p_i] <= 1/(1 - lambda), and
    E[1/(1 + successes)] <= E[1/(m0 mean(p))] <= 1/(m0 (1 - lambda)) (Hoeffding 1956; Jensen). The sum over j is at most
    alpha. "bh" is the first half with A_j = 1.

    Args:
      calibration: [K, n] loss-like scores (lower = more member-like) of items that every model was trained on.
      scores: [K, m] loss-like scores of the candidates, models in the same order.
      alpha: level in (0, 1); a number is taken as an exact fraction, a JAX array may be traced.
      rule: the step-up procedure.
      eta: 1 - lambda for "storey": the fraction of calibration scores in the region of presumed contaminated items.
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `JointSelection` with the identity as its envelope. An item with a NaN score in any model is left out and counted.
      Cost: K times O((n + m) log n).

    Raises:
      InputError: wrong shapes, different K, infinite scores, no calibration items, alpha or eta out of range, unknown
        `rule`.

    >>> calibration = [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    >>> jmcs(calibration, [[9.0, 9.0, 0.0], [9.0, 8.0, 9.0]], alpha=0.5).selected.tolist()
    [True, True, False]
    """
    arrays.check_choice(rule, RULES, "rule")
    pad = not tracing(alpha, eta)
    panels = ordered_panels(calibration, scores, calibration_mask, mask, rows="models", pad=pad)
    selection = _jmcs(*panels, level_operand(alpha), level_operand(eta, "eta"), rule=rule)
    return first_items(selection, np.shape(scores)[1])


@in_own_settings()
def jecs(
    calibration: Any,
    scores: Any,
    *,
    alpha: Any,
    grid: Sequence[Any] = GRID,
    neighbours: Callable[[int], int] | None = None,
    calibration_mask: Any = None,
    mask: Any = None,
) -> JointSelection:
    """Joint envelope conformal selection: JMCS with the null distribution of the largest p-value estimated.

    With G the envelope fitted on P (`tdd.kernels.envelope.fit`), u_j = G(P_j) and pi0 = (1 + #{P_j > tau})/(m (1 -
    G(tau))), BH at alpha on pi0·u_j (JECS, section 3.3, eq. 13-17; appendix B.1 for the general k; appendix D.1).

    Guarantee: asymptotic only, under a convex null distribution function, contaminated items that dominate the right
    tail, and many more calibration items than the square root of the tail. With the first two assumptions true and half
    of the candidates clean, GCR at alpha = .1 was .15 for n = 100, m = 200, .14 for n = 300, m = 700, .19 for n = 99, m
    = 10,000 and still .12 for n = m = 20,000. `jmcs` holds in finite samples; its rule "storey" has almost the same
    power there.

    Differs from the paper (`DIFFERENCES`): section 3.3, where whole groups of ties count; appendix D.1, with at least
    ten p-values above tau.

    Args:
      calibration: [K, n] loss-like scores (lower = more member-like) of items that every model was trained on.
      scores: [K, m] loss-like scores of the candidates, models in the same order.
      alpha: level in (0, 1); a number is taken as an exact fraction, a JAX array may be traced.
      grid: candidates for tau, numbers in (0, 1), taken as exact fractions.
      neighbours: k(N), how many of the N p-values above tau estimate the density there; 1 <= k(N) <= N for 10 <= N <=
        m. The paper needs a k that grows without bound while k(N)/N falls to 0; nothing is proven for others, such as k
        = 1 or k = N. Default ceil(sqrt(N)).
      calibration_mask: [n] bool, True = real item.
      mask: [m] bool, True = real item.

    Returns:
      `JointSelection`; `envelope` is the fitted envelope for plotting. If no grid point has ten p-values above it,
      `envelope.fitted` is False and the selection is that of `jmcs`. `proportion` is 1 - pi0.

    Raises:
      InputError: as `jmcs`, a grid that is empty or not static numbers in (0, 1), and `neighbours` that are not whole
        numbers in 1..N.

    Warns:
      UserWarning: fewer than 1,000 calibration items, or than 20 square roots of m.
    """
    points = checked_grid(grid)
    pad = not tracing(alpha)
    panels = ordered_panels(calibration, scores, calibration_mask, mask, rows="models", pad=pad, most=_most(points))
    number = np.shape(scores)[1]
    _check_size(points, np.shape(calibration)[1])
    if not tracing(*panels):
        _warn_if_few(*(int(np.count_nonzero(mask)) for mask in panels[2:]))
    check_neighbours(neighbours)
    places = None if neighbours is None else _places(neighbours, number, panels[1].shape[1])
    return first_items(_jecs(*panels, level_operand(alpha), places, grid=points), number)


def checked_grid(grid: Sequence[Any]) -> tuple[Fraction, ...]:
    """Return the grid as exact fractions, hashable for a compiled function."""
    if isinstance(grid, (str, bytes, jax.Array)) or arrays.num_axes(grid) != 1 or len(grid) == 0:
        raise InputError(f"grid must be a sequence of numbers between 0 and 1 and hold at least one, got {grid!r}")
    points = []
    for i, tau in enumerate(grid):
        if isinstance(tau, jax.Array):
            raise InputError(f"grid[{i}] must be a number, not a JAX array: the grid is static")
        arrays.check_level(tau, f"grid[{i}]")
        points.append(exact_fraction(tau))
    return tuple(points)


def check_neighbours(neighbours: Any) -> None:
    """Check that the neighbours are a function, or None."""
    if neighbours is not None and not callable(neighbours):
        raise InputError(f"neighbours must be a function from N to k, for example math.isqrt, got {neighbours!r}")


def _places(neighbours: Callable[[int], int], num_tests: int, size: int) -> np.ndarray:
    """Return [size + 1] int32, k(N) for N = 0..m; 1 where no grid point qualifies, and beyond m."""
    table = np.ones(size + 1, np.int32)
    for above in range(_MIN_ABOVE, num_tests + 1):
        k = neighbours(above)
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= above:
            raise InputError(f"neighbours({above}) must be a whole number in 1..{above}, got {k!r}")
        table[above] = k
    return table


def _most(grid: tuple[Fraction, ...]) -> int:
    """Return the largest number of calibration items for which decisions with this grid are exact."""
    return (2**31 - 1) // math.lcm(*(tau.denominator for tau in grid)) - 1


def _check_size(grid: tuple[Fraction, ...], num_calibration: int) -> None:
    if num_calibration > _most(grid):
        common = math.lcm(*(tau.denominator for tau in grid))
        raise InputError(
            f"grid has the common denominator {common}, too fine for exact decisions with {num_calibration} "
            "calibration items; round its points, for example to two decimals"
        )


def _warn_if_few(num_calibration: int, num_tests: int) -> None:
    if num_calibration < max(_FEW, _FEW_ROOTS * math.sqrt(num_tests)):
        warnings.warn(
            f"jecs controls the contamination rate only in the limit of many items; with {num_calibration} calibration "
            f"items for {num_tests} candidates it may exceed alpha by half. jmcs holds in finite samples, with "
            'rule="storey" where most candidates are clean',
            UserWarning,
            stacklevel=4,  # the caller of `jecs`, behind its decorator
        )


@functools.partial(jax.jit, static_argnames="rule")
def _jmcs(calibration, scores, calibration_mask, mask, alpha, eta, *, rule) -> JointSelection:
    ranked, max_rank = _largest(calibration, scores, calibration_mask, mask)
    n, m = ranked.num_calibration, ranked.num_tests
    if rule == "storey":
        estimate = proportions.storey(ranked.rank, ranked.valid, n, max_rank=max_rank, eta=eta)
    else:
        estimate = proportions.none(n, m, max_rank=max_rank, max_tests=scores.shape[1])
    scale = None
    if rule == "by":
        top, bottom = (jnp.asarray(table)[m] for table in harmonic(scores.shape[1]))
        scale = ((*estimate.numerator, top), (*estimate.denominator, bottom))
    return JointSelection.from_step(
        **decided_by_rank(ranked, alpha, estimate, max_rank=max_rank, scale=scale),
        method=f"jmcs/{rule}",
        null="member",
        guarantee=GUARANTEES[rule],
        envelope=envelope.identity(ranked.rank, n, max_rank=max_rank),
    )


@functools.partial(jax.jit, static_argnames="grid")
def _jecs(calibration, scores, calibration_mask, mask, alpha, places, *, grid) -> JointSelection:
    ranked, max_rank = _largest(calibration, scores, calibration_mask, mask)
    n, m = ranked.num_calibration, ranked.num_tests
    fitted = envelope.fit(ranked.rank, n, max_rank=max_rank, grid=grid, neighbours=places)
    min_selections = stepup.min_rejections(alpha, scores.shape[1], scale=envelope.line_scale(fitted, n, m))
    return JointSelection.from_step(
        envelope.adaptive_bh(ranked.rank, n, alpha, fitted, max_rank=max_rank),
        p_values=conformal.p_values(ranked),
        proportion=1 - fitted.null_proportion,
        num_tests=m,
        num_calibration=n,
        # If no rank lies on the line, the smallest p-value is in the tail, where nothing passes alone.
        min_selections=jnp.where(fitted.anchor.limit > 0, min_selections, scores.shape[1] + 1),
        method="jecs",
        null="member",
        guarantee=GUARANTEES["jecs" if places is None else "jecs, neighbours"],
        envelope=fitted,
    )


def _largest(
    calibration: jax.Array, scores: jax.Array, calibration_mask: jax.Array, mask: jax.Array
) -> tuple[conformal.ConformalRanks, int]:
    """Return the ranks of the largest of the K p-values of each item, and their bound."""
    masks: dict[str, Any] = {"calibration_mask": calibration_mask, "mask": mask}
    ranked = jax.vmap(lambda c, s: conformal.rank(c, s, null="member", **masks))(calibration, scores)
    first = jax.tree.map(lambda field: field[0], ranked)
    return first._replace(rank=jnp.max(ranked.rank, axis=0)), calibration.shape[1] + 1


@functools.cache
def harmonic(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 + 1/2 + ... + 1/m for m = 0..size as numerators and denominators below 2^31.

    Exact as long as the fraction fits, beyond that rounded up by less than 2^-25.
    """
    sums = np.concatenate([[1.0], np.cumsum(1 / np.arange(1, size + 1))])
    top = np.ceil(sums * (1 + 1e-12) * 2**26).astype(np.int32)
    bottom = np.full(size + 1, 2**26, np.int32)
    exact, m = Fraction(1), 1
    while m <= size and exact.numerator < 2**31:
        top[m], bottom[m] = exact.numerator, exact.denominator
        m += 1
        exact += Fraction(1, m)
    return top, bottom


_UNKNOWN_MAXIMUM = "the distribution of the largest of several p-values under the null is unknown"


@dataclasses.dataclass(frozen=True)
class JMCS(WithOption):
    """`tdd.jmcs`, for several models at once.

    Attributes:
      rule: "bh", "storey" or "by".
      eta: fraction of the calibration scores in the region of presumed members ("storey").
    """

    name = "jmcs"
    no_bounds = _UNKNOWN_MAXIMUM
    _option = "rule"
    _guarantees = GUARANTEES
    null = "member"
    columns = "models"

    rule: Rule = "bh"
    eta: float = 0.5

    def __post_init__(self) -> None:
        check_options(self, rule=RULES)
        arrays.check_level(self.eta, "eta")

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        options: dict[str, Any] = {"alpha": alpha, "rule": self.rule, "eta": self.eta, **masks(evidence)}
        return jmcs(evidence.calibration, evidence.scores, **options)

    def smallest_p_value(self, n: int) -> float | None:  # noqa: D102
        return 1 / (n + 1)

    def least_calibration(self, k: int, m: int, alpha: float, null_proportion: float = 1) -> int | None:  # noqa: D102
        top, bottom = (int(table[m]) for table in harmonic(m)) if self.rule == "by" else (1, 1)
        return least_calibration_by_rank(k, m, alpha, null_proportion, Fraction(top, bottom))


@dataclasses.dataclass(frozen=True)
class JECS(Procedure):
    """`tdd.jecs`, for several models at once.

    Attributes:
      grid: candidate edges of the envelope; empty for the default ones.
      neighbours: k(N), how many of the N p-values above tau estimate the density there, as in `tdd.jecs`; None for the
        default. Runs are told apart by its name and code.
    """

    name = "jecs"
    no_bounds = _UNKNOWN_MAXIMUM
    null = "member"
    columns = "models"

    grid: tuple[float, ...] = ()
    neighbours: Callable[[int], int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", tuple(self.grid))
        if self.grid:
            checked_grid(self.grid)
        check_neighbours(self.neighbours)

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return GUARANTEES["jecs" if self.neighbours is None else "jecs, neighbours"]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        grid = self.grid or GRID
        options: dict[str, Any] = {"alpha": alpha, "grid": grid, "neighbours": self.neighbours, **masks(evidence)}
        return jecs(evidence.calibration, evidence.scores, **options)

    def smallest_p_value(self, n: int) -> float | None:  # noqa: D102
        return 1 / (n + 1)

    def record(self) -> dict[str, Any]:  # noqa: D102
        return {name: value for name, value in super().record().items() if value is not None}

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        assert isinstance(selection, JointSelection)
        envelope = selection.envelope
        if not bool(envelope.fitted):
            return [("envelope", "not fitted: too few p-values above every grid point")]
        return [("envelope", f"slope {float(envelope.slope):.3g} up to tau = {float(envelope.tau):.3g}")]

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        assert isinstance(selection, JointSelection)
        if bool(selection.envelope.fitted):
            return []
        return ["the envelope could not be fitted, so this is the selection of JMCS"]
