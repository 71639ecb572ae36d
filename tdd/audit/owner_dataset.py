"""`tdd.run_dataset_inference`: a set of texts beside a set of the same owner that was kept back."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from tdd.audit.blind_baseline import GUARANTEE as BLIND
from tdd.audit.blind_baseline import blind_baseline
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
from tdd.audit.preparation import preparation
from tdd.procedures import owner as procedures
from tdd.records import Texts
from tdd.scoring.score import Scoring
from tdd.texts import hash_texts, load_text_columns
from tdd.validate import InputError, arrays
from tdd.validate.settings import on_own_devices

GUARANTEE_ROWS = [("tdd.run_dataset_inference", "blind baseline", BLIND)]

_ROLES = ("held-out texts", "suspect texts")
DATASET_SCORES = ("loss", "min_k", "min_k_plus_plus", "zlib")

_DATASET = Kind(
    "dataset",
    "the suspect texts",
    "suspect and held-out texts are of one kind, as if divided at random",
    "either",
    "suspect and held-out texts can be told apart without the model (p = {p}), which speaks against exchangeability",
    "A verdict is withheld where a set holds copies of its own texts, and where marks of their preparation, or words "
    "and length alone, tell the suspect texts from the held-out ones without the model. Where they are exchangeable, "
    "the latter happens in at most 1% of runs.",
    (
        "That the held-out texts were kept from the training data is taken from their owner.",
        "That both sets are of one kind, date, source and preparation cannot be shown, only contradicted.",
        "A large p-value does not show that the model was trained without the suspect texts.",
        "A small p-value does not say which of them are in the training data, nor how many.",
    ),
)


@on_own_devices()
def run_dataset_inference(
    model: Any,
    suspect: Any,
    heldout: Any,
    *,
    score: Scoring = DATASET_SCORES,
    test: str = "permutation",
    num_splits: int = 10,
    alpha: float = 0.05,
    text_field: str | None = None,
    group_field: str | None = None,
    format: str | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    **options: Unpack[OwnerOptions],
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
      **options: revision of the model, and how to run; see `tdd.Run`.

    Raises:
      InputError: fewer than four texts (or groups) with all scores in a set, a group or every suspect text in both
        sets, anything else that cannot be used.

    Cost: one pass over all texts, and the test's own; see `tdd.dataset_inference`.
    """
    arrays.check_choice(test, tuple(procedures.DATASET_GUARANTEES), "test")
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
    start = start_test(_DATASET, model, texts, score, test, alpha, seed, out, options, decides)
    units_named = (groups[1], groups[0]) if group_field else None
    compared: dict[str, Any] = {"seed": seed, "groups": units_named, "level": CHECK_LEVEL / 2, "roles": _ROLES}
    seen = [check(sets[1], sets[0], **compared) for check in (preparation, blind_baseline)]
    scores = start.scores()
    panels = np.split(np.stack([*scores.values()]), [len(sets[0])], axis=1)
    units = [group_means(panel, own) for panel, own in zip(panels, groups, strict=True)] if group_field else panels
    result = procedures.dataset_inference(
        *units,
        key=arrays.key_of_seed(seed),
        test=test,  # type: ignore[arg-type]
        num_splits=num_splits,
    )
    facts = numbers(result, alpha)
    facts |= {"num_suspect": int(result.num_suspect), "num_heldout": int(result.num_heldout)}
    facts |= {"unit": "group" if group_field else "text"}
    facts |= {"auc": float(result.statistic), "num_splits": num_splits}
    facts["weights"] = dict(zip(scores, np.asarray(result.weights).tolist(), strict=True))
    facts["reversed"] = facts["rejected"] and not bool(result.toward_members)
    facts["rejected"] &= not facts["reversed"]
    if test == "permutation":
        sizes = facts["num_suspect"], facts["num_heldout"]
        facts["log_smallest_p"] = procedures.log_smallest_p(*sizes, num_splits=num_splits)
    warnings = [one.warning for one in seen if one.warning]
    if test == "t":
        warnings += few_for_t(f"{facts['unit']}s of each set", min(facts["num_suspect"], facts["num_heldout"]))
    warnings += _dataset_warnings(facts, alpha, sets, sum(panel.shape[1] for panel in units))
    rows = {"id": np.array([name for one in sets for name in one.ids], object)}
    rows["role"] = np.repeat(np.array(["suspect", "heldout"], object), [len(one) for one in sets])
    if group_field:
        rows["group"] = np.array([name for own in groups for name in own], object)
    p_value = min(1.0, 2 * min(one.p_value for one in seen))
    unchecked = [one.unchecked for one in seen if one.unchecked]
    return start.finish(
        facts, result.guarantee, p_value, warnings, {**rows, **scores}, unchecked, _copies(sets, groups)
    )


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
    if {*sets[0].texts} <= {*sets[1].texts}:
        raise InputError(
            f"suspect: each of the {len(sets[0])} texts is a held-out text too; give others in one of them"
        )
    for name, one, own in zip(("suspect", "heldout"), sets, groups, strict=True):
        count, kind = (len({*own}), "groups") if own else (len(one), "texts")
        if count < procedures.FEWEST:
            raise InputError(f"{name} needs at least {procedures.FEWEST} {kind}, got {count}")


def _copies(sets: Sequence[Texts], groups: Sequence[Sequence[str]]) -> list[str]:
    """What withholds the verdict of sets that hold a text twice."""
    found = []
    for role, one, own in zip(("suspect", "held-out"), sets, groups, strict=True):
        held = {*zip(one.texts, own, strict=True)} if own else one.texts  # a group may repeat its own texts
        if copies := len(held) - len({*one.texts}):
            found.append(
                f"{copies} {role} texts are copies of others in their set, which are not exchangeable one by one, so "
                "that the p-value may be too small; remove them"
            )
    return found


def _dataset_warnings(facts: Mapping[str, Any], alpha: float, sets: Sequence[Texts], num_units: int) -> list[str]:
    """What the reader must know."""
    warnings = []
    if copies := len({*sets[0].texts} & {*sets[1].texts}):
        warnings.append(f"{copies} texts are in both sets; they cannot tell them apart, and cost power")
    if facts["log_smallest_p"] > math.log(alpha) + 1e-5:
        warnings.append(nothing_can_be_found(math.exp(facts["log_smallest_p"]), alpha))
    if facts["reversed"]:
        warnings.append(
            "held-out texts have the lower scores: perhaps the two files were exchanged, or they are not of one kind"
        )
    if missing := num_units - facts["num_suspect"] - facts["num_heldout"]:
        warnings.append(f"{missing} {facts['unit']}s lack a score and were left out")
    return warnings
