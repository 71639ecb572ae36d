"""`tdd.run_version_test`: published versions of an owner's documents beside private ones."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from tdd.audit.owner import (
    CHECK_LEVEL,
    Kind,
    OwnerOptions,
    OwnerTest,
    few_for_t,
    nothing_can_be_found,
    numbers,
    start_test,
)
from tdd.audit.sampling import SLACK
from tdd.procedures.owner import VERSION_GUARANTEES, version_test
from tdd.records import Guarantee
from tdd.scoring.scores.score import Score
from tdd.texts import load_text_columns
from tdd.texts.words import unusual_space
from tdd.validate import InputError, arrays
from tdd.validate.settings import on_own_devices

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
]

_VERSIONS = Kind(
    "versions",
    "the published versions",
    "each was drawn at random from all versions of its document",
    "them",
    "the published versions can be told from the private ones without the model (p = {p}), which speaks "
    "against a draw at random",
    "A verdict is withheld where the published versions can be told from the private ones without the model, by their "
    "length, compressibility or white space. Where they were drawn at random, that happens in at most 1% of runs.",
    (
        "That the published versions were drawn at random, and the private ones kept private, is taken from their "
        "owner.",
        "A large p-value does not show that the model was trained without the documents.",
        "A small p-value does not say how they came into the training data, nor which of them did.",
    ),
)


_FEATURES = (
    ("their length", "{:,.0f} characters"),
    ("their compressibility", "{:.3f} compressed bytes per character"),
    ("their white space", "{:.2%} unusual white space"),
)
"""Rows of `_features`: what each is called, and how its mean is written."""


@on_own_devices()
def run_version_test(
    model: Any,
    documents: Any,
    *,
    document_field: str = "document",
    published_field: str = "published",
    text_field: str | None = None,
    format: str | None = None,
    score: str | Score = "loss",
    test: str = "rank_sum",
    alpha: float = 0.05,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    **options: Unpack[OwnerOptions],
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
      **options: revision of the model, and how to run; see `tdd.Run`.

    Raises:
      InputError: a document without one published version, documents with different numbers of private versions,
        anything else that cannot be used.

    Cost: one pass over all versions.
    """
    arrays.check_choice(test, tuple(VERSION_GUARANTEES), "test")
    fields = {"label_field": published_field, "group_field": document_field}
    try:
        table = load_text_columns(documents, text_field=text_field, format=format, **fields)
    except InputError as error:
        said = str(error).replace("label_field", "published_field").replace("group_field", "document_field")
        said = said.replace("the label at", "the published field at").replace("group column", "document field")
        said = said.replace("(member) or 0 (non-member)", "(published) or 0 (not)")
        raise InputError(said) from None
    names, places = _places(table.groups, table.texts.labels)
    start = start_test(_VERSIONS, model, table.texts, score, test, alpha, seed, out, options, [*table.groups])
    features = _features(table.texts.texts)[:, places]
    check = float(blind_p_value(features))
    (scored,) = start.scores().values()
    values = scored[places]
    result = version_test(values[:, 0], values[:, 1:], test=test, key=arrays.key_of_seed(seed))  # type: ignore[arg-type]
    facts = numbers(result, alpha)
    facts |= {"num_documents": int(result.num_shards), "num_missing": int(result.num_masked)}
    facts["num_private"] = places.shape[1] - 1
    warnings = _told_apart(features) if check <= CHECK_LEVEL * SLACK else []
    warnings += few_for_t("documents", facts["num_documents"]) if test == "t" else []
    warnings += _version_warnings(facts, alpha, table.texts.texts, places)
    rows = {
        "document": np.asarray(names, object),
        "score": values[:, 0],
        "mean_private": values[:, 1:].mean(1),
        "rank": np.asarray(result.shard_ranks),
        "num_private": np.full(len(names), facts["num_private"]),
    }
    return start.finish(facts, result.guarantee, check, warnings, rows)


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


def _told_apart(features: np.ndarray) -> list[str]:
    """The feature that tells the published versions from the private ones most clearly, with its means."""
    p_values = [float(blind_p_value(one[None])) for one in features]
    clearest = int(np.argmin(p_values))
    name, form = _FEATURES[clearest]
    published, private = (form.format(float(part.mean())) for part in np.split(features[clearest], [1], axis=1))
    return [f"the published versions differ from the private ones in {name}: {published} on average, against {private}"]


def _features(texts: Sequence[str]) -> np.ndarray:
    """[3, N]: characters, compressed bytes per character, fraction of unusual white space."""
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


def _version_warnings(facts: Mapping[str, Any], alpha: float, texts: Sequence[str], places: np.ndarray) -> list[str]:
    """What the reader must know."""
    warnings = []
    if facts["num_missing"]:
        warnings.append(f"{facts['num_missing']} documents have a version without a score and were left out")
    if facts["log_smallest_p"] > math.log(alpha) + 1e-5:
        warnings.append(nothing_can_be_found(math.exp(facts["log_smallest_p"]), alpha))
    if copies := sum(texts[row[0]] in {texts[i] for i in row[1:]} for row in places.tolist()):
        warnings.append(
            f"{copies} documents have a private version that is equal to the published one; such a version is not "
            "private, and counts against detection"
        )
    return warnings
