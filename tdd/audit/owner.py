"""The data owner's test on a checkpoint: versions of documents → scores, p-value, check of the draw, run folder."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import math
import os
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.audit.blind_baseline import unusual_space
from tdd.audit.decide import level_in_words
from tdd.audit.models import provenance_of
from tdd.audit.score import ScoreOptions
from tdd.audit.score import score as score_texts
from tdd.models.source import at_revision
from tdd.procedures.versions import GUARANTEES, version_test
from tdd.records import Guarantee
from tdd.runs.display import Displayed, report_module
from tdd.runs.folder import SCHEMA, fingerprint, open_run_folder, plain, to_csv, versions, write_run
from tdd.texts import load_text_columns
from tdd.validate import InputError, arrays

__all__ = ["OwnerTest", "blind_p_value", "run_version_test"]

_CHECK_LEVEL = 0.01
_RULE = (
    "A verdict is withheld where the published versions differ from the private ones without looking at the model, in "
    "length, in compressibility or in white space. Where they were drawn at random, that happens in at most 1% of runs."
)
_LAYOUT = ("dtype", "max_length", "long_texts")

CHECK_GUARANTEE = Guarantee(
    "P(the verdict is withheld) <= 1%",
    ("which version of each document was published was drawn uniformly at random, independently",),
    "finite-sample",
    "tdd.version_test on each feature in both directions, Bonferroni",
)
GUARANTEE_ROWS = [("tdd.run_version_test", "check of the draw", CHECK_GUARANTEE)]

_findings = logging.getLogger("tdd.findings")


@dataclasses.dataclass(frozen=True, repr=False)
class OwnerTest(Displayed):
    """A finished test of a data owner.

    Attributes:
      run: content of run.json, plain values.
      documents: column -> [n] values: document, score of its published version, mean_private, rank (private versions
        that the published one undercuts; -1 where a score is missing), num_private.
    """

    run: Mapping[str, Any]
    documents: Mapping[str, np.ndarray]

    @property
    def p_value(self) -> float:
        """The p-value, also where the verdict is withheld."""
        return self.run["result"]["p_value"]

    @property
    def verdict_stands(self) -> bool:
        """Whether no check speaks against the assumptions; where one does, `run["verdict"]["failed"]` says why."""
        return self.run["verdict"]["stands"]

    def save(self, folder: pathlib.Path) -> None:
        """Write documents.csv and run.json, then report.html, each whole or not at all."""
        write_run(folder, self.run, {"documents.csv": to_csv(self.documents)})
        self.write_page(folder)

    def report(self) -> Any:  # noqa: D102
        return report_module("owner").owner_report(self.run, self.documents)

    def _rows(self) -> dict[str, Any]:
        return dict(self.documents)


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

    All versions are scored together, and `tdd.version_test` decides. The draw is checked without the model: versions
    whose length, compressibility or white space tell the published ones were not drawn, and the verdict is withheld.

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
    if unknown := scoring.keys() - ScoreOptions.__annotations__.keys():
        raise InputError(f"run_version_test has no option {min(unknown)!r}")
    arrays.check_choice(test, tuple(GUARANTEES), "test")
    arrays.check_level(alpha)
    arrays.check_seed(seed)
    table = load_text_columns(
        documents, text_field=text_field, label_field=published_field, group_field=document_field, format=format
    )
    names, places = _places(table.groups, table.texts.labels)
    model = at_revision(model, scoring.pop("revision", None))
    provenance = provenance_of(model)
    options = {
        "score": score,
        "test": test,
        "alpha": alpha,
        **{name: str(scoring[name]) for name in _LAYOUT if scoring.get(name) is not None},
    }
    folder = None if out is None else pathlib.Path(out)
    if folder is not None:
        identity = {"model": provenance, "texts": table.texts.sha256, "places": places, "seed": seed, **options}
        open_run_folder(folder, fingerprint(identity), f"test of an owner of {provenance['name']}")
        scoring.setdefault("store", folder / "scoring")
    blind = blind_p_value(_features(table.texts.texts)[:, places])
    scored = score_texts(model, table.texts, score, **scoring)
    values = scored[score][places]
    result = version_test(values[:, 0], values[:, 1:], test=test, key=jax.random.key(seed))  # type: ignore[arg-type]
    facts = {name: float(getattr(result, name)) for name in ("p_value", "log_p_value", "log_smallest_p")}
    facts |= {"num_documents": int(result.num_shards), "num_missing": int(result.num_masked)}
    facts |= {"num_private": places.shape[1] - 1, "rejected": facts["p_value"] <= alpha}
    copies = sum(table.texts.texts[row[0]] in {table.texts.texts[i] for i in row[1:]} for row in places.tolist())
    failed = [] if blind > _CHECK_LEVEL else [_NOT_DRAWN.format(p=float(blind))]
    run = {
        "schema": SCHEMA,
        "kind": "versions",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "seed": seed,
        "options": options,
        "inputs": {"source": table.texts.source, "sha256": table.texts.sha256, "texts": len(table.texts)},
        "model": {**provenance, "scoring": dict(scored.provenance)},
        "outcome": _outcome(facts, alpha, failed, result.guarantee),
        "verdict": {"stands": not failed, "failed": failed, "rule": _RULE},
        "result": facts,
        "guarantee": result.guarantee,
        "checks": {"draw": {"p_value": float(blind), "level": _CHECK_LEVEL}},
        "warnings": _warnings(facts, alpha, copies),
        "open_points": [*_OPEN_POINTS],
    }
    for warning in (*failed, *run["warnings"]):
        _findings.warning("%s", warning)
    columns = {
        "document": np.asarray(names, object),
        "score": values[:, 0],
        "mean_private": values[:, 1:].mean(1),
        "rank": np.asarray(result.shard_ranks),
        "num_private": np.full(len(names), facts["num_private"]),
    }
    finished = OwnerTest(plain(run), columns)
    if folder is not None:
        finished.save(folder)
    return finished


_NOT_DRAWN = (
    "the published versions differ from the private ones without looking at the model (p = {p:.3g}), so they were not "
    "drawn at random from them"
)
_OPEN_POINTS = (
    "That the published versions were drawn at random, and the private ones kept private, is taken from their owner.",
    "A large p-value does not show that the model was trained without the documents.",
    "A small p-value does not say how they came into the training data, nor which of them did.",
)


def blind_p_value(features: Any) -> jax.Array:
    """P-value of the draw of the published versions, without a model.

    Args:
      features: [F, n, k + 1] features of the texts, those of the published version first.

    Returns:
      [] the smallest p-value of `tdd.version_test` over features and directions, times their number, at most 1. Valid
      if the published version of each document was drawn uniformly at random.
    """
    signed = [sign * values for values in jnp.asarray(features) for sign in (1, -1)]
    p_values = jnp.stack([version_test(values[:, 0], values[:, 1:]).p_value for values in signed])
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


def _outcome(facts: Mapping[str, Any], alpha: float, failed: Sequence[str], guarantee: Guarantee) -> str:
    """The verdict in a sentence or two."""
    if failed:
        return f"No verdict: {'; '.join(failed)}. A model may prefer such versions without having seen them."
    level, n = level_in_words(alpha), facts["num_documents"]
    if math.isnan(facts["p_value"]):
        return "Whether the model was trained on the published versions cannot be said: no p-value."
    p = f"p = {facts['p_value']:.3g}, level {level}, {n} documents"
    if not facts["rejected"]:
        return (
            f"No sign that the model was trained on the published versions was found ({p}). That does not show that it "
            "was trained without them."
        )
    how = "" if guarantee.kind == "finite-sample" else " in the limit of many documents"
    return (
        f"The model was trained on published versions ({p}). If they were drawn at random from all versions, a model "
        f"trained without them gives such a result with a probability of at most {level}{how}."
    )


def _warnings(facts: Mapping[str, Any], alpha: float, copies: int) -> list[str]:
    """What the reader must know."""
    warnings = []
    if facts["num_missing"]:
        warnings.append(f"{facts['num_missing']} documents have a version without a score and were left out")
    if facts["log_smallest_p"] > math.log(alpha):
        warnings.append(
            f"nothing can be found: with {facts['num_documents']} documents of {facts['num_private']} private versions "
            f"no p-value is below {math.exp(facts['log_smallest_p']):.3g}"
        )
    if copies:
        warnings.append(
            f"{copies} documents have a private version that is equal to the published one; such a version is not "
            "private, and counts against detection"
        )
    return warnings
