"""The whole audit: texts and a checkpoint → scores, decision, diagnostics, run folder."""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tdd.audit.assemble import Items, assemble
from tdd.audit.blind_baseline import blind_baseline
from tdd.audit.checks import cut_texts, knockoff_texts
from tdd.audit.decide import Choices, choose, evidence_of
from tdd.audit.duplicates import duplicates
from tdd.audit.excerpts import with_excerpts
from tdd.audit.inputs import Inputs, Tables, knockoff_column, read_inputs
from tdd.audit.models import column_prefixes, describe, list_of_models, provenance_of
from tdd.audit.overlap import overlap, sharing
from tdd.audit.preparation import preparation
from tdd.audit.sampling import OF_EACH
from tdd.audit.score import ScoreOptions
from tdd.audit.score import score as score_texts
from tdd.models.source import at_revision
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI
from tdd.records import Evidence, Texts
from tdd.runs.folder import Audit, fingerprint, open_run_folder
from tdd.runs.shards import Shard, as_shard
from tdd.scoring.devices import find_devices
from tdd.scoring.scores import BESIDE, TEXTS_BESIDE, check_given, parse_score
from tdd.texts import load_texts
from tdd.validate import InputError, as_names

if TYPE_CHECKING:
    from tdd.audit.flagged import Restricted
    from tdd.audit.pictures import Pictures

_DEVICES = ("device", "devices", "shard_params")
_LAYOUT = ("dtype", "max_length", "long_texts")
"""Scoring options that belong to a run's identity; how fast it is computed, and where, does not."""

_OF_TEXTS = (
    "text_field", "format", "shard", "flagged", "calibration_flagged", "knockoffs", "calibration_knockoffs",
    "knockoff_fields",
)  # fmt: skip
"""Arguments that do not apply to images."""

OF_SAMPLES = "loss_per_byte"
"""The score that decides where log-probabilities come from samples."""

OF_IMAGES = "max_renyi:gamma=0.5,k=0.1 image"
"""The score that decides on images: that of PTDI under LLaVA-1.5, on the slice that no text is part of."""

_logger = logging.getLogger("tdd.audit")


@overload
def run_audit(
    model: Any,
    candidates: Any,
    calibration: Any = ...,
    *,
    alpha: float,
    score: str | Sequence[str] | None = ...,
    extra_scores: Sequence[str] = ...,
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
    image_field: str | None = ...,
    delta: float = ...,
    null: str | None = ...,
    flagged: Any = ...,
    calibration_flagged: Any = ...,
    out: str | os.PathLike[str] | None = ...,
    seed: int | None = ...,
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
    extra_scores: Sequence[str] = (),
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
    image_field: str | None = None,
    delta: float = 0.05,
    null: str | None = None,
    flagged: Any = None,
    calibration_flagged: Any = None,
    out: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    shard: tuple[int, int] | str | None = None,
    **scoring: Any,
) -> Audit | None:
    """Audit a checkpoint: which candidates were in its training data, or which are clean, with a controlled error.

    All texts are scored together, in one layout, so that nothing but the texts can tell them apart.

    Args:
      model: a checkpoint folder, a hub id (also "owner/name@revision"), or (lm, params, tokenizer); for "jmcs" and
        "jecs" a list of them. None with format="lm-eval": all texts are given as samples that lm-evaluation-harness
        logged under the model, and scored from the log-probabilities in them: "loss_per_byte" (the default),
        "choice_loss", or "reference" with the samples of another model; see `tdd.score_log_probs`.
      candidates: texts to decide on; see `tdd.load_texts`. With `knockoff_fields`, a table that has the paraphrases of
        each text as columns.
      calibration: texts of the same kind as the candidates for which the null holds: known NOT to be in the training
        data ("ptdi"), known to be in it ("td4eval"), known to be in that of every model ("jmcs", "jecs"). "ktd" needs
        none; known non-members together with `calibration_knockoffs` allow its symmetry test and rule="conformal".
      alpha: level in (0, 1).
      score: the score that decides, chosen beforehand; for "td4eval" the scores of the K detectors. By default
        "grad_norm" for "ktd" and "min_k_plus_plus" for the others.
      extra_scores: further scores to compute and store; they decide nothing.
      method: "ptdi", "best_score", "combined_score", "conditional" or "ktd" (find members); "td4eval", "jmcs" or "jecs"
        (find clean items); with options as in "ptdi:proportion=none,eta=0.1", or the value,
        `tdd.PTDI("none", eta=0.1)`.
      knockoffs: k collections of texts, each with one paraphrase of every candidate, in the same order ("ktd").
      calibration_knockoffs: k collections of texts, each with one paraphrase of every calibration text.
      members: texts known to be in the training data, for "ptdi:proportion=moment" and
        "combined_score:learn_from=members".
      text_field: field with the text in files and tables.
      knockoff_fields: fields of `candidates` (and of `calibration`) with the paraphrases, instead of `knockoffs`.
      id_field: field with the identifiers; see `tdd.load_texts`.
      label_field: field with the known truth of candidates and calibration texts, 1 member and 0 not.
      group_field: field with the cluster of each text, as the book of a passage; "ptdi" then decides by `unit`.
      format: format of the files, if not that of their extension; "lm-eval" for samples of lm-evaluation-harness.
      image_field: field with the images of all tables, instead of texts; see `tdd.score_images`. A score is "<score>
        <slice>", by default "max_renyi:gamma=0.5,k=0.1 image".
      delta: the simultaneous bounds of the report hold with probability at least 1 - delta.
      null: the null that the caller means to test, "nonmember" or "member"; checked where given.
      flagged: ids of the candidates that a rule flagged, as n-gram hits: only these are decided on.
      calibration_flagged: those of the calibration texts, by the same rule, without which no verdict stands; or
        "independent", which asserts that flags are independent of scores under the null.
      out: run folder; an interrupted run continues there.
      seed: of diagnostics, random choices and simulated bounds; None is 0, and for a randomised rule a draw from the
        operating system, which `run["seed"]` records and a run in the same folder takes again.
      shard: (i, n) or "i/n", from 0: compute only part i of n of the scores, into `out` (or `store`), decide nothing,
        and return None; see `tdd.score`. The same call without a shard decides.
      **scoring: passed to `tdd.score` (revision, reference, corpus, prefix, dtype, ...). For "ktd" long_texts is
        "truncate" by default. For "jmcs" and "jecs" revision may be a list: checkpoints of one model.

    Returns:
      `Audit`; None with a shard.

    Raises:
      InputError: anything that cannot be used; written are at most `inputs.json` and the scoring of blocks before.
    """
    others = {name: value for name, value in scoring.items() if name not in ScoreOptions.__annotations__}
    choices = choose(method, alpha=alpha, delta=delta, seed=seed, null=null, others=others, out=out)
    procedure = choices.procedure
    deciding, names = _score_names(procedure, score, extra_scores, scoring, samples=model is None, field=image_field)
    pictures, options = None, {}
    if image_field is not None:
        unused = (text_field, format, shard, flagged, calibration_flagged,
                  knockoffs, calibration_knockoffs, knockoff_fields)  # fmt: skip
        (candidates, calibration, members), pictures = _as_pictures(
            model, procedure, (candidates, calibration, members), image_field, scoring, unused
        )
        text_field, options = image_field, {"image_field": image_field}
    elif model is None:
        from tdd.audit.samples import check_samples, score_samples

        check_samples(format, procedure, scoring, shard)
    models = list_of_models(at_revision(model, scoring.pop("revision", None)), several=procedure.columns == "models")
    part = as_shard(shard, out if scoring.get("store") is None else scoring.get("store"), "out")
    devices = find_devices(**{name: scoring[name] for name in _DEVICES if name in scoring})
    inputs = read_inputs(
        procedure, candidates, calibration, members, knockoffs, calibration_knockoffs, knockoff_fields=knockoff_fields,
        label_field=label_field, group_field=group_field, text_field=text_field, id_field=id_field, format=format,
    )  # fmt: skip
    inputs, flags = _only_flagged(inputs, flagged, calibration_flagged, procedure)
    scored = None
    if model is None:
        scored = score_samples(inputs, (candidates, calibration, members), names, scoring.get("reference"), id_field)
        models, provenance = [], [scored.identity]
    else:
        provenance = _read_beside(models, text_field, procedure, scoring, pictures)
    options |= {**_options(choices, deciding, names, inputs, scoring), **(flags.options if flags else {})}
    folder = None if out is None else _open_folder(pathlib.Path(out), provenance, inputs, choices, options)
    _place_scoring(scoring, folder, pictures)
    if part is not None:
        _score_under(models, provenance, inputs, names, scoring, part)
        return None
    audit = _finished(choices, inputs, models, provenance, (deciding, names), scoring, options, flags, scored, pictures)
    if folder is not None and devices.leads:
        audit.save(folder)
    return audit


def _as_pictures(
    model: Any,
    procedure: Procedure,
    tables: tuple[Any, Any, Any],
    field: str,
    scoring: dict[str, Any],
    unused: Sequence[Any],
) -> tuple[list[Any], Pictures]:
    """Candidates, calibration and members of an audit of images; see `tdd.audit.pictures.read_pictures`."""
    from tdd.audit.pictures import read_pictures

    return read_pictures(model, procedure, tables, field, scoring, dict(zip(_OF_TEXTS, unused, strict=True)))


def _place_scoring(scoring: dict[str, Any], folder: pathlib.Path | None, pictures: Pictures | None) -> None:
    """Set where scores are stored, and the name of the run among others in the store; images have no shards."""
    if folder is not None and scoring.get("store") is None:
        scoring["store"] = folder / "scoring"
    if pictures is None:
        scoring.setdefault("job", "" if folder is None else folder.name)


def _finished(
    choices: Choices,
    inputs: Inputs,
    models: Sequence[Any],
    provenance: list[dict[str, Any]],
    scores: tuple[Sequence[str], Sequence[str]],
    scoring: Mapping[str, Any],
    options: Mapping[str, Any],
    flags: Restricted | None,
    scored: Any,
    pictures: Pictures | None,
) -> Audit:
    """The finished run; `scores` are those that decide, and all of them."""
    deciding, names = scores
    checks = {**_input_checks(inputs, choices.seed, pictures), **({"flags": flags.flags} if flags else {})}
    tables, details, num_texts = scored[:3] if scored else _score_under(models, provenance, inputs, names, scoring)
    columns = [prefix + name for prefix in column_prefixes(provenance) for name in deciding]
    audit = _decide(
        choices, inputs, tables, columns, options=options, model=describe(provenance, details),
        checks={**checks, "long_texts": cut_texts(details, num_texts)},
        assumes=[found.assumes for found in (flags, scored) if found],
        beside=[name for name in BESIDE if scoring.get(name) is not None],
    )  # fmt: skip
    audit = with_excerpts(audit, inputs, tables, columns, texts=pictures is None)
    if pictures is None:
        return audit
    from tdd.audit.pictures import thumbnails

    shown = thumbnails(pictures.files, inputs.candidates, audit)
    return dataclasses.replace(audit, run={**audit.run, "thumbnails": shown})


def _decide(choices: Choices, inputs: Inputs, tables: Tables, columns: Sequence[str], **record: Any) -> Audit:
    """The finished run, from the scores by role; `record` goes to `assemble`."""
    sources = {
        str(role): {"source": texts.source, "sha256": texts.sha256, "texts": len(texts)}
        for role, texts in inputs.roles.items()
    }
    evidence = _evidence(choices.procedure, inputs, tables, columns)
    return assemble(choices, evidence, _items(inputs, tables), inputs=sources, **record)


def _only_flagged(
    inputs: Inputs, flagged: Any, calibration_flagged: Any, procedure: Procedure
) -> tuple[Inputs, Restricted | None]:
    """The flagged items alone, where some were flagged."""
    if flagged is None and calibration_flagged is None:
        return inputs, None
    if flagged is None:
        raise InputError("calibration_flagged was given without flagged, the candidates that the same rule flagged")
    from tdd.audit.flagged import restrict_to_flagged

    restricted = restrict_to_flagged(inputs, flagged, calibration_flagged, procedure.null)
    return restricted.inputs, restricted


def _read_beside(
    models: Sequence[Any],
    text_field: str | None,
    procedure: Procedure,
    scoring: dict[str, Any],
    pictures: Pictures | None,
) -> list[dict[str, Any]]:
    """The provenance of the models; the options of scoring get the texts of prefixes and corpus, and their defaults."""
    if pictures is not None:
        return [provenance_of(audited) for audited in models]
    beside = {name: given for name in TEXTS_BESIDE if (given := scoring.get(name)) is not None}
    scoring |= {name: load_texts(given, text_field=text_field) for name, given in beside.items()}
    if scoring.get("long_texts") is None:
        scoring["long_texts"] = procedure.long_texts
    provenance = [provenance_of(audited) for audited in models]
    if (reference := scoring.get("reference")) is not None:
        several = [provenance_of(one) for one in reference] if isinstance(reference, list) else provenance_of(reference)
        provenance[0]["reference"] = several
    return provenance


def _score_names(
    procedure: Procedure,
    score: str | Sequence[str] | None,
    extra_scores: Sequence[str],
    scoring: Mapping[str, Any],
    *,
    samples: bool,
    field: str | None,
) -> tuple[tuple[str, ...], list[str]]:
    """The scores that decide, and all scores to compute, under a model or from samples."""
    default = OF_IMAGES if field is not None else OF_SAMPLES if samples else procedure.score
    score = default if score is None else score
    deciding = as_names(score, "score")
    if not deciding:
        raise InputError("score names nothing; at least one score decides")
    if len(deciding) > 1 and procedure.columns != "detectors":
        raise InputError(
            f"score names {len(deciding)} scores ({', '.join(deciding)}) and this method decides on one; choose it "
            "before looking at results, or combine them with method td4eval"
        )
    if len(set(deciding)) < len(deciding):
        raise InputError(f"score names a detector twice: {', '.join(deciding)}")
    names = list(dict.fromkeys([*deciding, *extra_scores]))
    if field is not None:
        from tdd.audit.images import of_slice

        for name in names:
            of_slice(name)
    elif not samples:
        check_given(map(parse_score, names), scoring)
    return deciding, names


def _options(
    choices: Choices, deciding: Sequence[str], names: Sequence[str], inputs: Inputs, scoring: Mapping[str, Any]
) -> dict[str, Any]:
    """The options as run.json records them; they identify the run."""
    procedure = choices.procedure
    return {
        **procedure.identity(),
        "alpha": choices.alpha,
        "score": list(deciding),
        "delta": choices.delta,
        "scores": list(names),
        **{key: str(value) for key, value in scoring.items() if key in _LAYOUT and value is not None},
        **{name: scoring[name].sha256 for name in TEXTS_BESIDE if scoring.get(name) is not None},
        **({"unit": None} if isinstance(procedure, PTDI) and not inputs.clusters else {}),
    }


def _open_folder(
    folder: pathlib.Path,
    provenance: Sequence[Mapping[str, Any]],
    inputs: Inputs,
    choices: Choices,
    options: Mapping[str, Any],
) -> pathlib.Path:
    """Create the run folder, or accept one of the same run."""
    hashes = [texts.sha256 for texts in inputs.roles.values()]
    if inputs.clusters:
        hashes.append(fingerprint([inputs.clusters, inputs.calibration_clusters]))
    identity = fingerprint({"model": provenance, "inputs": hashes, "seed": choices.seed, **options})
    open_run_folder(folder, identity, f"audit of {', '.join(model['name'] for model in provenance)}", choices.drawn)
    return folder


def _input_checks(inputs: Inputs, seed: int, pictures: Pictures | None) -> dict[str, Any]:
    """The diagnostics of texts or images by name, computed before any model is looked at."""
    checks: dict[str, Any] = {}
    if inputs.calibration is not None:
        _logger.info("comparing calibration and candidates without the model: copies, preparation, blind baseline")
        groups = (inputs.calibration_clusters, inputs.clusters) if inputs.clusters else None
        checks |= compare_roles(inputs.calibration, inputs.candidates, seed=seed, groups=groups, pictures=pictures)
    if inputs.knockoffs("candidate"):
        checks["knockoff_texts"] = knockoff_texts(inputs)
    return checks


def compare_roles(
    known: Texts, candidates: Texts, *, seed: int, groups: Any = None, pictures: Pictures | None = None
) -> dict[str, Any]:
    """What tells calibration items and candidates apart without a model, by name; see `tdd.audit.blind_baseline`."""
    compared: dict[str, Any] = {"seed": seed, "groups": groups}
    if pictures is None:
        checks: dict[str, Any] = {"duplicates": duplicates(known, candidates), "overlap": overlap(known, candidates)}
        near, seen, marks = {}, None, None
    else:
        checks = {"duplicates": duplicates(known, candidates, **pictures.likeness)}
        near = {name: one for name, one in pictures.likeness.items() if name != "measure"}
        seen, marks = pictures.view, pictures.marks
    return {
        **checks,
        "sharing": sharing(known, candidates, **compared, **near),
        "preparation": preparation(known, candidates, marks=marks, level=OF_EACH, **compared),
        "blind_baseline": blind_baseline(known, candidates, view=seen, level=OF_EACH, **compared),
    }


def _score_under(
    models: Sequence[Any],
    provenance: Sequence[dict[str, Any]],
    inputs: Inputs,
    names: Sequence[str],
    scoring: Mapping[str, Any],
    part: Shard | None = None,
) -> tuple[Tables, list[dict[str, Any]], int]:
    """The columns by role, every score under every model; the provenance under each; the number of distinct texts.

    For a shard nothing but that number.
    """
    texts, places = inputs.joined()
    shards = {} if part is None else {"shard": part}
    compute: Any = score_texts
    if "files" in scoring:
        from tdd.audit.images import score_image_files as compute
    values: dict[str, np.ndarray] = {}
    details = []
    for number, (prefix, model) in enumerate(zip(column_prefixes(provenance), models, strict=True)):
        options = dict(scoring)
        if len(models) > 1 and "job" in options:
            options["job"] = f"{options['job']}-{number}"
        table = compute(model, texts, names, **shards, **options)
        if table is not None:
            values |= {f"{prefix}{name}": column for name, column in table.values.items()}
            details.append(dict(table.provenance))
    return inputs.split(values, places), details, len(texts)


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


def _items(inputs: Inputs, tables: Tables) -> Items:
    """Identifiers, labels and all score columns."""
    known = inputs.calibration
    return Items(
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
