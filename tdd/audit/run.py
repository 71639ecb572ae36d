"""The whole road: texts and a checkpoint, or a table of scores, → decision, honesty checks, run folder."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.decide import METHODS, Decision, decide
from tdd.audit.honesty import blind_baseline, duplicates, effective_calibration_size, resolution
from tdd.audit.run_folder import SCHEMA, Audit, fingerprint, open_run_folder, plain, versions
from tdd.audit.score import score as score_texts
from tdd.audit.score_store import fingerprint as model_fingerprint
from tdd.audit.statement import open_points, outcome
from tdd.methods.ptdi import PROPORTIONS
from tdd.records import LanguageModel, Texts
from tdd.scoring.scores import parse_score
from tdd.tables import ScoreTable, load_score_table
from tdd.texts import hash_texts, load_texts
from tdd.validate import arrays, runs
from tdd.validate.errors import InputError
from tdd.validate.scoring import check_reference

__all__ = ["RESERVED", "run_audit", "select"]

RESERVED = ("id", "p_value", "adjusted", "selected", "label")
"""Columns of items.csv that no score may be called."""

_LAYOUT = ("dtype", "max_length", "long_texts")
"""Scoring options that belong to a run's identity; how fast it is computed, and where, does not."""

_logger = logging.getLogger("tdd.audit")
_findings = logging.getLogger("tdd.findings")
"""Warnings about the data; a program that prints the report turns this one off."""


def select(
    table: Any,
    *,
    alpha: float,
    score: str | None = None,
    method: str = "ptdi",
    proportion: str = "storey",
    eta: float = 0.05,
    null: str | None = None,
    out: str | os.PathLike[str] | None = None,
    **columns: Any,
) -> Audit:
    """Select members from a table of scores: the black-box road, no model needed.

    Args:
      table: a `ScoreTable`, or what `tdd.tables.load_score_table` reads (a path, a data frame, ...).
      alpha: level in (0, 1).
      score: the column that decides; may be left out where there is one. It must be chosen before its results are seen.
      method: "ptdi".
      proportion: how the proportion of members is estimated; see `tdd.ptdi`.
      eta: see `tdd.ptdi`.
      null: the direction that the caller believes to test; checked where given.
      out: run folder to write.
      **columns: passed to `load_score_table` (role_field, calibration, label_field, higher_is_member, ...).

    Returns:
      `Audit`.

    Raises:
      InputError: unreadable or unusable table, options, or output folder.
    """
    runs.check_method(method, METHODS)
    runs.check_direction(null, METHODS[method], method)
    arrays.check_level(alpha)
    if not isinstance(table, ScoreTable):
        columns.setdefault("scores", score)
        table = load_score_table(table, **columns)
    name = _deciding_score(score, tuple(table.scores))
    runs.check_column_names(table.scores, RESERVED)
    options = {"method": method, "proportion": proportion, "eta": eta, "alpha": alpha, "score": name}
    inputs = {"table": {"source": table.source, "sha256": table.sha256, "rows": len(table)}}
    calibration, candidates = table.rows("calibration"), table.rows("candidate")
    runs.check_known_labels(table.labels[calibration], [table.ids[i] for i in calibration], METHODS[method])
    members = table.values(name, "member") if proportion == "moment" else None
    if members is not None and not members.size:
        raise InputError('proportion="moment" needs known members; give a table of members or a member role')
    decision = decide(
        table.values(name, "calibration"),
        table.values(name, "candidate"),
        alpha=alpha,
        score=name,
        method=method,
        proportion=proportion,
        eta=eta,
        members=members,
        labels=table.labels[candidates],
    )
    checks = _score_checks(decision, table.values(name, "calibration"), None)
    warnings = _warnings(checks, decision)
    if table.groups:
        number = len({table.groups[i] for i in calibration} | {table.groups[i] for i in candidates})
        warnings.append(
            f"the {len(table)} items come from {number} groups; items of one group are not exchangeable one by one, so "
            "the error can exceed the level"
        )
    audit = _assemble(
        "select",
        decision,
        options,
        inputs,
        None,
        checks,
        warnings,
        texts=False,
        grouped=bool(table.groups),
        seed=None,
        ids=[table.ids[i] for i in candidates],
        scores={key: column[candidates] for key, column in table.scores.items()},
        labels=table.labels[candidates],
        calibration={
            "id": np.asarray([table.ids[i] for i in calibration], dtype=object),
            **{key: column[calibration] for key, column in table.scores.items()},
        },
    )
    if out is not None:
        identity = fingerprint({"inputs": table.sha256, **options})
        open_run_folder(pathlib.Path(out), identity, f"selection from {table.source}")
        audit.save(pathlib.Path(out))
    return audit


def run_audit(
    model: Any,
    candidates: Any,
    calibration: Any,
    *,
    alpha: float,
    score: str = "min_k_plus_plus",
    also: Sequence[str] = (),
    method: str = "ptdi",
    proportion: str = "storey",
    eta: float = 0.05,
    members: Any = None,
    null: str | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **scoring: Any,
) -> Audit:
    """Audit a checkpoint: which candidates were in its training data, at a false discovery rate of at most alpha.

    Candidates and calibration texts are scored together, in one layout, so that nothing but the texts can tell them
    apart; then the blind baseline, the search for duplicates and the resolution check run, whatever the outcome.

    Args:
      model: a checkpoint folder, a hub id, or (lm, params, tokenizer).
      candidates: texts to decide on; see `tdd.texts.load_texts`.
      calibration: texts known NOT to be in the training data, of the same kind as the candidates.
      alpha: level in (0, 1).
      score: the score that decides, chosen beforehand.
      also: further scores to compute and store; they decide nothing.
      method: "ptdi".
      proportion: see `tdd.ptdi`.
      eta: see `tdd.ptdi`.
      members: texts known to be in the training data, for proportion="moment".
      null: the direction that the caller believes to test; checked where given.
      out: run folder; an interrupted run continues there.
      seed: of the blind baseline's folds and shuffles.
      **scoring: passed to `tdd.score` (reference, dtype, token_budget, long_texts, device, progress, ...).

    Returns:
      `Audit`.

    Raises:
      InputError: anything that cannot be used; nothing is written then but the folder's `inputs.json`.
    """
    runs.check_method(method, METHODS)
    runs.check_direction(null, METHODS[method], method)
    arrays.check_level(alpha)
    arrays.check_choice(proportion, PROPORTIONS, "proportion")
    arrays.check_level(eta, "eta")
    names = list(dict.fromkeys([score, *also]))
    passes = [name for request in map(parse_score, names) for name in request.score.passes]
    check_reference(passes, scoring.get("reference"))
    if (members is None) == (proportion == "moment"):
        raise InputError('members are needed for proportion="moment", and only for it')
    roles: dict[str, Texts] = {"candidate": load_texts(candidates), "calibration": load_texts(calibration)}
    if members is not None:
        roles["member"] = load_texts(members)
    runs.check_known_labels(roles["calibration"].labels, roles["calibration"].ids, METHODS[method])
    options = {
        "method": method,
        "proportion": proportion,
        "eta": eta,
        "alpha": alpha,
        "score": score,
        "scores": names,
        **{key: str(value) for key, value in scoring.items() if key in _LAYOUT and value is not None},
    }
    inputs = {
        role: {"source": texts.source, "sha256": texts.sha256, "texts": len(texts)} for role, texts in roles.items()
    }
    provenance = _model_provenance(model)
    if scoring.get("reference") is not None:
        provenance["reference"] = _model_provenance(scoring["reference"])
    folder = None if out is None else pathlib.Path(out)
    if folder is not None:
        identity = fingerprint(
            {"model": provenance, "inputs": [texts.sha256 for texts in roles.values()], "seed": seed, **options}
        )
        open_run_folder(folder, identity, f"audit of {provenance['name']}")
        scoring = {"resume_dir": folder / "scoring", **scoring}

    _logger.info("searching for duplicates between calibration and candidates")
    copies = duplicates(roles["calibration"], roles["candidate"])
    _logger.info("running the blind baseline")
    blind = blind_baseline(roles["calibration"], roles["candidate"], seed=seed)
    table = score_texts(model, _joined(roles), names, **scoring)
    columns = _split(table.values, roles)
    decision = decide(
        columns["calibration"][score],
        columns["candidate"][score],
        alpha=alpha,
        score=score,
        method=method,
        proportion=proportion,
        eta=eta,
        members=columns["member"][score] if members is not None else None,
        labels=roles["candidate"].labels,
    )
    checks = {
        **_score_checks(decision, columns["calibration"][score], roles["calibration"]),
        "duplicates": copies,
        "blind_baseline": blind,
    }
    audit = _assemble(
        "audit",
        decision,
        options,
        inputs,
        {**provenance, "scoring": dict(table.provenance)},
        checks,
        _warnings(checks, decision),
        texts=True,
        grouped=False,
        seed=seed,
        ids=roles["candidate"].ids,
        scores=columns["candidate"],
        labels=np.asarray(roles["candidate"].labels),
        calibration={"id": np.asarray(roles["calibration"].ids, dtype=object), **columns["calibration"]},
    )
    if folder is not None:
        audit.save(folder)
    return audit


def _deciding_score(score: str | None, available: Sequence[str]) -> str:
    if score is None:
        if len(available) == 1:
            return available[0]
        raise InputError(
            f"score is missing and the table has {len(available)} score columns: {', '.join(available)}; choose the "
            "one that decides before looking at results"
        )
    if score not in available:
        raise InputError(f"score {score!r} is not a score column; there are {', '.join(available)}")
    return score


def _score_checks(decision: Decision, calibration: np.ndarray, texts: Texts | None) -> dict[str, Any]:
    return {
        "resolution": resolution(
            decision.num_calibration,
            decision.num_tests,
            decision.alpha,
            max(0.0, 1 - decision.proportion),
            min_selections=decision.min_selections,
        ),
        "effective_calibration": effective_calibration_size(calibration, texts),
    }


def _warnings(checks: Mapping[str, Any], decision: Decision) -> list[str]:
    warnings = [check.warning for check in checks.values() if check.warning]
    for count, role in (
        (decision.num_missing, "candidates"),
        (decision.num_missing_calibration, "calibration items"),
    ):
        if count:
            warnings.append(f"{count} {role} have no score ({decision.score} is NaN) and were left out")
    if decision.edge_ties:
        warnings.append(
            f"{decision.edge_ties} calibration scores tie at the edge of the region of presumed non-members: the bound "
            f"of {decision.method} is not proven with such ties and can be exceeded; proportion=storey needs no such "
            "condition"
        )
    if decision.guarantee.kind != "finite-sample":
        warnings.append(
            f"the guarantee of {decision.method} is {decision.guarantee.kind}: not proven for finite samples"
        )
    return warnings


def _model_provenance(model: Any) -> dict[str, Any]:
    """Name, pinned revision and content hash of a checkpoint; the spec of a model in memory."""
    if isinstance(model, (str, os.PathLike)):
        from tdd.models import source

        place = source.resolve(model)
        return {"name": str(model), "revision": place.revision, "sha256": source.fingerprint(place.folder)}
    if not (isinstance(model, tuple) and len(model) == 3 and isinstance(model[0], LanguageModel)):
        raise InputError(f"model must be a path, a hub id or (lm, params, tokenizer), got {type(model).__name__}")
    return {"name": "model in memory", "revision": None, "sha256": model_fingerprint(model[0].spec, model[1])}


def _joined(roles: Mapping[str, Texts]) -> Texts:
    """All texts in one sequence, so that one layout serves every role."""
    ids = tuple(f"{role}/{name}" for role, texts in roles.items() for name in texts.ids)
    strings = tuple(text for texts in roles.values() for text in texts.texts)
    source = " + ".join(texts.source for texts in roles.values())
    return Texts(ids=ids, texts=strings, source=source, sha256=hash_texts(ids, strings))


def _split(values: Mapping[str, np.ndarray], roles: Mapping[str, Texts]) -> dict[str, dict[str, np.ndarray]]:
    ends = np.cumsum([len(texts) for texts in roles.values()])[:-1]
    parts = {name: np.split(column, ends) for name, column in values.items()}
    return {role: {name: part[i] for name, part in parts.items()} for i, role in enumerate(roles)}


def _assemble(
    kind: str,
    decision: Decision,
    options: Mapping[str, Any],
    inputs: Mapping[str, Any],
    model: Mapping[str, Any] | None,
    checks: Mapping[str, Any],
    warnings: Sequence[str],
    *,
    texts: bool,
    grouped: bool,
    seed: int | None,
    ids: Sequence[str],
    scores: Mapping[str, np.ndarray],
    labels: np.ndarray,
    calibration: Mapping[str, np.ndarray],
) -> Audit:
    for warning in warnings:
        _findings.warning("%s", warning)
    summary = {
        field.name: getattr(decision, field.name)
        for field in dataclasses.fields(decision)
        if field.name not in ("selected", "p_values", "adjusted")
    }
    items: dict[str, np.ndarray] = {"id": np.asarray(ids, dtype=object), **scores}
    items |= {"p_value": decision.p_values, "adjusted": decision.adjusted, "selected": decision.selected}
    if labels.size and (labels >= 0).any():
        items["label"] = labels
    run = {
        "schema": SCHEMA,
        "kind": kind,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "seed": seed,
        "options": dict(options),
        "inputs": dict(inputs),
        "model": model,
        "outcome": outcome(decision),
        "decision": summary,
        "checks": dict(checks),
        "warnings": list(warnings),
        "open_points": list(open_points(decision, texts=texts, grouped=grouped)),
    }
    return Audit(plain(run), items, calibration)
