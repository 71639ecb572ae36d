"""`tdd.study.expected_power`: the results to expect of an audit, and the smallest fraction of members it detects."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from tdd.procedures.procedure import Procedure
from tdd.runs.display import progress_bar
from tdd.runs.folder import versions
from tdd.runs.portable import command_of, typed_words
from tdd.runs.units import counted
from tdd.study import checks
from tdd.study.power import PowerPlan
from tdd.study.power.scores import LabelledScores, NormalScores, ScorePool
from tdd.study.power.simulate import Rule, Simulator, as_rule, smallest_count
from tdd.validate import InputError
from tdd.validate.settings import on_own_devices

_CANDIDATES = ("candidate", "candidates")
_FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_LARGE = 1_000  # default n and m of normal scores


class SmallestOptions(TypedDict, total=False):
    """The fields of `Smallest` as keywords of a call."""

    power: float
    detection: float
    search: bool


@dataclasses.dataclass(frozen=True)
class Smallest:
    """Which fraction of targets counts as detectable, and whether the smallest is searched for.

    Raises:
      InputError: `power` or `detection` outside (0, 1).
    """

    power: float = 0.5
    detection: float = 0.8
    search: bool = True

    def __post_init__(self) -> None:
        for name in ("power", "detection"):
            object.__setattr__(self, name, checks.as_probability(name, getattr(self, name)))

    @property
    def wanted(self) -> dict[str, float]:
        """Criterion -> its value."""
        return {"power": self.power, "any_true": self.detection}


@on_own_devices()
def expected_power(
    source: LabelledScores | NormalScores,
    *,
    num_calibration: Any = None,
    num_tests: Any = None,
    member_share: Any = None,
    alpha: Any = 0.1,
    method: str | Procedure = "ptdi",
    repetitions: int | None = None,
    seed: int = 0,
    devices: Sequence[Any] | None = None,
    progress: bool = False,
    **options: Unpack[SmallestOptions],
) -> PowerPlan:
    """Power, false discoveries and numbers of selections to expect of an audit, before it is run.

    For every number n of calibration items, number m of candidates and fraction of members among these, audits are
    drawn from the source and decided at every level.

    **Draws.** Without replacement where the labelled items suffice: the mean over draws is then an unbiased estimate
    of the expected power in the population that they were sampled from. Where n or m exceed them, items are drawn with
    replacement from a kernel estimate of the two laws in the scale of normal scores (for knockoffs: from the items as
    they are), and the row is marked `extrapolated`: the tail of the null beyond the most extreme scores is a guess,
    often too hopeful. Standard errors are those of the simulation, without the sampling error of the items.

    **Smallest detectable fraction.** The smallest number of targets among the m candidates, in steps of one item or
    1%, at which (criterion "power") the expected fraction of the targets that is selected is at least `power`, or
    (criterion "any_true") at least one target is selected with probability at least `detection`. Targets are the items
    that the method is to select: members, or clean items (td4eval, bh:null=member; the answer is then a fraction of
    clean items, and `member_share` is one minus it).

    Args:
      source: `tdd.study.LabelledScores`, items with known labels, or `tdd.study.NormalScores`, two normal laws.
      num_calibration: n, one or several. Default: half of the items under the null; 1,000 for normal scores.
      num_tests: m, one or several. Default: as many as the items give without replacement at any fraction; 1,000 for
        normal scores.
      member_share: Fraction of members among the candidates, one or several in [0, 1]; m times it is rounded to whole
        items. Default: 1, 2, 5, 10, 20, 50 and 100% targets, as far as they are whole items.
      alpha: Level, one or several; taken as exact fractions.
      method: A procedure by name, with its options ("ptdi:proportion=none,eta=0.1") or as a value (`tdd.KTD()`);
        "bh" or "bh:null=member" for `tdd.bh` on conformal p-values.
      repetitions: Audits drawn for each row, with the same random numbers in all rows. Default: 10,000 on the
        fixed-pool engine (ptdi and bh on draws without replacement), 256 to 4,096 by size elsewhere.
      seed: Random seed.
      devices: Devices that share the repetitions (default: all).
      progress: Show a bar on standard error, if that is a terminal.
      **options: of the smallest detectable fraction:

        - power: wanted expected power (.5).
        - detection: wanted probability of at least one right selection (.8).
        - search: False leaves it out.

    Returns:
      `PowerPlan`.

    Raises:
      InputError: Sizes, fractions, levels or names out of range; a source that the method does not fit or, with
        draw="without", that is too small; a fraction that leaves nothing to be found.

    Cost: O(N) a repetition by the fixed-pool engine for N items; elsewhere that of the method.

    >>> source = NormalScores(auc=0.9)
    >>> plan = expected_power(source, num_calibration=200, num_tests=100, member_share=0.5, repetitions=200)
    >>> row = plan.rows[0]
    >>> bool(row["fdp"] < 0.12), row["num_targets"], plan.smallest[0]["criterion"]
    (True, 50, 'power')

    References: PTDI, section 5.1 (splits of a labelled pool); Silverman (1986), section 6.4.1 (smoothed draws).
    """
    started = time.perf_counter()
    rule, levels = as_rule(method), checks.as_levels(alpha)
    law = _as_law(source, rule)
    detectable = Smallest(**options)
    checks.check_run(1 if repetitions is None else repetitions, seed, None)
    sizes = _sizes(law, rule, num_calibration, num_tests)
    simulate = Simulator(
        law,
        rule,
        levels,
        most=(max(n for n, _ in sizes), max(m for _, m in sizes)),
        repetitions=repetitions,
        seed=seed,
        devices=checks.as_devices(devices),
    )
    audits = [(n, m, count) for n, m in sizes for count in _counts(law, rule, n, m, member_share)]
    rows, smallest, searched = [], [], sizes if detectable.search else []
    with progress_bar("power", len(audits) + len(searched), enabled=progress, unit="audits") as advance:
        for audit in audits:
            rows += simulate(*audit)
            advance(1)
        for n, m in searched:
            known = {*_default_counts(m), *(count for i, j, count in audits if (i, j) == (n, m))}
            smallest += _smallest(simulate, n, m, detectable.wanted, known)
            advance(1)
    curve = tuple(row for audit in sorted(simulate.audits) for row in simulate.audits[audit])
    about = {
        "source": law.words(),
        "method": rule.label,
        "null": rule.null,
        "targets": rule.targets,
        "wanted": detectable.wanted,
        "alphas": list(levels),
        "draw": law.draw,
        "seed": int(seed),
        "command": command_of(typed_words()) or None,
        "versions": versions(),
        "warnings": _warnings(law, rule, extrapolated=any(row["extrapolated"] for row in curve)),
        "seconds": time.perf_counter() - started,
    }
    return PowerPlan(tuple(rows), curve, tuple(smallest), about)


def _as_law(source: Any, rule: Rule) -> NormalScores | ScorePool:
    """The source as the rule sees it."""
    if isinstance(source, LabelledScores):
        return ScorePool(source, rule.kind, rule.null)
    if not isinstance(source, NormalScores):
        raise InputError(
            "source must be tdd.study.LabelledScores(scores, is_member) or tdd.study.NormalScores(auc), got "
            f"{type(source).__name__}"
        )
    if rule.kind != "one":
        scores = "those of several detectors" if rule.kind == "several" else "those of its knockoffs"
        raise InputError(f"auc describes one score an item; {rule.label} needs {scores}: give scores with labels")
    return source


def _sizes(law: NormalScores | ScorePool, rule: Rule, num_calibration: Any, num_tests: Any) -> list[tuple[int, int]]:
    """Every n with every m."""
    knockoffs = rule.kind == "knockoffs"
    if knockoffs and num_calibration is not None:
        raise InputError(f"{rule.label} has no calibration items; leave num_calibration out")
    n, m = _LARGE, _LARGE
    if isinstance(law, ScorePool):
        half = law.num_nulls // 2
        n = 1 if knockoffs else max(1, half)
        m = max(1, min(law.num_nulls - (0 if knockoffs else half), law.num_targets))
    calibration = checks.as_counts("num_calibration", n if num_calibration is None else num_calibration)
    tests = checks.as_counts("num_tests", m if num_tests is None else num_tests)
    return [(n, m) for n in calibration for m in tests]


def _default_counts(m: int) -> list[int]:
    return sorted({round(fraction * m) for fraction in _FRACTIONS if round(fraction * m) >= 1})


def _counts(law: NormalScores | ScorePool, rule: Rule, n: int, m: int, member_share: Any) -> list[int]:
    """Numbers of targets among m candidates, each once, at least 1."""
    if member_share is None:
        counts = _default_counts(m)
        if law.draw == "without":
            return [count for count in counts if law.suffices(n, m, count)] or counts
        return counts
    given = [member_share] if np.ndim(member_share) == 0 else list(member_share)
    if not given:
        raise InputError("member_share (--fraction) is empty; give at least one fraction, for example 0.1")
    for fraction in given:
        if not 0 <= checks.as_float(fraction) <= 1:
            raise InputError(f"member_share (--fraction) must lie from 0 to 1, got {fraction!r}; 0.1 stands for 10%")
    counts = []
    for fraction in sorted({float(fraction) for fraction in given}):
        members = round(fraction * m)
        count = members if rule.null == "nonmember" else m - members
        if count < 1:
            raise InputError(
                f"member_share (--fraction) {fraction:g} of {m} candidates leaves no {rule.targets} to be found, and "
                f"power is the fraction of them that is selected; at least one of {m} is needed"
            )
        counts.append(count)
    return list(dict.fromkeys(counts))


def _smallest(simulate: Simulator, n: int, m: int, wanted: dict[str, float], known: set[int]) -> list[dict[str, Any]]:
    """The smallest detectable fraction by criterion and level; of a pool drawn without replacement what it gives."""
    law, rule = simulate.law, simulate.rule
    fewest, most = 1, m
    if law.draw == "without":
        possible = [count for count in range(1, m + 1) if law.suffices(n, m, count)]
        if not possible:
            return []
        fewest, most = possible[0], possible[-1]
        known &= {*possible}
    rows = []
    for criterion, height in wanted.items():
        for i, alpha in enumerate(simulate.levels):

            def curve(count: int, i: int = i, criterion: str = criterion) -> tuple[float, float]:
                row = simulate(n, m, count)[i]
                return row[criterion], row[f"{criterion}_se"]

            crossing = smallest_count(curve, sorted(known), most, height, fewest=fewest)
            count = crossing.count
            fraction, low, high = (None if k is None else k / m for k in (count, crossing.low, crossing.high))
            if count is None:
                reason = _why_none(simulate, n, m, most, alpha)
            elif count == fewest > 1:
                reason = (
                    f"pool: without replacement it gives no fewer than {fewest} {rule.targets} among {m} candidates; "
                    "fewer may do"
                )
            else:
                reason = ""
            rows.append(
                {
                    "num_calibration": n,
                    "num_tests": m,
                    "alpha": alpha,
                    "criterion": criterion,
                    "wanted": height,
                    "num_targets": count,
                    "target_share": fraction,
                    "target_share_low": low,
                    "target_share_high": high,
                    "member_share": 1 - fraction if fraction is not None and rule.null == "member" else fraction,
                    "value": crossing.value,
                    "value_se": crossing.error,
                    "extrapolated": simulate(n, m, count or most)[i]["extrapolated"],
                    "reason": reason,
                }
            )
    return rows


def _why_none(simulate: Simulator, n: int, m: int, most: int, alpha: float) -> str:
    """The reason why even the largest number of targets is not detected."""
    rule = simulate.rule
    fewest = simulate.min_selections(n, m, most, alpha)
    if fewest > m:
        if rule.kind == "knockoffs":
            return f"resolution: at level {alpha:g} no fewer than {fewest} of {m} candidates could be selected"
        return f"resolution: {n} calibration items are too few for {counted(m, _CANDIDATES)} at level {alpha:g}"
    reached = "all candidates" if most == m else f"{most} of {m} candidates, all that the pool gives,"
    too_few = "" if rule.kind == "knockoffs" else f", or {n} calibration items are too few"
    return f"signal: the scores separate too little{too_few}, even where {reached} are {rule.targets}"


def _warnings(law: NormalScores | ScorePool, rule: Rule, *, extrapolated: bool) -> list[str]:
    if isinstance(law, NormalScores):
        return [
            "normal scores are an assumption, and the result depends on their tails; scores with known labels, even a "
            "few, tell more"
        ]
    warnings = []
    if extrapolated:
        warnings.append(
            f"audits marked as extrapolated are drawn from a smoothed pool ({law.num_nulls} items under the null, "
            f"{law.num_targets} {rule.targets}): the null's tail beyond its extremes is a guess"
        )
    scores = np.concatenate([law.nulls, law.targets], axis=1)
    if any(2 * np.unique(row).size < row.size for row in scores):
        warnings.append("most scores of the pool are equal to others; smoothed draws have no ties")
    if rule.kind != "knockoffs" and max(law.aucs()) <= 0.5:
        warnings.append("in this pool members do not score lower than non-members: is HIGHER more member-like here?")
    return warnings
