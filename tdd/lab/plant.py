"""Planting: what a model, or each of several, is trained on, what calibrates, what is audited; at random."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tdd.lab.checks import check_count, check_range, check_texts
from tdd.records import Texts
from tdd.texts import hash_texts
from tdd.validate import InputError

Row = Mapping[str, Any]
"""One row of a ground truth: a planted text or set as plain values."""

Role = Literal["candidate", "calibration", "background"]
"""Candidates are audited; calibration texts are known non-members; background texts are only trained on."""

_ASSIGN, _ORDER, _DIVIDE = 1, 2, 3
"""Second number of a random stream's seed, by its use."""


class Planted(NamedTuple):
    """A random assignment of texts."""

    # the training texts: the candidates of label 1, each as often as it is duplicated, and the background, in random
    # order. The second copy of a text has the identifier `ID#2`, the third `ID#3`, ...
    training: Texts
    calibration: Texts  # non-members for calibration; labels all 0
    candidates: Texts  # members (label 1) and non-members (label 0) in random order
    # one row per assigned text in the order of the input: id, role, label, copies (in the training data)
    truth: tuple[Row, ...]


def plant(
    texts: Texts,
    *,
    members: int,
    nonmembers: int,
    calibration: int,
    background: int = 0,
    duplication: int | Sequence[int] = 1,
    seed: int,
) -> Planted:
    """Assign texts to their parts by one random permutation.

    Every text is equally likely to get any part, so calibration texts and the candidates that are not members
    are exchangeable: conformal p-values of the latter are super-uniform whatever the model and the score.
    Texts beyond the sum of the parts are left out.

    Args:
      texts: The pool.
      members: Number of candidates that are trained on.
      nonmembers: Number of candidates that are not.
      calibration: Number of further texts that are not trained on.
      background: Number of further texts that are trained on but not audited.
      duplication: Copies of each member in the training data, or several such numbers, dealt out in turn to the
        members in random order: (1, 10) gives half of the members one copy and half ten. Background texts have one.
      seed: Random seed of the permutation; the parts do not depend on `duplication`.

    Raises:
      InputError: A part is negative, members, nonmembers or calibration are 0, a number of copies is not a positive
        whole number, or the pool is too small.
    """
    counts = {"members": members, "nonmembers": nonmembers, "calibration": calibration}
    for name, count in counts.items():
        check_count(name, count, minimum=1)
    check_count("background", background, minimum=0)
    check_count("seed", seed, minimum=0)
    dealt = check_copies("duplication", duplication, minimum=1)
    counts["background"] = background
    requested = sum(counts.values())
    if requested > len(texts):
        listed = " + ".join(f"{name}={count}" for name, count in counts.items())
        raise InputError(f"{listed} asks for {requested} texts, but texts holds {len(texts)}")

    rng = np.random.default_rng(seed)
    bounds = np.cumsum([0, *counts.values()])
    order = rng.permutation(len(texts))
    part = {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(counts)}
    labels = np.zeros(len(texts), int)
    labels[part["members"]] = labels[part["background"]] = 1
    copies = labels.copy()
    copies[part["members"]] = np.resize(dealt, members)
    candidates = rng.permutation(np.concatenate([part["members"], part["nonmembers"]]))
    trained = np.concatenate([part["members"], part["background"]])
    training = rng.permutation(np.repeat(trained, copies[trained]))

    role: dict[int, Role] = dict.fromkeys(candidates.tolist(), "candidate")
    role |= dict.fromkeys(part["calibration"].tolist(), "calibration")
    role |= dict.fromkeys(part["background"].tolist(), "background")
    truth = tuple(
        {"id": texts.ids[index], "role": role[index], "label": int(labels[index]), "copies": int(copies[index])}
        for index in sorted(role)
    )
    return Planted(
        training=take(texts, training, labels),
        calibration=take(texts, part["calibration"], labels),
        candidates=take(texts, candidates, labels),
        truth=truth,
    )


def assign_models(texts: Texts, num_models: int, *, share: float | Sequence[float] = 0.5, seed: int) -> np.ndarray:
    """Draw for each model, independently of the others, a random fraction of the texts to be trained on.

    Model k gets ⌊share·N + 1/2⌋ of the N texts, every subset of that size equally likely, from a stream of its own:
    another number of models changes nothing for the first ones.

    Args:
      texts: The N texts.
      num_models: K.
      share: Fraction of the texts that a model is trained on, 0..1; one number for all models, or one for each, as
        (0.3, 0, 0, 0) for one contaminated model among four.
      seed: Random seed of the assignment.

    Returns:
      [K, N] bool, True where the model is trained on the text.

    Raises:
      InputError: No text, no model, or a fraction outside 0..1.
    """
    check_count("num_models", num_models, minimum=1)
    check_count("seed", seed, minimum=0)
    check_texts("texts", texts.texts)
    member = np.zeros((num_models, len(texts)), bool)
    for model, fraction in enumerate(check_shares("share", share, num_models)):
        order = np.random.default_rng([seed, _ASSIGN, model]).permutation(len(texts))
        member[model, order[: math.floor(fraction * len(texts) + 0.5)]] = True
    return member


def training_lists(
    texts: Texts, member: np.ndarray, *, background: Texts | None = None, seed: int
) -> tuple[Texts, ...]:
    """The training texts of each model: those assigned to it and the background, each model's in its own random order.

    `member` is [K, N] bool; the identifiers of the background differ from those of the texts. Returns K `Texts`,
    empty for a model that is trained on nothing.
    """
    shared = Texts(ids=(), texts=()) if background is None else background
    pool = Texts(ids=texts.ids + shared.ids, texts=texts.texts + shared.texts, source=texts.source)
    in_background = np.arange(len(texts), len(pool))
    lists = []
    for model, row in enumerate(member):
        trained = np.concatenate([np.flatnonzero(row), in_background])
        lists.append(take(pool, np.random.default_rng([seed, _ORDER, model]).permutation(trained)))
    return tuple(lists)


class ThreeBlocks(NamedTuple):
    """K models and three blocks of texts."""

    calibration: Texts  # texts that every model is trained on
    remainder: Texts  # texts of which each model is trained on its own random fraction
    clean: Texts  # texts that no model is trained on
    member: np.ndarray  # [K, N] bool, True where the model is trained on the text; columns in the order of the input
    training: tuple[Texts, ...]  # K `Texts`, the training texts of each model in random order
    # one row per text in the order of the input: id, block, label, model-1 .. model-K (1 trained on, else 0)
    truth: tuple[Row, ...]


def three_blocks(
    texts: Texts,
    *,
    num_models: int,
    calibration: float = 0.3,
    remainder: float = 0.1,
    share: float | Sequence[float] = 0.5,
    background: Texts | None = None,
    seed: int,
) -> ThreeBlocks:
    """Divide texts at random into calibration, remainder and clean, and assign training texts to each of K models.

    All models are trained on ⌊calibration·N⌋ texts, each model on its own random fraction `share` of ⌊remainder·N⌋
    others (`assign_models`), and none on the rest. The texts to be audited are those of remainder and clean. A text of
    the remainder that model k was trained on is exchangeable with the calibration texts for model k.

    Args:
      texts: The N texts.
      num_models: K.
      calibration: Fraction of the texts known to be in the training data of all models, above 0.
      remainder: Fraction of the texts that some models are trained on.
      share: Fraction of the remainder that a model is trained on; one number, or one for each model.
      background: Further texts that all models are trained on; not audited, and in no row of the truth.
      seed: Random seed of division and assignment.

    Raises:
      InputError: Fractions outside 0..1 or with a sum of 1 or more, a block without a text, no model.

    References: the experiments of the JECS paper (calibration .3, remainder .1, share .5).
    """
    check_count("num_models", num_models, minimum=1)
    check_count("seed", seed, minimum=0)
    for name, value in (("calibration", calibration), ("remainder", remainder)):
        check_range(name, value, 0.0, 1.0)
    # rounded first: .3 · 10 is 2.9999999999999996 in binary
    sizes = [math.floor(round(fraction * len(texts), 6)) for fraction in (calibration, remainder)]
    for name, size, fraction in zip(("calibration", "remainder"), sizes, (calibration, remainder), strict=True):
        if size < 1:
            raise InputError(f"{name}={fraction:g} of {len(texts)} texts is none; raise it, or give more texts")
    if sum(sizes) >= len(texts):
        raise InputError(
            f"calibration={calibration:g} and remainder={remainder:g} leave no clean text of {len(texts)}; lower one"
        )
    order = np.random.default_rng([seed, _DIVIDE]).permutation(len(texts))
    known, some, none = np.split(order, np.cumsum(sizes))
    member = np.zeros((num_models, len(texts)), bool)
    member[:, known] = True
    member[:, some] = assign_models(take(texts, some), num_models, share=share, seed=seed)
    block = dict.fromkeys(known.tolist(), "calibration") | dict.fromkeys(some.tolist(), "remainder")
    truth = tuple(
        labelled({"id": name, "block": block.get(index, "clean")}, member[:, index].astype(int).tolist())
        for index, name in enumerate(texts.ids)
    )
    return ThreeBlocks(
        calibration=take(texts, known),
        remainder=take(texts, some),
        clean=take(texts, none),
        member=member,
        training=training_lists(texts, member, background=background, seed=seed),
        truth=truth,
    )


class PlantedCanaries(NamedTuple):
    """Training documents with sets of examples among them."""

    # the training documents in random order: the background, and each set's documents, repeated as often as the set
    # is duplicated
    documents: tuple[str, ...]
    truth: tuple[Row, ...]  # one row per set: set, num_examples, copies


def plant_canaries(
    sets: Mapping[str, Texts],
    duplication: Mapping[str, int],
    background: Sequence[str],
    *,
    separator: str = "\n\n",
    examples_per_document: int | None = None,
    seed: int,
) -> PlantedCanaries:
    """Join the examples of each set, in the order given, into documents, and mix their copies into the background.

    The order within a set is kept: it is the canonical order that the exchangeability test looks for. A set of 0
    copies is planted nowhere; it is in the truth, and shows the size of the test.

    Args:
      sets: Name -> its examples in canonical order.
      duplication: Name -> number of copies of the set in the training data, 0 or more; the same names.
      background: Other documents, one copy each; may be empty if some set is planted.
      separator: String between two examples of a document; the test must use the same one.
      examples_per_document: Number of consecutive examples in a document, or None for one document per set.
      seed: Random seed of the order of the documents.

    Raises:
      InputError: No set, an empty example, different names in `sets` and `duplication`, a negative number of copies,
        an empty separator, or nothing to train on.
    """
    _check_canaries(sets, duplication, separator)
    check_count("seed", seed, minimum=0)
    if examples_per_document is not None:
        check_count("examples_per_document", examples_per_document, minimum=1)
    documents = list(background)
    for name, examples in sets.items():
        size = examples_per_document or len(examples)
        joined = [separator.join(examples.texts[start : start + size]) for start in range(0, len(examples), size)]
        documents += joined * duplication[name]
    check_count("the number of training documents", len(documents), minimum=1)
    order = np.random.default_rng(seed).permutation(len(documents))
    return PlantedCanaries(
        documents=tuple(documents[index] for index in order),
        truth=tuple(
            {"set": name, "num_examples": len(examples), "copies": int(duplication[name])}
            for name, examples in sets.items()
        ),
    )


def _check_canaries(sets: Mapping[str, Any], duplication: Mapping[str, int], separator: str) -> None:
    """Every set has a number of copies and no other number is given; the separator is a non-empty string."""
    if not sets:
        raise InputError("sets is empty; give at least one set of examples")
    for name in sorted(sets.keys() ^ duplication.keys()):
        where, other = ("sets", "duplication") if name in sets else ("duplication", "sets")
        raise InputError(f"{where} names {name!r}, but {other} does not; name the same sets in both")
    for name, count in duplication.items():
        check_count(f"duplication[{name!r}]", count, minimum=0)
        check_texts(f"sets[{name!r}]", sets[name].texts)
    if not isinstance(separator, str) or not separator:
        raise InputError(f"separator must be a non-empty text, got {separator!r}")


def labelled(row: Row, trained: Sequence[int]) -> Row:
    """A row of the truth with its label, 1 if any model was trained on the text, and a column for each model."""
    columns = {f"model-{model}": value for model, value in enumerate(trained, start=1)}
    return {**row, "label": max(trained)} | columns


def csv_bytes(rows: Sequence[Row]) -> bytes:
    """Rows as CSV in UTF-8 with the keys of the first one as header; every row has the same keys."""
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return content.getvalue().encode()


def jsonl_bytes(rows: Iterable[Row]) -> bytes:
    """Rows as JSON lines in UTF-8."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def take(texts: Texts, indices: np.ndarray, labels: np.ndarray | None = None) -> Texts:
    """The texts at `indices`, in that order, with their labels; later copies of a text get an `ID#2`, `ID#3`, ..."""
    seen: dict[int, int] = {}
    ids = []
    for index in indices.tolist():
        seen[index] = seen.get(index, 0) + 1
        ids.append(texts.ids[index] if seen[index] == 1 else f"{texts.ids[index]}#{seen[index]}")
    taken = tuple(texts.texts[index] for index in indices)
    return Texts(
        ids=tuple(ids),
        texts=taken,
        labels=() if labels is None else tuple(int(labels[index]) for index in indices),
        source=texts.source,
        sha256=hash_texts(ids, taken),
    )


def check_copies(name: str, value: object, *, minimum: int) -> tuple[int, ...]:
    """Numbers of copies: one whole number, or a non-empty sequence of them."""
    counts = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,)
    if not counts:
        raise InputError(f"{name} is empty; give at least one number of copies")
    for index, count in enumerate(counts):
        check_count(name if len(counts) == 1 else f"{name}[{index}]", count, minimum=minimum)
    return tuple(int(count) for count in counts)  # type: ignore[arg-type]


def check_shares(name: str, value: object, count: int) -> tuple[float, ...]:
    """A fraction in 0..1 for each of `count` models: one number for all, or one for each."""
    shares = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,) * count
    if len(shares) != count:
        raise InputError(f"{name} holds {len(shares)} numbers for {count} models; give one number, or one a model")
    for index, share in enumerate(shares):
        check_range(f"{name}[{index}]" if isinstance(value, Sequence) else name, share, 0.0, 1.0)
    return tuple(float(share) for share in shares)  # type: ignore[arg-type]
