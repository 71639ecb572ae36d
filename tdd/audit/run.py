"""The whole audit: items and a checkpoint → scores, decision, diagnostics, run folder."""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from tdd.audit.assemble import Shown, assemble
from tdd.audit.checks import cut_texts, knockoff_texts
from tdd.audit.decide import Choices, choose, evidence_of
from tdd.audit.inputs import Inputs, Reading, Tables, knockoff_column, read_inputs
from tdd.audit.items import Items
from tdd.audit.kinds import items_of
from tdd.audit.models import column_prefixes, describe, list_of_models
from tdd.models.source import at_revision
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI
from tdd.records import Evidence, Texts
from tdd.runs.folder import Audit, fingerprint, open_run_folder
from tdd.runs.shards import as_shard
from tdd.scoring.how import Run, RunOptions, as_run
from tdd.scoring.score import Scoring
from tdd.scoring.scores.score import Score, as_scores, given_by_name
from tdd.validate import InputError
from tdd.validate.settings import on_own_devices

if TYPE_CHECKING:
    from tdd.audit.flagged import Restricted

_LAYOUT = ("dtype", "max_length", "long_texts")
"""Scoring options that belong to a run's identity; how fast it is computed, and where, does not."""

_logger = logging.getLogger("tdd.audit")


class AuditOptions(RunOptions, total=False):
    """The further options of `tdd.run_audit`."""

    revision: str | Sequence[str] | None
    text_field: str | None
    id_field: str | None
    label_field: str | None
    group_field: str | None
    knockoff_fields: str | Sequence[str]
    format: str | None
    image_field: str | None
    knockoffs: Sequence[Any]
    calibration_knockoffs: Sequence[Any]
    flagged: Any
    calibration_flagged: Any
    delta: float
    null: str | None
    run: Run | None


@overload
def run_audit(
    model: Any,
    candidates: Any,
    calibration: Any = ...,
    *,
    alpha: float,
    score: Scoring | None = ...,
    extra_scores: Scoring = ...,
    method: str | Procedure = ...,
    members: Any = ...,
    out: str | os.PathLike[str] | None = ...,
    seed: int | None = ...,
    shard: None = None,
    **options: Unpack[AuditOptions],
) -> Audit: ...
@overload
def run_audit(
    model: Any,
    candidates: Any,
    calibration: Any = ...,
    *,
    alpha: float,
    score: Scoring | None = ...,
    extra_scores: Scoring = ...,
    method: str | Procedure = ...,
    members: Any = ...,
    out: str | os.PathLike[str] | None = ...,
    seed: int | None = ...,
    shard: tuple[int, int] | str,
    **options: Unpack[AuditOptions],
) -> None: ...
@on_own_devices()
def run_audit(
    model: Any,
    candidates: Any,
    calibration: Any = None,
    *,
    alpha: float,
    score: Scoring | None = None,
    extra_scores: Scoring = (),
    method: str | Procedure = "ptdi",
    members: Any = None,
    out: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    shard: tuple[int, int] | str | None = None,
    **options: Unpack[AuditOptions],
) -> Audit | None:
    """Audit a checkpoint: which candidates were in its training data, or which are clean, with a controlled error.

    All texts are scored together, in one layout, so that nothing but the texts can tell them apart.

    Args:
      model: a checkpoint folder, GGUF file or hub id ("owner/name@revision"), or (lm, params, tokenizer); for "jmcs" or
        "jecs" a list of them. None with format="lm-eval": all texts are given as samples that lm-evaluation-harness
        logged under the model, and scored from the log-probabilities in them: "loss_per_byte" (the default),
        "choice_loss", or "reference:model=SAMPLES" with the samples of another model; see `tdd.score_log_probs`.
      candidates: texts to decide on; see `tdd.load_texts`. With `knockoff_fields`, a table that has the paraphrases of
        each text as columns.
      calibration: texts of the same kind as the candidates for which the null holds: known NOT to be in the training
        data ("ptdi"), known to be in it ("td4eval"), known to be in that of every model ("jmcs", "jecs"). "ktd" needs
        none; known non-members together with `calibration_knockoffs` allow its symmetry test and rule="conformal".
      alpha: level in (0, 1).
      score: the score that decides, chosen beforehand, as in `tdd.score`; for "td4eval" those of the K detectors. By
        default "grad_norm" for "ktd" and "min_k_plus_plus" for the others.
      extra_scores: further scores to compute and store; they decide nothing.
      method: "ptdi", "best_score", "combined_score", "conditional" or "ktd" (find members); "td4eval", "jmcs" or "jecs"
        (find clean items); with options as in "ptdi:proportion=none,eta=0.1", or the value,
        `tdd.PTDI("none", eta=0.1)`.
      members: texts known to be in the training data, for proportion=moment and moment_paper of "ptdi" and
        "ktd:rule=conformal" (there with `knockoff_fields` of their own), and for "combined_score:learn_from=members".
      out: run folder; an interrupted run continues there.
      seed: of diagnostics, random choices and simulated bounds; None is 0, and for a randomised rule a draw from the
        operating system, which `run["seed"]` records and a run in the same folder takes again.
      shard: (i, n) or "i/n", from 0: compute only part i of n of the scores, into `out` (or `store`), decide nothing,
        and return None; see `tdd.score`. The same call without a shard decides.
      **options: how the tables are read, which items count, and how to run:

        - text_field, id_field: fields with the texts and the identifiers; see `tdd.load_texts`.
        - label_field: field with the known truth of candidates and calibration texts, 1 member and 0 not.
        - group_field: field with the cluster of each text, as the book of a passage; "ptdi" then decides by `unit`.
        - format: format of the files, if not that of their extension; "lm-eval" for samples of lm-evaluation-harness.
        - image_field: field with the images of all tables, instead of texts; see `tdd.score_images`. A score is
          "<score> <slice>", by default "max_renyi:gamma=0.5,k=0.1 image".
        - knockoffs: k collections of texts, each with one paraphrase of every candidate, in the same order ("ktd");
          calibration_knockoffs: likewise for every calibration text; or knockoff_fields: fields of `candidates` (and of
          `calibration` and `members`) with the paraphrases.
        - flagged: ids of the candidates that a rule flagged, as n-gram hits: only these are decided on;
          calibration_flagged: those of the calibration texts, by the same rule, without which no verdict stands; or
          "independent", which asserts that flags are independent of scores under the null.
        - delta: the simultaneous bounds of the report hold with probability at least 1 - delta (.05).
        - null: the null that the caller means to test, "nonmember" or "member"; checked where given.
        - revision: of a model of the hub; for "jmcs" and "jecs" it may be a list: checkpoints of one model.
        - run, or device, devices, dtype, store, long_texts, ...: see `tdd.Run`. For "ktd" long_texts is "truncate" by
          default.

    Returns:
      `Audit`; None with a shard.

    Raises:
      InputError: anything that cannot be used; written are at most `inputs.json` and the scoring of blocks before.
    """
    reading, more, others = _sorted_options(options)
    unknown = {name: value for name, value in others.items() if name not in RunOptions.__annotations__}
    choices = choose(method, alpha=alpha, delta=more["delta"], seed=seed, null=more["null"], others=unknown, out=out)
    procedure, how = choices.procedure, as_run(more["run"], others)
    items = items_of(model, procedure, reading, how, shard)
    deciding, scores = _scores(procedure, items, score, extra_scores)
    models = list_of_models(at_revision(model, more["revision"]), several=procedure.columns == "models")
    part = as_shard(shard, out if how.store is None else how.store, "out")
    devices = how.find_devices()
    tables, reading = items.read((candidates, calibration, members))
    inputs, flags = _only_flagged(read_inputs(procedure, tables, reading), reading, procedure)
    scores = items.ready(scores)
    provenance = items.identify(models, scores, inputs)
    texts = given_by_name(items.values(scores).values(), "texts")
    recorded = {**items.options, **_options(choices, deciding, [*scores], texts, inputs, items.how)}
    recorded |= flags.options if flags else {}
    if isinstance(score, Mapping) or isinstance(extra_scores, Mapping):
        recorded["named"] = {name: items.as_text(name, one) for name, one in scores.items()}
    identity = {**recorded, **({"given": items.given} if items.given else {})}
    folder = None if out is None else _open_folder(pathlib.Path(out), provenance, inputs, choices, identity)
    if folder is not None:
        store, job = items.how.store or folder / "scoring", items.how.job or folder.name
        items.how = dataclasses.replace(items.how, store=store, job=job)
    if part is not None:
        items.score_under(models, column_prefixes(provenance), inputs, scores, part)
        return None
    audit = _finished(choices, inputs, models, provenance, (deciding, scores), items, recorded, flags)
    if folder is not None and devices.leads:
        audit.save(folder)
    return audit


def _sorted_options(options: Mapping[str, Any]) -> tuple[Reading, dict[str, Any], dict[str, Any]]:
    """How tables are read; what else belongs to an audit, with defaults; and all others, which say how to run."""
    more = {"delta": 0.05, "null": None, "revision": None, "run": None}
    fields = {field.name for field in dataclasses.fields(Reading)}
    reading = Reading(**{name: value for name, value in options.items() if name in fields})
    others = {name: value for name, value in options.items() if name not in {*fields, *more}}
    return reading, {name: options.get(name, default) for name, default in more.items()}, others


def _finished(
    choices: Choices,
    inputs: Inputs,
    models: Sequence[Any],
    provenance: list[dict[str, Any]],
    scores: tuple[Sequence[str], Mapping[str, Any]],
    items: Items,
    options: Mapping[str, Any],
    flags: Restricted | None,
) -> Audit:
    """The finished run; `scores` are the names of those that decide, and all of them."""
    deciding, every = scores
    checks = {**_input_checks(inputs, choices.seed, items), **({"flags": flags.flags} if flags else {})}
    prefixes = column_prefixes(provenance)
    tables, details, num_items = items.score_under(models, prefixes, inputs, every, None)
    columns = [prefix + name for prefix in prefixes for name in deciding]
    audit = _decide(
        choices, inputs, tables, columns, options=options, model=describe(provenance, details),
        checks={**checks, "long_texts": cut_texts(details, num_items)},
        assumes=[*([flags.assumes] if flags else []), *items.assumes],
        beside=[name for kind in ("model", "texts") for name in given_by_name(items.values(every).values(), kind)],
    )  # fmt: skip
    return items.finished(audit, inputs, tables, columns)


def _decide(choices: Choices, inputs: Inputs, tables: Tables, columns: Sequence[str], **record: Any) -> Audit:
    """The finished run, from the scores by role; `record` goes to `assemble`."""
    beside = {role: {name: fingerprint(one) for name, one in found.items()} for role, found in inputs.beside.items()}
    sources = {
        str(role): {"source": texts.source, "sha256": texts.sha256, "texts": len(texts), **beside[str(role)]}
        for role, texts in inputs.roles.items()
    }
    evidence = _evidence(choices.procedure, inputs, tables, columns)
    return assemble(choices, evidence, _shown(inputs, tables), inputs=sources, **record)


def _only_flagged(inputs: Inputs, reading: Reading, procedure: Procedure) -> tuple[Inputs, Restricted | None]:
    """The flagged items alone, where some were flagged."""
    flagged, calibration_flagged = reading.flagged, reading.calibration_flagged
    if flagged is None and calibration_flagged is None:
        return inputs, None
    if flagged is None:
        raise InputError("calibration_flagged was given without flagged, the candidates that the same rule flagged")
    from tdd.audit.flagged import restrict_to_flagged

    restricted = restrict_to_flagged(inputs, flagged, calibration_flagged, procedure.null)
    return restricted.inputs, restricted


def _scores(
    procedure: Procedure, items: Items, score: Any, extra_scores: Any
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the scores that decide, and all scores to compute by name."""
    usual = procedure.score if items.score is None else items.score
    chosen = usual if score is None else score
    given, extra = _listed(chosen, "score"), _listed(extra_scores, "extra_scores")
    if not given:
        raise InputError("score names nothing; at least one score decides")
    if len(given) > 1 and procedure.columns != "detectors":
        raise InputError(
            f"score names {len(given)} scores ({', '.join(map(str, given))}) and this method decides on one; choose it "
            "before looking at results, or combine them with method "
            + ("td4eval" if procedure.null == "member" else "best_score or combined_score")
        )
    texts = [one for one in given if isinstance(one, str)]
    if len(set(texts)) < len(texts):
        raise InputError(f"score names a detector twice: {', '.join(texts)}")
    if isinstance(chosen, Mapping) or isinstance(extra_scores, Mapping):  # with names of their own
        deciding = items.scores(chosen if isinstance(chosen, Mapping) else given)
        more = items.scores(extra_scores if isinstance(extra_scores, Mapping) else extra) if extra else {}
        if clash := [name for name, one in more.items() if deciding.get(name, one) != one]:
            raise InputError(f"{clash[0]!r} names one score in score and another in extra_scores; rename one of them")
        return tuple(deciding), {**deciding, **more}
    named = {one if isinstance(one, str) else id(one) for one in given}
    every = items.scores([*given, *(one for one in extra if (one if isinstance(one, str) else id(one)) not in named)])
    return tuple([*every][: len(given)]), every


def _listed(given: Any, argument: str) -> list[Any]:
    """One score or several, the names of a mapping.

    Raises:
      InputError: neither.
    """
    if isinstance(given, (str, Score)):
        return [given]
    if isinstance(given, type) or not isinstance(given, Iterable):
        return [*as_scores(given, argument)]  # raises
    return [*given]


def _options(
    choices: Choices,
    deciding: Sequence[str],
    names: Sequence[str],
    texts: Mapping[str, Texts],
    inputs: Inputs,
    how: Run,
) -> dict[str, Any]:
    """The options as run.json records them; they identify the run. `texts` are those that scores were given."""
    procedure = choices.procedure
    options = {
        **procedure.identity(),
        "alpha": choices.alpha,
        "score": list(deciding),
        "delta": choices.delta,
        "scores": list(names),
        **{name: str(value) for name in _LAYOUT if (value := getattr(how, name)) is not None},
    }
    options |= {name: one.sha256 for name, one in texts.items() if name not in options}  # a user's field may be "alpha"
    return options | ({"unit": None} if isinstance(procedure, PTDI) and not inputs.clusters else {})


def _open_folder(
    folder: pathlib.Path,
    provenance: Sequence[Mapping[str, Any]],
    inputs: Inputs,
    choices: Choices,
    options: Mapping[str, Any],
) -> pathlib.Path:
    """Create the run folder, or accept one of the same run."""
    hashes = [texts.sha256 for texts in inputs.roles.values()]
    beside = {role: found for role, found in inputs.beside.items() if found}
    own = {"beside": beside} if beside else {}
    identity = fingerprint({"model": provenance, "inputs": hashes, "seed": choices.seed, **options, **own})
    open_run_folder(folder, identity, f"audit of {', '.join(model['name'] for model in provenance)}", choices.drawn)
    return folder


def _input_checks(inputs: Inputs, seed: int, items: Items) -> dict[str, Any]:
    """The diagnostics of the items by name, computed before any model is looked at.

    Raises:
      InputError: every candidate is a calibration item.
    """
    checks: dict[str, Any] = {}
    if inputs.calibration is not None:
        _logger.info("comparing calibration and candidates without the model: copies, preparation, blind baseline")
        groups = (inputs.calibration_clusters, inputs.clusters) if inputs.clusters else None
        checks |= items.compare(inputs.calibration, inputs.candidates, seed=seed, groups=groups)
        if {*inputs.candidates.texts} <= {*inputs.calibration.texts}:
            raise InputError(
                f"candidates: each of the {len(inputs.candidates)} is a calibration item too, whose null is known; "
                "give items of which it is not known"
            )
    if inputs.knockoffs("candidate"):
        checks["knockoff_texts"] = knockoff_texts(inputs)
    return checks


def _evidence(procedure: Procedure, inputs: Inputs, tables: Tables, columns: Sequence[str]) -> Evidence:
    """The scores that decide."""
    return evidence_of(
        procedure,
        tables,
        columns,
        knockoffs=[knockoff_column(columns[0], 1 + i) for i in range(len(inputs.knockoffs("candidate")))],
        clusters=inputs.clusters,
        calibration_clusters=inputs.calibration_clusters,
    )


def _shown(inputs: Inputs, tables: Tables) -> Shown:
    """Identifiers, labels and all score columns."""
    known = inputs.calibration
    return Shown(
        ids=inputs.candidates.ids,
        scores=tables["candidate"],
        labels=np.asarray(inputs.candidates.labels),
        calibration={
            "id": np.asarray(() if known is None else known.ids, dtype=object),
            **tables.get("calibration", {}),
        },
        calibration_texts=known,
        ignored_groups=inputs.ignored_groups,
    )
