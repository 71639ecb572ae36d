"""The whole road: texts and a checkpoint → decision, honesty checks, run folder."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from tdd.audit.assemble import RESERVED, assemble, score_checks, warnings_of
from tdd.audit.certificates import certify
from tdd.audit.cluster_sizes import cluster_sizes
from tdd.audit.decide import decide
from tdd.audit.evidence import Panels
from tdd.audit.honesty import blind_baseline, duplicates, overlap, sharing
from tdd.audit.knockoff_checks import copies, cut_texts, symmetry
from tdd.audit.options import audited
from tdd.audit.run_inputs import joined, read_inputs, scores_of_knockoffs, split, with_knockoffs
from tdd.audit.run_models import describe, labels_of, models_of, provenance_of, score_under
from tdd.audit.statement import groups_warning
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI
from tdd.runs.folder import Audit, fingerprint, open_run_folder
from tdd.runs.shards import as_shard
from tdd.scoring.devices import find_devices
from tdd.scoring.scores import parse_score
from tdd.validate import runs
from tdd.validate.errors import InputError
from tdd.validate.scoring import check_reference

__all__ = ["RESERVED", "run_audit"]

_LAYOUT = ("dtype", "max_length", "long_texts")
"""Scoring options that belong to a run's identity; how fast it is computed, and where, does not."""

_logger = logging.getLogger("tdd.audit")


@overload
def run_audit(
    model: Any,
    candidates: Any,
    calibration: Any = ...,
    *,
    alpha: float,
    score: str | Sequence[str] | None = ...,
    also: Sequence[str] = ...,
    method: str | Procedure = ...,
    knockoffs: Sequence[Any] = ...,
    calibration_knockoffs: Sequence[Any] = ...,
    members: Any = ...,
    text_field: str | None = ...,
    knockoff_fields: str | Sequence[str] = ...,
    id_field: str | None = ...,
    label_field: str | None = ...,
    group_field: str | None = ...,
    format: str | None = ...,
    delta: float = ...,
    null: str | None = ...,
    out: str | os.PathLike[str] | None = ...,
    seed: int = ...,
    shard: None = None,
    **scoring: Any,
) -> Audit: ...
@overload
def run_audit(
    model: Any, candidates: Any, calibration: Any = ..., *, alpha: float, shard: tuple[int, int] | str, **options: Any
) -> None: ...
def run_audit(
    model: Any,
    candidates: Any,
    calibration: Any = None,
    *,
    alpha: float,
    score: str | Sequence[str] | None = None,
    also: Sequence[str] = (),
    method: str | Procedure = "ptdi",
    knockoffs: Sequence[Any] = (),
    calibration_knockoffs: Sequence[Any] = (),
    members: Any = None,
    text_field: str | None = None,
    knockoff_fields: str | Sequence[str] = (),
    id_field: str | None = None,
    label_field: str | None = None,
    group_field: str | None = None,
    format: str | None = None,
    delta: float = 0.05,
    null: str | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    shard: tuple[int, int] | str | None = None,
    **scoring: Any,
) -> Audit | None:
    """Audit a checkpoint: which candidates were in its training data, or which are clean, with a controlled error.

    All texts are scored together, in one layout, so that nothing but the texts can tell them apart; then the blind
    baseline, the search for duplicates and the resolution check run, whatever the outcome.

    Args:
      model: a checkpoint folder, a hub id, or (lm, params, tokenizer); for "jmcs" and "jecs" a list of them.
      candidates: texts to decide on; see `tdd.load_texts`. With `knockoff_fields`, a table that has the paraphrases of
        each text as columns.
      calibration: texts of the same kind as the candidates for which the null holds: known NOT to be in the training
        data ("ptdi"), known to be in it ("td4eval"), known to be in that of every model ("jmcs", "jecs"). "ktd" needs
        none; known non-members together with `calibration_knockoffs` allow its symmetry test and rule="conformal".
      alpha: level in (0, 1).
      score: the score that decides, chosen beforehand; for "td4eval" the scores of the K detectors. Unless given
        "grad_norm" for "ktd" and "min_k_plus_plus" for the others.
      also: further scores to compute and store; they decide nothing.
      method: "ptdi", "best_score", "conditional" or "ktd" (find members); "td4eval", "jmcs" or "jecs" (find clean
        items); with options as in "ptdi:proportion=none,eta=0.1", or the value, `tdd.PTDI("none", eta=0.1)`.
      knockoffs: k collections of texts, each with one paraphrase of every candidate, in the same order ("ktd").
      calibration_knockoffs: k collections, likewise of the calibration texts.
      members: texts known to be in the training data, for "ptdi:proportion=moment".
      text_field: field with the text, where a file or table is read.
      knockoff_fields: fields of `candidates` (and of `calibration`) with the paraphrases, instead of `knockoffs`.
      id_field: field with the identifiers; see `tdd.load_texts`.
      label_field: field with the known truth of candidates and calibration texts, 1 member and 0 not.
      group_field: field with the cluster of each text, as the book of a passage; "ptdi" then decides on clusters, or
        on what its option `unit` says.
      format: format of the files, where their extension does not tell.
      delta: the simultaneous bounds of the report hold with probability at least 1 - delta.
      null: the direction that the caller believes to test; checked where given.
      out: run folder; an interrupted run continues there.
      seed: of the blind baseline, of random choices in the decision and of the simulation behind the bounds.
      shard: (i, n) or "i/n", from 0: compute the part i of n of the scores alone, into `out` (or `store`), decide
        nothing, and return None; see `tdd.score`. The same call without a shard decides.
      **scoring: passed to `tdd.score` (reference, dtype, token_budget, long_texts, device, progress, ...). For "ktd"
        long_texts="truncate" unless given: originals and knockoffs are cut alike where the context ends.

    Returns:
      `Audit`; None with a shard.

    Raises:
      InputError: anything that cannot be used; nothing is written then but the folder's `inputs.json`.
    """
    procedure = audited(method, alpha=alpha, delta=delta, seed=seed, null=null, others=scoring)
    name, needs = procedure.name, procedure.needs
    fields = (knockoff_fields,) if isinstance(knockoff_fields, str) else tuple(knockoff_fields)
    owner = name if "knockoffs" in needs else "ktd"
    runs.check_used(
        name,
        knockoffs=(knockoffs or None, owner),
        calibration_knockoffs=(calibration_knockoffs or None, owner),
        knockoff_fields=(fields or None, owner),
    )
    if "weights" in needs:
        raise InputError(f"method {name!r} needs a density ratio of each item: score the texts and use tdd select")
    runs.check_knockoffs(name, "knockoffs" in needs, knockoffs or fields)
    grouped = group_field is not None and isinstance(procedure, PTDI)
    runs.check_unit(procedure, grouped)
    models = models_of(model, several=procedure.columns == "models")
    place = next((one for one in (scoring.get("store"), out) if one is not None), None)
    own = as_shard(shard, place, "out")
    where = find_devices(*map(scoring.get, ("device", "devices")), shard_params=scoring.get("shard_params", False))
    several = procedure.columns == "detectors"
    deciding = runs.detectors(procedure.score if score is None else score, several=several)
    names = list(dict.fromkeys([*deciding, *also]))
    passes = [name for request in map(parse_score, names) for name in request.score.passes]
    check_reference(passes, scoring.get("reference"))
    if (members is None) == ("members" in needs):
        raise InputError('members are needed for proportion="moment", and only for it')
    _check_calibration(name, calibration, "calibration" in needs)
    inputs = read_inputs(
        candidates,
        calibration,
        members,
        knockoffs,
        calibration_knockoffs,
        knockoff_fields=fields,
        label_field=label_field,
        group_field=group_field,
        conformal="calibration_knockoffs" in needs,
        text_field=text_field,
        id_field=id_field,
        format=format,
    )
    roles = inputs.roles
    known = roles.get("calibration")
    if known is not None:
        runs.check_known_labels(known.labels, known.ids, procedure.null)
    if scoring.get("long_texts") is None:
        scoring["long_texts"] = procedure.long_texts
    run_options = {
        "method": name,
        **procedure.record(),
        "alpha": alpha,
        "score": list(deciding),
        "delta": delta,
        "scores": names,
        **{key: str(value) for key, value in scoring.items() if key in _LAYOUT and value is not None},
        **({"unit": None} if isinstance(procedure, PTDI) and not grouped else {}),
    }
    described = {
        role: {"source": texts.source, "sha256": texts.sha256, "texts": len(texts)} for role, texts in roles.items()
    }
    provenance = [provenance_of(one) for one in models]
    if scoring.get("reference") is not None:
        provenance[0]["reference"] = provenance_of(scoring["reference"])
    folder = None if out is None else pathlib.Path(out)
    if folder is not None:
        hashes = [texts.sha256 for texts in roles.values()]
        if grouped:
            hashes.append(fingerprint([inputs.groups, inputs.calibration_groups]))
        identity = fingerprint({"model": provenance, "inputs": hashes, "seed": seed, **run_options})
        what = ", ".join(one["name"] for one in provenance)
        open_run_folder(folder, identity, f"audit of {what}")
        if scoring.get("store") is None:
            scoring["store"] = folder / "scoring"
    scoring.setdefault("job", "" if folder is None else folder.name)
    distinct, index = joined(roles)
    if own is not None:
        score_under(models, provenance, distinct, names, scoring, own)
        return None

    checks: dict[str, Any] = {}
    if known is not None:
        _logger.info("searching for duplicates between calibration and candidates, and running the blind baseline")
        checks["duplicates"] = duplicates(known, roles["candidate"])
        checks["overlap"] = overlap(known, roles["candidate"])
        within = (inputs.calibration_groups, inputs.groups) if grouped else None
        checks["sharing"] = sharing(known, roles["candidate"], seed=seed, groups=within)
        checks["blind_baseline"] = blind_baseline(known, roles["candidate"], seed=seed, groups=within)
    if fields or knockoffs:
        checks |= copies(inputs)
    values, details = score_under(models, provenance, distinct, names, scoring)
    columns = split(values, index, roles)
    deciding = tuple(f"{label}{name}" for label in labels_of(provenance) for name in deciding)
    panels = Panels(
        deciding,
        _panel(columns["candidate"], deciding),
        _panel(columns["calibration"], deciding) if known is not None else np.zeros((len(deciding), 0)),
        columns["member"][deciding[0]] if members is not None else np.zeros(0),
        scores_of_knockoffs(columns, "candidate", deciding[0], len(roles["candidate"])),
        scores_of_knockoffs(columns, "calibration", deciding[0], 0 if known is None else len(known)),
        inputs.groups if grouped else (),
        inputs.calibration_groups if grouped else (),
    )
    decision = decide(panels, procedure, alpha, seed=seed, labels=roles["candidate"].labels)
    checks = {
        **score_checks(decision, panels, known),
        **symmetry(panels, getattr(procedure, "rule", "")),
        **cluster_sizes(panels, decision.unit, seed),
        **cut_texts(details, len(distinct)),
        **checks,
    }
    warnings = warnings_of(checks, decision)
    if inputs.groups and not grouped:
        every = [*inputs.groups, *inputs.calibration_groups]
        warnings.append(groups_warning(name, len(every), len(set(every))))
    audit = assemble(
        "audit",
        decision,
        certify(panels, procedure, decision, delta=delta, seed=seed),
        run_options,
        described,
        describe(provenance, details),
        checks,
        warnings,
        texts=True,
        groups_ignored=bool(inputs.groups) and not grouped,
        seed=seed,
        ids=roles["candidate"].ids,
        scores=with_knockoffs(columns, "candidate"),
        labels=np.asarray(roles["candidate"].labels),
        calibration={
            "id": np.asarray(known.ids if known is not None else (), dtype=object),
            **(with_knockoffs(columns, "calibration") if known is not None else {}),
        },
    )
    if folder is not None and where.leads:
        audit.save(folder)
    return audit


def _panel(columns: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    return np.stack([columns[name] for name in names])


def _check_calibration(method: str, calibration: Any, needed: bool) -> None:
    """Calibration texts where the method needs them."""
    if needed and calibration is None:
        raise InputError(f"calibration is missing: {method} compares candidates with texts for which the null holds")
