"""The procedures that an audit can run, each from `Evidence` to a `Selection`, with what it has to say in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np

from tdd.audit.evidence import Evidence, Options
from tdd.methods.clusters import ClusterSelection, cluster_ptdi
from tdd.methods.jecs import jecs, jmcs
from tdd.methods.ktd import ktd
from tdd.methods.ptdi import ptdi
from tdd.methods.td4eval import td4eval
from tdd.records import CombinedSelection, JointSelection, KnockoffSelection, Null, Selection

__all__ = ["METHODS", "PROCEDURES", "Procedure"]


@dataclasses.dataclass(frozen=True)
class Procedure:
    """One method as an audit sees it.

    Attributes:
      null: the null hypothesis of an item.
      columns: how many score columns decide; "several" are detectors or models.
      calibrates: whether it needs a calibration sample under every option.
      run: evidence and options -> selection.
      facts: what the report says of the result beyond the decision, as (what, value).
      warn: what the reader must know about this result.
      score: the score of texts that decides where none is named.
      long_texts: what becomes of texts longer than the context where nothing is said; see `tdd.score`.
    """

    null: Null
    columns: Literal["one", "several"]
    calibrates: bool
    run: Callable[[Evidence, Options], Selection]
    facts: Callable[[Evidence, Selection], list[tuple[str, str]]] = lambda evidence, selection: []
    warn: Callable[[Evidence, Selection], list[str]] = lambda evidence, selection: []
    score: str = "min_k_plus_plus"
    long_texts: str = "window"


def _ptdi(evidence: Evidence, options: Options) -> Selection:
    (calibration,), (scores,) = evidence.calibration, evidence.candidates
    how: dict[str, Any] = {"alpha": options.alpha, "proportion": options.proportion, "eta": options.eta}
    if evidence.clusters:
        own = evidence.calibration_clusters
        key = jax.random.key(options.seed)
        return cluster_ptdi(calibration, scores, own, evidence.clusters, unit=_any(options.unit), key=key, **how)
    return ptdi(calibration, scores, members=evidence.members if evidence.members.size else None, **how)


def _td4eval(evidence: Evidence, options: Options) -> Selection:
    random = options.combine in ("random", "split_weights")  # elsewhere a key would break ties at random
    return td4eval(
        evidence.calibration,
        evidence.candidates,
        alpha=options.alpha,
        combine=_any(options.combine),
        key=jax.random.key(options.seed) if random else None,
    )


def _ktd(evidence: Evidence, options: Options) -> Selection:
    how: dict[str, Any] = {}
    if options.rule == "conformal":
        how = {
            "calibration": evidence.calibration[0],
            "calibration_knockoffs": evidence.calibration_knockoffs,
            "proportion": options.proportion,
        }
    return ktd(evidence.candidates[0], evidence.knockoffs, alpha=options.alpha, rule=_any(options.rule), **how)


def _jmcs(evidence: Evidence, options: Options) -> Selection:
    return jmcs(evidence.calibration, evidence.candidates, alpha=options.alpha)


def _jecs(evidence: Evidence, options: Options) -> Selection:
    return jecs(evidence.calibration, evidence.candidates, alpha=options.alpha)


def _any(value: str) -> Any:
    """A name that the method itself checks against its choices."""
    return value


def _weights(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, CombinedSelection)
    weights, alone = np.asarray(selection.weights), np.asarray(selection.num_rejected_alone)
    parts = [
        f"{name} {weight:.3g} ({count})" for name, weight, count in zip(evidence.names, weights, alone, strict=True)
    ]
    return [("weight of each detector (what it would select alone)", ", ".join(parts))]


def _clusters(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    if not isinstance(selection, ClusterSelection):
        return []
    number, chosen = int(selection.num_clusters), int(np.asarray(selection.cluster_selected).sum())
    return [
        ("clusters", f"{number} of candidates, {int(selection.num_calibration)} of calibration items"),
        ("clusters with a selected item", str(chosen)),
    ]


def _knockoffs(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, KnockoffSelection)
    cut = float(selection.cut)
    threshold = f"{cut:.4g}" if np.isfinite(cut) else "none qualifies"
    meaning = _STATISTICS[selection.method.rpartition("/")[2]]
    return [
        ("knockoffs an item", str(evidence.knockoffs.shape[1])),
        ("statistic of an item", meaning),
        ("threshold of the statistic", threshold),
    ]


_W = "W = mean score of its knockoffs - its own; large = member"
_STATISTICS = {
    "ktd": _W,
    "conformal": f"{_W}; ranked among those of the calibration items",
    "multi": "how far its score is below its best knockoff's; negative where a knockoff scores lowest",
    "derandomized": "its e-value, averaged over the knockoffs",
}


def _envelope(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, JointSelection)
    envelope = selection.envelope
    if not bool(envelope.fitted):
        return [("envelope", "not fitted: too few p-values above every grid point")]
    return [("envelope", f"slope {float(envelope.slope):.3g} up to tau = {float(envelope.tau):.3g}")]


def _warn_weights(evidence: Evidence, selection: Selection) -> list[str]:
    assert isinstance(selection, CombinedSelection)
    if selection.method.endswith("/cauchy") and not np.asarray(selection.num_rejected_alone).any():
        return ["no detector rejects anything alone, so the detectors were weighted equally"]
    return []


def _warn_identical(evidence: Evidence, selection: Selection) -> list[str]:
    same = int((evidence.knockoffs == evidence.candidates[0][:, None]).any(axis=1).sum())
    alone = evidence.knockoffs.shape[1] == 1 and not selection.method.endswith("conformal")
    if not same or not (alone or selection.method.endswith("multi")):
        return []
    return [f"{same} candidates have the same score as one of their knockoffs; a tie is never selected"]


def _warn_envelope(evidence: Evidence, selection: Selection) -> list[str]:
    assert isinstance(selection, JointSelection)
    if not bool(selection.envelope.fitted):
        return ["the envelope could not be fitted, so this is the selection of JMCS"]
    return []


PROCEDURES: dict[str, Procedure] = {
    "ptdi": Procedure("nonmember", "one", True, _ptdi, _clusters),
    "ktd": Procedure("nonmember", "one", False, _ktd, _knockoffs, _warn_identical, "grad_norm", "truncate"),
    "td4eval": Procedure("member", "several", True, _td4eval, _weights, _warn_weights),
    "jmcs": Procedure("member", "several", True, _jmcs),
    "jecs": Procedure("member", "several", True, _jecs, _envelope, _warn_envelope),
}

METHODS: dict[str, Null] = {name: procedure.null for name, procedure in PROCEDURES.items()}
"""The null that each procedure tests."""
