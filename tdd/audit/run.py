"""The whole road: texts and a checkpoint → decision, honesty checks, run folder."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.assemble import RESERVED, assemble, score_checks, warnings_of
from tdd.audit.certificates import certify
from tdd.audit.decide import decide
from tdd.audit.evidence import Evidence, Options
from tdd.audit.honesty import blind_baseline, duplicates
from tdd.audit.knockoff_checks import symmetry
from tdd.audit.procedures import METHODS, PROCEDURES
from tdd.audit.run_folder import Audit, fingerprint, open_run_folder
from tdd.audit.score import score as score_texts
from tdd.audit.score_store import fingerprint as model_fingerprint
from tdd.methods.ptdi import PROPORTIONS
from tdd.records import LanguageModel, Texts
from tdd.scoring.scores import parse_score
from tdd.texts import hash_texts, load_texts
from tdd.validate import arrays, runs
from tdd.validate.errors import InputError
from tdd.validate.scoring import check_reference

__all__ = ["RESERVED", "run_audit"]

_LAYOUT = ("dtype", "max_length", "long_texts")
"""Scoring options that belong to a run's identity; how fast it is computed, and where, does not."""

_logger = logging.getLogger("tdd.audit")


def run_audit(
    model: Any,
    candidates: Any,
    calibration: Any = None,
    *,
    alpha: float,
    score: str | Sequence[str] = "min_k_plus_plus",
    also: Sequence[str] = (),
    method: str = "ptdi",
    proportion: str | None = None,
    eta: float | None = None,
    combine: str | None = None,
    rule: str | None = None,
    knockoffs: Sequence[Any] = (),
    calibration_knockoffs: Sequence[Any] = (),
    members: Any = None,
    delta: float = 0.05,
    null: str | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **scoring: Any,
) -> Audit:
    """Audit a checkpoint: which candidates were in its training data, or which are clean, with a controlled error.

    All texts are scored together, in one layout, so that nothing but the texts can tell them apart; then the blind
    baseline, the search for duplicates and the resolution check run, whatever the outcome.

    Args:
      model: a checkpoint folder, a hub id, or (lm, params, tokenizer); for "jmcs" and "jecs" a list of them.
      candidates: texts to decide on; see `tdd.load_texts`.
      calibration: texts of the same kind as the candidates for which the null holds: known NOT to be in the training
        data ("ptdi"), known to be in it ("td4eval"), known to be in that of every model ("jmcs", "jecs"). "ktd" needs
        none; known non-members together with `calibration_knockoffs` allow its symmetry test and rule="conformal".
      alpha: level in (0, 1).
      score: the score that decides, chosen beforehand; for "td4eval" the scores of the K detectors.
      also: further scores to compute and store; they decide nothing.
      method: "ptdi" or "ktd" (find members); "td4eval", "jmcs" or "jecs" (find clean items).
      proportion: "storey" unless given; see `tdd.ptdi`.
      eta: 0.05 unless given; see `tdd.ptdi`.
      combine: see `tdd.td4eval`; "pooled_rank" unless given.
      rule: see `tdd.ktd`; "multi" unless given.
      knockoffs: k collections of texts, each with one paraphrase of every candidate, in the same order ("ktd").
      calibration_knockoffs: k collections, likewise of the calibration texts.
      members: texts known to be in the training data, for proportion="moment".
      delta: the simultaneous bounds of the report hold with probability at least 1 - delta.
      null: the direction that the caller believes to test; checked where given.
      out: run folder; an interrupted run continues there.
      seed: of the blind baseline, of random choices in the decision and of the simulation behind the bounds.
      **scoring: passed to `tdd.score` (reference, dtype, token_budget, long_texts, device, progress, ...).

    Returns:
      `Audit`.

    Raises:
      InputError: anything that cannot be used; nothing is written then but the folder's `inputs.json`.
    """
    runs.check_method(method, METHODS)
    procedure = PROCEDURES[method]
    runs.check_direction(null, procedure.null, method)
    given = {"knockoffs": (knockoffs or None, "ktd"), "calibration_knockoffs": (calibration_knockoffs or None, "ktd")}
    owned = {"combine": (combine, "td4eval"), "rule": (rule, "ktd")}
    runs.check_used(method, **owned, **given, proportion=(proportion, "ptdi,ktd"), eta=(eta, "ptdi"))
    runs.check_proportion_used(method, rule, proportion)
    arrays.check_level(alpha)
    arrays.check_level(delta, "delta")
    options = Options(
        alpha,
        method,
        proportion or "storey",
        0.05 if eta is None else eta,
        combine or "pooled_rank",
        rule or "multi",
        "item",
        float(delta),
        int(seed),
    )
    arrays.check_choice(options.proportion, PROPORTIONS, "proportion")
    arrays.check_level(options.eta, "eta")
    runs.check_knockoffs(method, knockoffs)
    models = _models(model, several=method in ("jmcs", "jecs"))
    deciding = runs.detectors(score, several=method == "td4eval")
    names = list(dict.fromkeys([*deciding, *also]))
    passes = [name for request in map(parse_score, names) for name in request.score.passes]
    check_reference(passes, scoring.get("reference"))
    if (members is None) == (proportion == "moment"):
        raise InputError('members are needed for proportion="moment", and only for it')
    runs.check_calibration(method, calibration, procedure.calibrates or rule == "conformal")
    roles = _roles(candidates, calibration, members, knockoffs, calibration_knockoffs)
    known = roles.get("calibration")
    if known is not None:
        runs.check_known_labels(known.labels, known.ids, METHODS[method])
    run_options = {
        "method": method,
        "proportion": options.proportion if method == "ptdi" or rule == "conformal" else None,
        "eta": options.eta if method == "ptdi" else None,
        "alpha": alpha,
        "score": list(deciding),
        "combine": options.combine if method == "td4eval" else None,
        "rule": options.rule if method == "ktd" else None,
        "delta": delta,
        "scores": names,
        **{key: str(value) for key, value in scoring.items() if key in _LAYOUT and value is not None},
    }
    inputs = {
        role: {"source": texts.source, "sha256": texts.sha256, "texts": len(texts)} for role, texts in roles.items()
    }
    provenance = [_model_provenance(one) for one in models]
    if scoring.get("reference") is not None:
        provenance[0]["reference"] = _model_provenance(scoring["reference"])
    folder = None if out is None else pathlib.Path(out)
    if folder is not None:
        hashes = [texts.sha256 for texts in roles.values()]
        identity = fingerprint({"model": provenance, "inputs": hashes, "seed": seed, **run_options})
        what = ", ".join(one["name"] for one in provenance)
        open_run_folder(folder, identity, f"audit of {what}")
        scoring = {"resume_dir": folder / "scoring", **scoring}

    checks: dict[str, Any] = {}
    if known is not None:
        _logger.info("searching for duplicates between calibration and candidates")
        checks["duplicates"] = duplicates(known, roles["candidate"])
        _logger.info("running the blind baseline")
        checks["blind_baseline"] = blind_baseline(known, roles["candidate"], seed=seed)
    values, details = _score(models, provenance, _joined(roles), names, scoring)
    columns = _split(values, roles)
    deciding = tuple(f"{label}{name}" for label in _labels(provenance) for name in deciding)
    evidence = Evidence(
        deciding,
        _panel(columns["candidate"], deciding),
        _panel(columns["calibration"], deciding) if known is not None else np.zeros((len(deciding), 0)),
        columns["member"][deciding[0]] if members is not None else np.zeros(0),
        _knockoff_scores(columns, "knockoff", deciding[0], len(roles["candidate"])),
        _knockoff_scores(columns, "calibration knockoff", deciding[0], 0 if known is None else len(known)),
    )
    decision = decide(evidence, options, labels=roles["candidate"].labels)
    checks = {**score_checks(decision, evidence, known), **symmetry(evidence, options.rule), **checks}
    calibration_columns = columns["calibration"] if known is not None else {}
    audit = assemble(
        "audit",
        decision,
        certify(evidence, options, decision),
        run_options,
        inputs,
        _described(provenance, details),
        checks,
        warnings_of(checks, decision),
        texts=True,
        groups_ignored=False,
        seed=seed,
        ids=roles["candidate"].ids,
        scores=_with_knockoffs(columns, "knockoff"),
        labels=np.asarray(roles["candidate"].labels),
        calibration={
            "id": np.asarray(known.ids if known is not None else (), dtype=object),
            **(_with_knockoffs(columns, "calibration knockoff") if known is not None else calibration_columns),
        },
    )
    if folder is not None:
        audit.save(folder)
    return audit


def _models(model: Any, *, several: bool) -> list[Any]:
    """One model, or the list of models that a joint procedure takes."""
    if not isinstance(model, list):
        return [model]
    if not model:
        raise InputError("model is an empty list; give at least one checkpoint")
    if len(model) > 1 and not several:
        raise InputError(f'{len(model)} models were given; only the methods "jmcs" and "jecs" decide on several')
    return model


def _roles(
    candidates: Any, calibration: Any, members: Any, knockoffs: Sequence[Any], calibration_knockoffs: Sequence[Any]
) -> dict[str, Texts]:
    """All texts by role; knockoffs belong to the items of their role one by one."""
    roles: dict[str, Texts] = {"candidate": load_texts(candidates)}
    if calibration is not None:
        roles["calibration"] = load_texts(calibration)
    if members is not None:
        roles["member"] = load_texts(members)
    for role, owner, collections in (
        ("knockoff", "candidate", knockoffs),
        ("calibration knockoff", "calibration", calibration_knockoffs),
    ):
        if collections and owner not in roles:
            raise InputError("calibration_knockoffs were given without calibration, the texts that they paraphrase")
        for number, collection in enumerate(collections, start=1):
            texts = load_texts(collection)
            runs.check_paraphrases(texts, roles[owner], f"{role} {number}")
            roles[f"{role} {number}"] = texts
    if knockoffs and calibration_knockoffs and len(knockoffs) != len(calibration_knockoffs):
        raise InputError(
            f"candidates have {len(knockoffs)} knockoffs each and calibration items {len(calibration_knockoffs)}; both "
            "need the same number, made the same way"
        )
    return roles


def _score(
    models: Sequence[Any], provenance: Sequence[Mapping[str, Any]], texts: Texts, names: Sequence[str], scoring: Any
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Every score under every model, [texts] each, and the provenance of each table."""
    values: dict[str, np.ndarray] = {}
    details = []
    for number, (label, model) in enumerate(zip(_labels(provenance), models, strict=True)):
        own = dict(scoring)
        if len(models) > 1 and own.get("resume_dir") is not None:
            own["resume_dir"] = pathlib.Path(own["resume_dir"]) / str(number)
        table = score_texts(model, texts, names, **own)
        values |= {f"{label}{name}": column for name, column in table.values.items()}
        details.append(dict(table.provenance))
    return values, details


def _labels(provenance: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a model's columns begin with: nothing for one model, else its folder's name, numbered where not unique."""
    if len(provenance) == 1:
        return [""]
    short = [pathlib.PurePath(str(one["name"])).name or str(one["name"]) for one in provenance]
    return [f"{name}{'' if short.count(name) == 1 else f'#{number + 1}'}:" for number, name in enumerate(short)]


def _described(provenance: Sequence[dict[str, Any]], details: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The audited model for run.json; of several, the list of them under one name."""
    full = [{**one, "scoring": detail} for one, detail in zip(provenance, details, strict=True)]
    if len(full) == 1:
        return full[0]
    return {
        "name": ", ".join(one["name"] for one in full),
        "revision": None,
        "sha256": fingerprint([one["sha256"] for one in full]),
        "models": full,
    }


def _panel(columns: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    return np.stack([columns[name] for name in names])


def _knockoff_scores(columns: Mapping[str, Mapping[str, np.ndarray]], role: str, name: str, count: int) -> np.ndarray:
    """[items, k] scores of the knockoffs of one role."""
    parts = [scores[name] for key, scores in columns.items() if key.rpartition(" ")[0] == role]
    return np.stack(parts, axis=1) if parts else np.zeros((count, 0))


def _with_knockoffs(columns: Mapping[str, Mapping[str, np.ndarray]], role: str) -> dict[str, np.ndarray]:
    """The score columns of the items of a role, their knockoffs' beside them."""
    own = "candidate" if role == "knockoff" else "calibration"
    parts = [(key, scores) for key, scores in columns.items() if key.rpartition(" ")[0] == role]
    return dict(columns[own]) | {
        f"{name} (knockoff {key.rpartition(' ')[2]})": column
        for key, scores in parts
        for name, column in scores.items()
    }


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
