"""`tdd.expected_power`: what an audit may expect to find, and the smallest share of members that it detects."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.procedures.procedure import Procedure
from tdd.runs.folder import versions
from tdd.runs.progress import progress_bar
from tdd.study import checks as study_checks
from tdd.study.power.answers import detectable, rows_of, warnings_of
from tdd.study.power.evaluate import Evaluator
from tdd.study.power.laws import Binormal, ScorePool
from tdd.study.power.record import PowerPlan
from tdd.study.power.rules import Rule, as_rule
from tdd.validate import power as checks
from tdd.validate.errors import InputError

__all__ = ["expected_power"]

_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_LARGE = 1_000  # n and m where nothing else says
_STEPS = 12  # of one search, about: for the progress bar
_DRAWS = ("auto", "without", "smoothed")


def expected_power(
    scores: Any = None,
    is_member: Any = None,
    *,
    auc: float | None = None,
    sd_ratio: float = 1.0,
    num_calibration: Any = None,
    num_tests: Any = None,
    member_share: Any = None,
    alpha: Any = 0.1,
    method: str | Procedure = "ptdi",
    proportion: str | None = None,
    combine: str | None = None,
    rule: str | None = None,
    null: str | None = None,
    power: float = 0.5,
    detection: float = 0.8,
    search: bool = True,
    draw: str = "auto",
    repetitions: int | None = None,
    seed: int = 0,
    source: str = "the pool",
    devices: Sequence[Any] | None = None,
    progress: bool = False,
) -> PowerPlan:
    """Power, false discoveries and numbers of selections to expect of an audit, before it is run.

    For every number n of calibration items, number m of candidates and share of members among these, audits are drawn
    and decided at every level: calibration items and candidates come out of a pool of items whose labels are known,
    or follow two normal laws of a given AUC.

    **Draws.** Without replacement where the pool suffices: the mean over draws is then an unbiased estimate of the
    expected power in the population that the pool was sampled from. Where n or m exceed the pool, items are drawn
    with replacement from a kernel estimate of the two laws in the scale of normal scores (for ktd: from the items as
    they are), and the answer is marked `extrapolated`: the tail of the null beyond the pool's most extreme scores is
    a guess, often too hopeful. Standard errors are those of the simulation; the pool's own sampling error is not in
    them.

    **Smallest detectable share.** The smallest number of targets among the m candidates, in steps of one item or 1 %,
    at which (criterion "power") the expected share of the targets that is selected is at least `power`, or
    (criterion "any_true") at least one target is selected with probability at least `detection`. Targets are what the
    method selects rightly: members (ptdi, bh, ktd), or clean items (td4eval, bh with null="member"; the answer is
    then a share of clean items, and `member_share` is one minus it).

    Args:
      scores: [N] loss-like scores (lower = more member-like) of items with known labels; [K, N] for td4eval (K
        detectors) and for ktd (the text's score, then those of its K - 1 knockoffs).
      is_member: [N] bool.
      auc: in place of scores: the AUC of normal scores, the probability that a member scores lower than a non-member.
      sd_ratio: with `auc`: standard deviation of the members' scores in those of the non-members'.
      num_calibration: n, one or several. Default: half of the pool's items under the null; 1,000 with `auc`.
      num_tests: m, one or several. Default: as many as the pool gives without replacement at any share; 1,000 with
        `auc`.
      member_share: share of members among the candidates, one or several in [0, 1]; m times it is rounded to whole
        items. Default 1, 2, 5, 10, 20, 50 and 100 % targets, as far as they are whole items.
      alpha: level, one or several; taken as exact fractions.
      method: "ptdi", "bh" (conformal p-values as they are), "td4eval", "ktd", or a `tdd.Procedure`.
      proportion: of ptdi: "storey" (default), "subtraction", "none".
      combine: of td4eval; default "pooled_rank".
      rule: of ktd: "multi" (default), "derandomized", "ktd".
      null: for bh: which items calibrate, "nonmember" (default) or "member".
      power: wanted expected power.
      detection: wanted probability of at least one right selection.
      search: False leaves the smallest detectable share out.
      draw: "auto"; "without": refuse what the pool cannot give; "smoothed": always the kernel estimate.
      repetitions: audits drawn for each row; the same random numbers in all rows. Default 10,000 on the fixed-pool
        engine (ptdi and bh on draws without replacement), 256 to 4,096 by size elsewhere.
      seed: of everything random.
      source: name of the pool for the report.
      devices: to share the repetitions out over (default: all).
      progress: shows a bar on standard error, if that is a terminal.

    Returns:
      `PowerPlan`.

    Raises:
      InputError: no labelled items of both kinds; an AUC of at most one half; sizes, shares, levels or names out of
        range; a pool that is too small for draw="without"; a share that leaves nothing to be found.

    Cost: the fixed-pool engine takes about 1 ns an item of the pool and repetition; elsewhere that of the method.

    >>> plan = expected_power(auc=0.9, num_calibration=200, num_tests=100, member_share=0.5, repetitions=200)
    >>> row = plan.rows[0]
    >>> bool(row["fdp"] < 0.12), row["num_targets"], plan.smallest[0]["criterion"]
    (True, 50, 'power')

    References: PTDI, section 5.1 (splits of a labelled pool); Silverman (1986), section 6.4.1 (smoothed draws).
    """
    started = time.perf_counter()
    checks.check_one_source({"scores": scores is not None, "auc": auc is not None})
    chosen = as_rule(method, proportion=proportion, combine=combine, rule=rule, null=null)
    law = _law(scores, is_member, auc, sd_ratio, chosen, source)
    levels = study_checks.as_levels(alpha)
    wanted = {"power": checks.check_proportion("power", power)}
    wanted["any_true"] = checks.check_proportion("detection", detection)
    checks.check_name("draw", draw, _DRAWS)
    study_checks.check_run(1 if repetitions is None else repetitions, seed, None)
    sizes, asked = _sizes(law, chosen, num_calibration, num_tests, member_share)
    total = len(sizes) * (len(asked or _SHARES) + search * _STEPS * len(levels))
    with progress_bar("power", total, enabled=progress, unit="audits") as advance:
        evaluate = Evaluator(
            law,
            chosen,
            levels,
            most=(max(n for n, _ in sizes), max(m for _, m in sizes)),
            repetitions=repetitions,
            seed=seed,
            draw=draw,
            devices=study_checks.as_devices(devices),
            advance=advance,
        )
        cells = [
            evaluate(n, m, k) for n, m in sizes for k in _drawable(_targets(asked, m, chosen), n, m, evaluate, asked)
        ]
        found = [
            row
            for n, m in (sizes if search else ())
            for row in detectable(evaluate, n, m, wanted, known=_targets(None, m, chosen) + _targets(asked, m, chosen))
        ]
        advance(max(0, total - len(evaluate.cells)))
    curve = sorted(evaluate.cells.values(), key=lambda cell: (cell.n, cell.m, cell.num_targets))
    about = {
        "source": law.words(),
        "method": chosen.label,
        "null": chosen.null,
        "targets": chosen.targets,
        "wanted": wanted,
        "alphas": list(levels),
        "draw": draw,
        "seed": int(seed),
        "versions": versions(),
        "warnings": warnings_of(law, curve, chosen),
        "seconds": time.perf_counter() - started,
    }
    rows, every = (tuple(row for cell in part for row in rows_of(cell, evaluate)) for part in (cells, curve))
    return PowerPlan(rows, every, tuple(found), about)


def _law(scores: Any, is_member: Any, auc: Any, sd_ratio: Any, rule: Rule, source: str) -> Binormal | ScorePool:
    if auc is None:
        _check_labels_given(is_member)
        return ScorePool.of(scores, is_member, rule.kind, rule.null, source)
    _check_binormal_method(rule.label, rule.kind)
    return Binormal(*_check_auc(auc, sd_ratio))


def _sizes(
    law: Binormal | ScorePool, rule: Rule, num_calibration: Any, num_tests: Any, member_share: Any
) -> tuple[list[tuple[int, int]], tuple[float, ...] | None]:
    """Every n with every m, and the shares of members that are asked for."""
    if isinstance(law, Binormal):
        own, others = (_LARGE,), (_LARGE,)
    else:
        nulls, targets = law.nulls.shape[1], law.targets.shape[1]
        own = (1,) if rule.kind == "knockoffs" else (max(1, nulls // 2),)
        others = (max(1, min(nulls - (0 if rule.kind == "knockoffs" else nulls // 2), targets)),)
    if num_calibration is not None:
        _check_calibrated(rule.label, rule.kind)
        own = checks.as_counts("num_calibration", num_calibration)
    if num_tests is not None:
        others = checks.as_counts("num_tests", num_tests)
    shares = None if member_share is None else _as_shares("member_share", member_share)
    return [(n, m) for n in own for m in others], shares


def _targets(shares: tuple[float, ...] | None, m: int, rule: Rule) -> list[int]:
    """Numbers of targets among m candidates, each once, at least 1."""
    if shares is None:
        return sorted({round(share * m) for share in _SHARES if round(share * m) >= 1})
    found = {}
    for share in shares:
        members = round(share * m)
        count = members if rule.null == "nonmember" else m - members
        _check_some_targets("member_share", share, m, rule.targets, count)
        found[count] = None
    return list(found)


def _drawable(counts: list[int], n: int, m: int, evaluate: Evaluator, asked: tuple[float, ...] | None) -> list[int]:
    """Of shares that nobody asked for those that can be drawn as they should; all where there is none."""
    if asked is not None or evaluate.draw != "without":
        return counts
    return [count for count in counts if evaluate.law.suffices(n, m, count)] or counts


def _as_shares(argument: str, value: Any) -> tuple[float, ...]:
    """One share in (0, 1], or several, in increasing order."""
    given = [value] if np.ndim(value) == 0 else list(value)
    out = []
    for each in given:
        number = math.nan if isinstance(each, (bool, str)) else float(each)
        if not 0 <= number <= 1:
            raise InputError(f"{argument} must lie from 0 to 1, got {each!r}; 0.1 stands for 10 %")
        out.append(number)
    if not out:
        raise InputError(f"{argument} is empty; give at least one share, for example 0.1")
    return tuple(sorted(set(out)))


def _check_some_targets(argument: str, share: float, num_tests: int, targets: str, found: int) -> None:
    """A share of the candidates of at least one item."""
    if found < 1:
        raise InputError(
            f"{argument}={share:g} of {num_tests} candidates leaves no {targets} to be found, and power is the share "
            f"of them that is selected; at least one of {num_tests} is needed"
        )


def _check_auc(auc: Any, sd_ratio: Any) -> tuple[float, float]:
    """An AUC between one half and 1, and a positive ratio of standard deviations."""
    number = math.nan if isinstance(auc, (bool, str)) else float(auc)
    if not 0.5 < number < 1:
        raise InputError(
            f"auc must lie strictly between 0.5 (no signal) and 1, got {auc!r}; it is the probability that a member "
            "scores lower (more member-like) than a non-member"
        )
    ratio = math.nan if isinstance(sd_ratio, (bool, str)) else float(sd_ratio)
    if not (math.isfinite(ratio) and ratio > 0):
        raise InputError(
            f"sd_ratio must be a positive number, the standard deviation of the members' scores in those of the "
            f"non-members'; got {sd_ratio!r}"
        )
    return number, ratio


def _check_labels_given(is_member: Any) -> None:
    """Labels come with scores."""
    if is_member is None:
        raise InputError("is_member is missing: one label an item, True where it was in the training data")


def _check_binormal_method(label: str, kind: str) -> None:
    """A method that decides on one score."""
    if kind != "one":
        others = "those of several detectors" if kind == "several" else "those of its knockoffs"
        raise InputError(f"auc describes one score an item; {label} needs {others}: give scores with labels")


def _check_calibrated(label: str, kind: str) -> None:
    """A method that has calibration items."""
    if kind == "knockoffs":
        raise InputError(f"{label} has no calibration items; leave num_calibration out")
