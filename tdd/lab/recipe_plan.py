"""From a recipe to texts: who is trained on what, what is audited, and what is true. Pure, seeded, no training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.lab.assign import assign_models, three_blocks, training_lists
from tdd.lab.canaries import canary_set
from tdd.lab.corpus import generate
from tdd.lab.plant import plant, take, truth_rows
from tdd.lab.plant_canaries import plant_canaries
from tdd.lab.recipe import AssignmentsDesign, BlocksDesign, CanariesDesign, MembersDesign, Recipe
from tdd.lab.truth import Row
from tdd.records import Texts
from tdd.texts import load_texts
from tdd.validate.recipes import check_enough

__all__ = ["Part", "Plan", "make_plan"]

_NONE = Texts(ids=(), texts=())


@dataclasses.dataclass(frozen=True)
class Part:
    """Texts whose loss is measured after training.

    Attributes:
      name: of the part, as "member" or a set's name.
      copies: of each text in the training data of the model.
      texts: the texts; whole documents for canary sets.
    """

    name: str
    copies: int
    texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that is decided before training.

    Attributes:
      training: one tuple of documents a model.
      truth: rows of the ground truth.
      audited: path of a file within the run's folder -> its rows (id, text and what is known).
      held_out: texts that no model is trained on, for the evaluation loss; may be empty.
      parts: one tuple of `Part` a model.
      tokenizer_texts: what a tokenizer is trained on.
      hashes: SHA-256 of the texts that the plan was made of, by name.
    """

    training: tuple[tuple[str, ...], ...]
    truth: tuple[Row, ...]
    audited: Mapping[str, tuple[Row, ...]]
    held_out: tuple[str, ...]
    parts: tuple[tuple[Part, ...], ...]
    tokenizer_texts: tuple[str, ...]
    hashes: Mapping[str, str]


def make_plan(recipe: Recipe) -> Plan:
    """Generate or read the texts of a recipe and assign them.

    Raises:
      InputError: a file that cannot be read as texts, or that holds fewer than the design needs.
    """
    design = recipe.plant
    if isinstance(design, CanariesDesign):
        return _canaries(recipe, design)
    if isinstance(design, MembersDesign):
        return _members(recipe, design)
    return _assignments(recipe, design) if isinstance(design, AssignmentsDesign) else _blocks(recipe, design)


def _members(recipe: Recipe, design: MembersDesign) -> Plan:
    sizes = {name: getattr(design, name) for name in ("members", "nonmembers", "calibration", "background")}
    pool = _pool(recipe, sum(sizes.values()))
    planted = plant(pool, **sizes, duplication=design.duplication, seed=recipe.seed_of("plant"))
    truth = truth_rows(planted)
    text_of = dict(zip(pool.ids, pool.texts, strict=True))
    groups: dict[tuple[str, int], list[str]] = {}
    for row in truth:
        name = {"calibration": "calibration", "background": "background"}.get(
            row["role"], "member" if row["label"] else "nonmember"
        )
        groups.setdefault((name, row["copies"]), []).append(text_of[row["id"]])
    order = ("calibration", "nonmember", "background", "member")
    parts = sorted(groups.items(), key=lambda entry: (order.index(entry[0][0]), entry[0][1]))
    return Plan(
        training=(planted.training.texts,),
        truth=truth,
        audited={"candidates.jsonl": _rows(planted.candidates), "calibration.jsonl": _rows(planted.calibration)},
        held_out=planted.calibration.texts,
        parts=(tuple(Part(name, copies, tuple(texts)) for (name, copies), texts in parts),),
        tokenizer_texts=_tokenizer_texts(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def _canaries(recipe: Recipe, design: CanariesDesign) -> Plan:
    background = _pool(recipe, design.background) if design.background else _NONE
    copies = dict(design.generated)
    sets = {name: canary_set(design.examples, seed=recipe.seed_of(f"set/{name}"), prefix=name) for name in copies}
    for name, given in design.sets.items():
        sets[name] = load_texts(recipe.place(given.file), text_field=given.text_field)
        copies[name] = given.copies
    planted = plant_canaries(
        sets,
        copies,
        background.texts,
        separator=design.separator,
        examples_per_document=design.examples_per_document,
        seed=recipe.seed_of("plant"),
    )
    documents = {name: (design.separator.join(examples.texts),) for name, examples in sets.items()}
    parts = [Part(name, copies[name], documents[name]) for name in sets]
    if len(background):
        parts.append(Part("background", 1, background.texts))
    own = [text for name in sets for text in documents[name]]
    return Plan(
        training=(planted.documents,),
        truth=tuple({**row, "file": f"canaries/{row['set']}.jsonl"} for row in planted.truth),
        audited={f"canaries/{name}.jsonl": _rows(examples) for name, examples in sets.items()},
        held_out=tuple(documents[name][0] for name in sets if copies[name] == 0),
        parts=(tuple(parts),),
        tokenizer_texts=_tokenizer_texts(
            recipe, (*background.texts, *own), also_examples=True, files=bool(design.sets)
        ),
        hashes={"corpus": background.sha256} | {f"sets/{name}": examples.sha256 for name, examples in sets.items()},
    )


def _assignments(recipe: Recipe, design: AssignmentsDesign) -> Plan:
    sizes = [design.items, design.calibration, design.known_members, design.background]
    pool = _pool(recipe, sum(sizes))
    order = np.random.default_rng(recipe.seed_of("plant")).permutation(sum(sizes))
    items, calibration, known, background = (
        take(pool, np.sort(part)) for part in np.split(order, np.cumsum(sizes)[:-1])
    )
    member = assign_models(items, design.models, share=design.share, seed=recipe.seed_of("assign"))
    shared = Texts(ids=known.ids + background.ids, texts=known.texts + background.texts)
    training = training_lists(items, member, background=shared, seed=recipe.seed_of("assign"))
    columns = [f"model-{model + 1}" for model in range(design.models)]
    roles = (("candidate", items), ("calibration", calibration), ("known_member", known), ("background", background))
    truth = []
    for role, texts in roles:
        for index, name in enumerate(texts.ids):
            seen = member[:, index] if role == "candidate" else np.full(design.models, role != "calibration")
            truth.append({"id": name, "role": role} | dict(zip(columns, map(int, seen), strict=True)))
    audited = {"candidates.jsonl": _rows(items, truth)}
    if design.calibration:
        audited["calibration.jsonl"] = _rows(calibration, truth)
    if design.known_members:
        audited["known_members.jsonl"] = _rows(known, truth)
    return Plan(
        training=tuple(texts.texts for texts in training),
        truth=tuple(truth),
        audited=audited,
        held_out=calibration.texts,
        parts=_parts_by_model(truth, pool, "role"),
        tokenizer_texts=_tokenizer_texts(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def _blocks(recipe: Recipe, design: BlocksDesign) -> Plan:
    pool = _pool(recipe, design.items + design.background)
    order = np.random.default_rng(recipe.seed_of("plant")).permutation(len(pool))
    items, background = (take(pool, np.sort(part)) for part in np.split(order, [design.items]))
    blocks = three_blocks(
        items,
        num_models=design.models,
        calibration=design.calibration,
        remainder=design.remainder,
        share=design.share,
        background=background,
        seed=recipe.seed_of("blocks"),
    )
    columns = [f"model-{model + 1}" for model in range(design.models)]
    truth = (
        *blocks.truth,
        *({"id": name, "block": "background"} | dict.fromkeys(columns, 1) for name in background.ids),
    )
    candidates = np.random.default_rng(recipe.seed_of("candidates")).permutation(
        [index for index, row in enumerate(blocks.truth) if row["block"] != "calibration"]
    )
    return Plan(
        training=tuple(texts.texts for texts in blocks.training),
        truth=truth,
        audited={
            "candidates.jsonl": _rows(take(items, candidates), truth),
            "calibration.jsonl": _rows(blocks.calibration, truth),
        },
        held_out=blocks.clean.texts,
        parts=_parts_by_model(truth, pool, "block"),
        tokenizer_texts=_tokenizer_texts(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def _pool(recipe: Recipe, count: int) -> Texts:
    """The first texts of the corpus, as many as the design needs."""
    corpus = recipe.corpus
    if corpus.file is not None:
        texts = load_texts(recipe.place(corpus.file), text_field=corpus.text_field, id_field=corpus.id_field)
        check_enough(corpus.file, len(texts), count, "texts")
        return take(texts, np.arange(count))
    make = generate if corpus.generator == "documents" else canary_set
    return make(count, seed=recipe.seed_of("corpus"))


def _tokenizer_texts(
    recipe: Recipe, own: tuple[str, ...], *, also_examples: bool = False, files: bool = False
) -> tuple[str, ...]:
    """Texts of the same kinds as the recipe's that are in no part of it; with texts from files, all texts alike."""
    if recipe.corpus.file is not None or files:
        return tuple(own)
    seed, count = recipe.seed_of("tokenizer"), recipe.tokenizer.texts
    if recipe.corpus.generator == "examples":
        return canary_set(count, seed=seed).texts
    if not also_examples:
        return generate(count, seed=seed).texts
    return generate(count - count // 2, seed=seed).texts + canary_set(max(1, count // 2), seed=seed).texts


def _rows(texts: Texts, truth: Any = ()) -> tuple[Row, ...]:
    """Rows of a file of texts: id, text, and what is known: label, and a column for each model where there are any."""
    known = {row["id"]: {key: row[key] for key in row if key.startswith("model-")} for row in truth}
    rows = []
    for index, (name, text) in enumerate(zip(texts.ids, texts.texts, strict=True)):
        label = {"label": texts.labels[index]} if texts.labels else {}
        models = known.get(name, {})
        if models:
            label = {"label": max(models.values())}
        rows.append({"id": name, "text": text} | label | models)
    return tuple(rows)


def _parts_by_model(truth: Any, pool: Texts, column: str) -> tuple[tuple[Part, ...], ...]:
    """The texts of each role or block that a model was trained on, and those that it was not."""
    text_of = dict(zip(pool.ids, pool.texts, strict=True))
    models = [key for key in truth[0] if key.startswith("model-")]
    found = []
    for model in models:
        groups: dict[tuple[str, int], list[str]] = {}
        for row in truth:
            groups.setdefault((row[column], row[model]), []).append(text_of[row["id"]])
        found.append(tuple(Part(name, copies, tuple(texts)) for (name, copies), texts in sorted(groups.items())))
    return tuple(found)
