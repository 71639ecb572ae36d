"""The data owner's tests on a checkpoint: versions of documents, or a whole set beside a held-out one.

Texts → scores → one p-value, a check of the assumption without the model, a run folder.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.audit.blind_baseline import GUARANTEE as BLIND
from tdd.audit.blind_baseline import blind_baseline, unusual_space
from tdd.audit.decide import level_in_words
from tdd.audit.models import provenance_of
from tdd.audit.score import ScoreOptions
from tdd.audit.score import score as score_texts
from tdd.models.source import at_revision
from tdd.procedures import dataset_inference, versions
from tdd.records import Guarantee, TestResult, Texts
from tdd.runs.display import Displayed, report_module
from tdd.runs.folder import fingerprint, log_findings, open_run_folder, plain, run_head, to_csv, write_run
from tdd.scoring.scores import BESIDE, TEXTS_BESIDE, check_given, parse_score
from tdd.texts import hash_texts, load_text_columns, load_texts
from tdd.validate import InputError, arrays, as_names

__all__ = ["TABLES", "OwnerTest", "blind_p_value", "run_dataset_inference", "run_version_test"]

TABLES = {"versions": "documents.csv", "dataset": "items.csv"}
"""Kind of run -> its table."""

_CHECK_LEVEL = 0.01
_LAYOUT = ("dtype", "max_length", "long_texts")
DATASET_SCORES = ("loss", "min_k", "min_k_plus_plus", "zlib")

GUARANTEE_ROWS = [
    (
        "tdd.run_version_test",
        "check of the draw",
        Guarantee(
            "P(the verdict is withheld) <= 1%",
            ("which version of each document was published was drawn uniformly at random, independently",),
            "finite-sample",
            "tdd.version_test on each feature of the texts in both directions, Bonferroni",
        ),
    ),
    ("tdd.run_dataset_inference", "blind baseline", BLIND),
]


class _Kind(NamedTuple):
    """The sentences of a kind of test."""

    name: str
    subject: str  # what the model may have been trained on
    drawn: str  # the condition of the guarantee
    others: str  # what a model that gives the bound was trained without
    unlike: str  # why the verdict is withheld
    rule: str
    open_points: tuple[str, ...]


_VERSIONS = _Kind(
    "versions",
    "the published versions",
    "they were drawn at random from all versions",
    "them",
    "the published versions differ from the private ones without looking at the model (p = {p:.3g}), so they were not "
    "drawn at random from them",
    "A verdict is withheld where the published versions differ from the private ones without looking at the model, in "
    "length, compressibility or white space. Where they were drawn at random, that happens in at most 1% of runs.",
    (
        "That the published versions were drawn at random, and the private ones kept private, is taken from their "
        "owner.",
        "A large p-value does not show that the model was trained without the documents.",
        "A small p-value does not say how they came into the training data, nor which of them did.",
    ),
)
_DATASET = _Kind(
    "dataset",
    "the suspect texts",
    "suspect and held-out texts are of one kind, as if divided at random",
    "either",
    "suspect and held-out texts differ without looking at the model (p = {p:.3g}), so they are not exchangeable",
    "A verdict is withheld where the blind baseline tells the suspect texts from the held-out ones without looking at "
    "the model. Where they are exchangeable, that happens in at most 1% of runs.",
    (
        "That the held-out texts were kept from the training data is taken from their owner.",
        "That both sets are of one kind, date, source and preparation cannot be shown, only contradicted.",
        "A large p-value does not show that the model was trained without the suspect texts.",
        "A small p-value does not say which of them are in the training data, nor how many.",
    ),
)


@dataclasses.dataclass(frozen=True, repr=False)
class OwnerTest(Displayed):
    """A finished test of a data owner.

    Attributes:
      run: content of run.json, plain values.
      rows: the columns of its table. Versions: document, score of its published version, mean_private, rank (private
        versions that the published one undercuts; -1 where a score is missing), num_private. Data set: id, role and
        scores.
    """

    run: Mapping[str, Any]
    rows: Mapping[str, np.ndarray]

    @property
    def p_value(self) -> float:
        """The p-value, also where the verdict is withheld."""
        return self.run["result"]["p_value"]

    @property
    def verdict_stands(self) -> bool:
        """Whether no check speaks against the assumptions; where one does, `run["verdict"]["failed"]` says why."""
        return self.run["verdict"]["stands"]

    def save(self, folder: pathlib.Path) -> None:
        """Write the table and run.json, then report.html, each whole or not at all."""
        write_run(folder, self.run, {TABLES[self.run["kind"]]: to_csv(self.rows)})
        self.write_page(folder)

    def report(self) -> Any:  # noqa: D102
        return report_module("owner").owner_report(self.run, self.rows)

    def _rows(self) -> dict[str, Any]:
        return dict(self.rows)


def run_version_test(
    model: Any,
    documents: Any,
    *,
    document_field: str = "document",
    published_field: str = "published",
    text_field: str | None = None,
    format: str | None = None,
    score: str = "loss",
    test: str = "rank_sum",
    alpha: float = 0.05,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    **scoring: Any,
) -> OwnerTest:
    """Test whether a model was trained on the published versions of an owner's documents (STAMP).

    All versions are scored together, and `tdd.version_test` decides. The draw is checked without the model: where
    length, compressibility or white space tell the published versions from the private ones, the verdict is withheld.

    Guarantee: P(p <= alpha) <= alpha if which version of each document was published was drawn uniformly at random and
    the model was trained without the published versions; finite-sample, but for test="t". P(the verdict is withheld) <=
    1% where they were drawn so.

    Args:
      model: a checkpoint folder, a hub id (also "owner/name@revision"), or (lm, params, tokenizer).
      documents: a table with a row for each version, a file or an object as for `tdd.load_texts`.
      document_field: field that names the document of a version.
      published_field: field with 1 for the published version of each document and 0 for its private ones.
      text_field: field with the text.
      format: format of the file, if not that of its extension.
      score: the score, fixed beforehand. Versions differ in length: take one a token, such as "loss".
      test: test of `tdd.version_test`, fixed beforehand.
      alpha: level in (0, 1).
      seed: seed of the tests "exact" and "combined".
      out: run folder; an interrupted run continues there.
      **scoring: passed to `tdd.score`.

    Raises:
      InputError: a document without one published version, documents with different numbers of private versions,
        anything else that cannot be used.

    Cost: one pass over all versions.
    """
    arrays.check_choice(test, tuple(versions.GUARANTEES), "test")
    fields = {"label_field": published_field, "group_field": document_field}
    try:
        table = load_text_columns(documents, text_field=text_field, format=format, **fields)
    except InputError as error:
        said = str(error).replace("label_field", "published_field").replace("group_field", "document_field")
        raise InputError(said) from None
    names, places = _places(table.groups, table.texts.labels)
    start = _start(_VERSIONS, model, table.texts, [score], test, alpha, seed, out, scoring, [*table.groups])
    check = float(blind_p_value(_features(table.texts.texts)[:, places]))
    values = start.scores()[score][places]
    result = versions.version_test(values[:, 0], values[:, 1:], test=test, key=jax.random.key(seed))  # type: ignore[arg-type]
    facts = _numbers(result, alpha)
    facts |= {"num_documents": int(result.num_shards), "num_missing": int(result.num_masked)}
    facts["num_private"] = places.shape[1] - 1
    warnings = _version_warnings(facts, alpha, table.texts.texts, places)
    rows = {
        "document": np.asarray(names, object),
        "score": values[:, 0],
        "mean_private": values[:, 1:].mean(1),
        "rank": np.asarray(result.shard_ranks),
        "num_private": np.full(len(names), facts["num_private"]),
    }
    return start.finish(facts, result.guarantee, check, warnings, rows)


def run_dataset_inference(
    model: Any,
    suspect: Any,
    heldout: Any,
    *,
    score: str | Sequence[str] = DATASET_SCORES,
    test: str = "permutation",
    num_splits: int = 10,
    alpha: float = 0.05,
    text_field: str | None = None,
    group_field: str | None = None,
    format: str | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    **scoring: Any,
) -> OwnerTest:
    """Test whether a model was trained on a set of texts, beside texts of the same owner that were kept back.

    All texts are scored together, and `tdd.dataset_inference` decides. Where the blind baseline tells the two sets
    apart without the model (`tdd.audit.blind_baseline`), the verdict is withheld.

    A small p-value says that the sets differ; it accuses where suspects look more like members, too
    (`DatasetInferenceResult.toward_members`).

    Guarantee: P(p <= alpha) <= alpha if the model was trained on neither set and the texts of both are exchangeable, or
    with `group_field` the groups, each with all its texts; finite-sample, but for test="t". P(the verdict is withheld)
    <= 1% where they are.

    Args:
      model: a checkpoint folder, a hub id (also "owner/name@revision"), or (lm, params, tokenizer).
      suspect: texts that may be in the training data; see `tdd.load_texts`.
      heldout: texts of the same kind that cannot be: a random part of the owner's texts that was never published.
      score: the scores that are learned into one, fixed beforehand.
      test: test of `tdd.dataset_inference`, fixed beforehand.
      num_splits: random splits into a half that is learned from and a half that is tested.
      alpha: level in (0, 1).
      text_field: field with the text.
      group_field: field with the group of each text, as the book of a passage. The mean scores of the groups are then
        tested: texts of one group are not exchangeable one by one.
      format: format of the files, if not that of their extension.
      seed: seed of splits, labellings and blind baseline.
      out: run folder; an interrupted run continues there.
      **scoring: passed to `tdd.score`.

    Raises:
      InputError: fewer than four texts (or groups) with all scores in a set, a group in both sets, anything else that
        cannot be used.

    Cost: one pass over all texts, and the test's own; see `tdd.dataset_inference`.
    """
    arrays.check_choice(test, tuple(dataset_inference.GUARANTEES), "test")
    names = as_names(score, "score")
    num_splits = arrays.as_count(num_splits, "num_splits")
    fields: dict[str, Any] = {"text_field": text_field, "group_field": group_field, "format": format}
    tables = [load_text_columns(source, **fields) for source in (suspect, heldout)]
    sets, groups = [table.texts for table in tables], [table.groups for table in tables]
    _check_sets(sets, groups)
    ids = [f"{role}/{name}" for role, one in zip(("suspect", "heldout"), sets, strict=True) for name in one.ids]
    joined = [text for one in sets for text in one.texts]
    source = " + ".join(one.source for one in sets)
    texts = Texts(tuple(ids), tuple(joined), source=source, sha256=hash_texts(ids, joined))
    decides = [num_splits, *([*map(list, groups)] if group_field else [])]
    start = _start(_DATASET, model, texts, names, test, alpha, seed, out, scoring, decides)
    blind = blind_baseline(sets[1], sets[0], seed=seed, groups=(groups[1], groups[0]) if group_field else None)
    scores = start.scores()
    panels = np.split(np.stack([scores[name] for name in names]), [len(sets[0])], axis=1)
    units = [group_means(panel, own) for panel, own in zip(panels, groups, strict=True)] if group_field else panels
    result = dataset_inference.dataset_inference(
        *units,
        key=jax.random.key(seed),
        test=test,  # type: ignore[arg-type]
        num_splits=num_splits,
    )
    facts = _numbers(result, alpha)
    facts |= {"num_suspect": int(result.num_suspect), "num_heldout": int(result.num_heldout)}
    facts |= {"unit": "group" if group_field else "text"}
    facts |= {"auc": float(result.statistic), "num_splits": num_splits}
    facts["weights"] = dict(zip(names, np.asarray(result.weights).tolist(), strict=True))
    facts["reversed"] = facts["rejected"] and not bool(result.toward_members)
    facts["rejected"] &= not facts["reversed"]
    if test == "permutation":
        sizes = facts["num_suspect"], facts["num_heldout"]
        facts["log_smallest_p"] = dataset_inference.log_smallest_p(*sizes, num_splits=num_splits)
    warnings = [] if blind.p_value <= _CHECK_LEVEL or not blind.warning else [blind.warning]
    warnings += _dataset_warnings(facts, alpha, sets, groups, sum(panel.shape[1] for panel in units))
    rows = {"id": np.array([name for one in sets for name in one.ids], object)}
    rows["role"] = np.repeat(np.array(["suspect", "heldout"], object), [len(one) for one in sets])
    if group_field:
        rows["group"] = np.array([name for own in groups for name in own], object)
    return start.finish(facts, result.guarantee, blind.p_value, warnings, {**rows, **scores})


def group_means(scores: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """Scores [K, N] of texts, and the group of each -> [K, G] mean of each group, in the order of first appearance.

    Texts without a score (NaN) do not count; a group without any has NaN. The mean is a function of a group's texts
    that does not depend on their order: exchangeable groups have exchangeable means, whatever their sizes.

    >>> group_means(np.array([[1.0, 2.0, 4.0]]), ["a", "b", "a"]).tolist()
    [[2.5, 2.0]]
    """
    place = {name: index for index, name in enumerate(dict.fromkeys(groups))}
    index = np.array([place[name] for name in groups], np.int64)
    total, count = np.zeros((2, len(scores), len(place)))
    for row, values in enumerate(scores):
        real = ~np.isnan(values)
        np.add.at(total[row], index[real], values[real])
        np.add.at(count[row], index[real], 1)
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _check_sets(sets: Sequence[Texts], groups: Sequence[Sequence[str]]) -> None:
    """Check that each set has enough units, and that no group is in both."""
    if both := sorted({*groups[0]} & {*groups[1]}):
        raise InputError(f"group {both[0]!r} is in both sets ({len(both)} are); leave it out of one of them")
    for name, one, own in zip(("suspect", "heldout"), sets, groups, strict=True):
        count, kind = (len({*own}), "groups") if own else (len(one), "texts")
        if count < dataset_inference.FEWEST:
            raise InputError(f"{name} needs at least {dataset_inference.FEWEST} {kind}, got {count}")


def _dataset_warnings(
    facts: Mapping[str, Any], alpha: float, sets: Sequence[Texts], groups: Sequence[Sequence[str]], num_units: int
) -> list[str]:
    """What the reader must know."""
    warnings = []
    if copies := len({*sets[0].texts} & {*sets[1].texts}):
        warnings.append(f"{copies} texts are in both sets; they cannot tell them apart, and cost power")
    if facts["log_smallest_p"] > math.log(alpha) + 1e-5:
        warnings.append(_nothing_can_be_found(math.exp(facts["log_smallest_p"]), alpha))
    if facts["reversed"]:
        warnings.append(
            "the sets differ, but held-out texts have the lower scores: the suspect texts look less like training data"
        )
    for role, one, own in zip(("suspect", "held-out"), sets, groups, strict=True):
        held = {*zip(one.texts, own, strict=True)} if own else one.texts  # a group may repeat its own texts
        if copies := len(held) - len({*one.texts}):
            warnings.append(
                f"{copies} {role} texts are copies of others in their set; copies are not exchangeable one by one, and "
                "the p-value is too small: remove them"
            )
    if missing := num_units - facts["num_suspect"] - facts["num_heldout"]:
        warnings.append(f"{missing} {facts['unit']}s lack a score and were left out")
    return warnings


@dataclasses.dataclass(frozen=True)
class _Start:
    """A run whose inputs have been checked, and whose folder is open."""

    kind: _Kind
    model: Any
    provenance: Mapping[str, Any]
    texts: Texts
    options: Mapping[str, Any]
    seed: int
    folder: pathlib.Path | None
    scoring: Mapping[str, Any]
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def scores(self) -> dict[str, np.ndarray]:
        """Name of the score -> [N] scores of the texts."""
        scored = score_texts(self.model, self.texts, self.options["score"], **self.scoring)
        self.details.update(scored.provenance)
        return dict(scored.values)

    def finish(
        self,
        facts: Mapping[str, Any],
        guarantee: Guarantee,
        check: float,
        warnings: Sequence[str],
        rows: Mapping[str, np.ndarray],
    ) -> OwnerTest:
        """The finished run, written to its folder; what a reader must know is logged."""
        kind, options = self.kind, self.options
        failed = [] if check > _CHECK_LEVEL else [kind.unlike.format(p=check)]
        run = {
            **run_head(kind.name, self.seed),
            "options": options,
            "inputs": {"source": self.texts.source, "sha256": self.texts.sha256, "texts": len(self.texts)},
            "model": {**self.provenance, "scoring": self.details},
            "outcome": _outcome(kind, facts, options["alpha"], failed, guarantee),
            "verdict": {"stands": not failed, "failed": failed, "rule": kind.rule},
            "result": facts,
            "guarantee": guarantee,
            "checks": {"without_model": {"p_value": check, "level": _CHECK_LEVEL}},
            "warnings": [*warnings],
            "open_points": [*kind.open_points, *_open_beside(options)],
        }
        log_findings((*failed, *warnings))
        finished = OwnerTest(plain(run), rows)
        if self.folder is not None:
            finished.save(self.folder)
        return finished


def _start(
    kind: _Kind,
    model: Any,
    texts: Texts,
    score: Sequence[str],
    test: str,
    alpha: float,
    seed: int,
    out: Any,
    scoring: dict[str, Any],
    more: Any,
) -> _Start:
    """Check the options, identify the run, and open its folder; `more` is what else decides the numbers."""
    if unknown := scoring.keys() - ScoreOptions.__annotations__.keys():
        raise InputError(f"there is no option {min(unknown)!r}; see tdd.score for those of scoring")
    arrays.check_level(alpha)
    arrays.check_seed(seed)
    check_given(map(parse_score, score), scoring)
    model = at_revision(model, scoring.pop("revision", None))
    provenance = provenance_of(model)
    layout = {name: str(scoring[name]) for name in _LAYOUT if scoring.get(name) is not None}
    options = {"score": [*score], "test": test, "alpha": alpha, **layout, **_read_beside(scoring)}
    folder = None if out is None else pathlib.Path(out)
    if folder is not None:
        identity = {"kind": kind.name, "model": provenance, "texts": [texts.sha256, texts.labels, more], "seed": seed}
        open_run_folder(folder, fingerprint({**identity, **options}), f"{kind.name} test of {provenance['name']}")
        scoring.setdefault("store", folder / "scoring")
    return _Start(kind, model, provenance, texts, options, seed, folder, scoring)


def _read_beside(scoring: dict[str, Any]) -> dict[str, Any]:
    """What identifies the models and texts that scores rest on; the options of scoring get the texts, read."""
    scoring |= {name: load_texts(given) for name in TEXTS_BESIDE if (given := scoring.get(name)) is not None}
    found: dict[str, Any] = {name: scoring[name].sha256 for name in TEXTS_BESIDE if scoring.get(name) is not None}
    if (reference := scoring.get("reference")) is not None:
        found["reference"] = [provenance_of(one) for one in (reference if isinstance(reference, list) else [reference])]
    return found


def blind_p_value(features: Any) -> jax.Array:
    """P-value of the draw of the published versions, without a model.

    Args:
      features: [F, n, k + 1] features of the texts, those of the published version first.

    Returns:
      [] the smallest p-value of `tdd.version_test` over features and directions, times their number, at most 1. Valid
      if the published version of each document was drawn uniformly at random.
    """
    signed = [sign * values for values in jnp.asarray(features) for sign in (1, -1)]
    p_values = jnp.stack([versions.version_test(values[:, 0], values[:, 1:]).p_value for values in signed])
    return jnp.minimum(1, len(signed) * p_values.min())


def _features(texts: Sequence[str]) -> np.ndarray:
    """[3, N]: characters, compressed bytes a character, fraction of unusual white space."""
    rows = [(len(text), len(zlib.compress(text.encode())) / len(text), unusual_space(text)) for text in texts]
    return np.array(rows, np.float32).T


def _places(documents: Sequence[str], published: Sequence[int]) -> tuple[list[str], np.ndarray]:
    """Names of the n documents, and [n, k + 1] rows of their versions, the published one first."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(documents):
        rows.setdefault(name, []).append(row)
    for name, mine in rows.items():
        if (count := sum(published[row] for row in mine)) != 1:
            raise InputError(f"document {name!r} has {count} published versions; every document has exactly one")
        mine.sort(key=lambda row: -published[row])
    sizes = {name: len(mine) - 1 for name, mine in rows.items()}
    fewest, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    if sizes[fewest] != sizes[most]:
        raise InputError(
            f"document {fewest!r} has {sizes[fewest]} private versions and {most!r} has {sizes[most]}; give every "
            "document the same number"
        )
    if not sizes[fewest]:
        raise InputError("no document has a private version; the published ones have nothing to be compared with")
    return [*rows], np.array([*rows.values()])


def _numbers(result: TestResult, alpha: float) -> dict[str, Any]:
    """The p-value and the decision, as plain values; a p-value of 1/20 is at most a level of .05 in its own type."""
    p = np.asarray(result.p_value)
    smallest = float(getattr(result, "log_smallest_p", -math.inf))
    rejected = bool(p <= np.asarray(alpha, p.dtype))
    return {
        "p_value": float(p),
        "log_p_value": float(result.log_p_value),
        "log_smallest_p": smallest,
        "rejected": rejected,
    }


def _outcome(kind: _Kind, facts: Mapping[str, Any], alpha: float, failed: Sequence[str], guarantee: Guarantee) -> str:
    """The verdict in a sentence or two."""
    if failed:
        return f"No verdict: {'; '.join(failed)}. A model may prefer such texts without having seen them."
    level = level_in_words(alpha)
    if math.isnan(facts["p_value"]):
        return f"Whether the model was trained on {kind.subject} cannot be said: no p-value."
    p = f"p = {facts['p_value']:.3g}, level {level}"
    if facts.get("reversed"):
        return (
            f"No sign that the model was trained on {kind.subject} was found: the two sets differ ({p}), but in the "
            "other direction."
        )
    if not facts["rejected"]:
        return (
            f"No sign that the model was trained on {kind.subject} was found ({p}). That does not show that it was "
            "trained without them."
        )
    how = "" if guarantee.kind == "finite-sample" else " in the limit of many texts"
    return (
        f"The model was trained on {kind.subject}, or on some of them ({p}). If {kind.drawn}, a model trained without "
        f"{kind.others} gives such a result with a probability of at most {level}{how}."
    )


def _open_beside(options: Mapping[str, Any]) -> list[str]:
    """What is taken from the owner about models and texts that scores rest on."""
    beside = [name for name in BESIDE if name in options]
    if not beside:
        return []
    return [
        f"That {', '.join(beside)} and the options of the scores were fixed before any score was seen is not checked."
    ]


def _nothing_can_be_found(smallest: float, alpha: float) -> str:
    return (
        f"nothing can be found: the smallest p-value to expect from these sizes is {smallest:.3g}, above the level "
        f"{level_in_words(alpha)}"
    )


def _version_warnings(facts: Mapping[str, Any], alpha: float, texts: Sequence[str], places: np.ndarray) -> list[str]:
    """What the reader must know."""
    warnings = []
    if facts["num_missing"]:
        warnings.append(f"{facts['num_missing']} documents have a version without a score and were left out")
    if facts["log_smallest_p"] > math.log(alpha) + 1e-5:
        warnings.append(_nothing_can_be_found(math.exp(facts["log_smallest_p"]), alpha))
    if copies := sum(texts[row[0]] in {texts[i] for i in row[1:]} for row in places.tolist()):
        warnings.append(
            f"{copies} documents have a private version that is equal to the published one; such a version is not "
            "private, and counts against detection"
        )
    return warnings
