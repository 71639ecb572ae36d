"""From a recipe to texts: what each model is trained on, what is audited, and the truth. Pure, seeded, no training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tdd.lab.corpus import canary_set, generate
from tdd.lab.plant import Row, assign_models, labelled, plant, plant_canaries, take, three_blocks, training_lists
from tdd.lab.recipe import AssignmentsDesign, BlocksDesign, CanariesDesign, Corpus, FileSet, MembersDesign, Recipe
from tdd.records import Texts
from tdd.texts import load_texts, read_rows
from tdd.texts.templates import with_text
from tdd.validate import InputError


@dataclasses.dataclass(frozen=True)
class Part:
    """Texts whose loss is measured after training."""

    name: str  # "member", another role, or a set's name
    copies: int  # number of copies of each text in the training data of the model
    texts: tuple[str, ...]  # the texts; whole documents for canary sets


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that is decided before training."""

    training: tuple[tuple[str, ...], ...]  # one tuple of documents for each model
    truth: tuple[Row, ...]  # rows of the ground truth
    # path of a file within the run's folder -> its rows (id, text and what is known)
    audited: Mapping[str, tuple[Row, ...]]
    held_out: tuple[str, ...]  # texts that no model is trained on, for the evaluation loss; may be empty
    parts: tuple[tuple[Part, ...], ...]  # one tuple of `Part` for each model
    tokenizer_texts: tuple[str, ...]  # training texts of the tokenizer
    hashes: Mapping[str, str]  # name -> SHA-256 of the texts that the plan was made of


def make_plan(recipe: Recipe) -> Plan:
    """Generate or read the texts of a recipe and assign them.

    Raises:
      InputError: A file that cannot be read as texts, or that holds fewer than the design needs.
    """
    plans = {
        CanariesDesign: _plan_canaries,
        MembersDesign: _plan_members,
        AssignmentsDesign: _plan_assignments,
        BlocksDesign: _plan_blocks,
    }
    return plans[type(recipe.plant)](recipe, recipe.plant)


def _plan_members(recipe: Recipe, design: MembersDesign) -> Plan:
    """One model and members among candidates; parts by role and number of copies."""
    sizes = {name: getattr(design, name) for name in ("members", "nonmembers", "calibration", "background")}
    pool = _pool(recipe, sum(sizes.values()))
    planted = plant(pool, **sizes, duplication=design.duplication, seed=recipe.seed_of("plant"))
    text_of = dict(zip(pool.ids, pool.texts, strict=True))
    groups: dict[tuple[str, int], list[str]] = {}
    for row in planted.truth:
        name = ("member" if row["label"] else "nonmember") if row["role"] == "candidate" else row["role"]
        groups.setdefault((name, row["copies"]), []).append(text_of[row["id"]])
    order = ("calibration", "nonmember", "background", "member")
    parts = sorted(groups.items(), key=lambda entry: (order.index(entry[0][0]), entry[0][1]))
    return Plan(
        training=(planted.training.texts,),
        truth=planted.truth,
        audited={"candidates.jsonl": _rows(planted.candidates), "calibration.jsonl": _rows(planted.calibration)},
        held_out=planted.calibration.texts,
        parts=(tuple(Part(name, copies, tuple(texts)) for (name, copies), texts in parts),),
        tokenizer_texts=_tokenizer_texts(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def _plan_canaries(recipe: Recipe, design: CanariesDesign) -> Plan:
    """One model and whole sets in canonical order; sets of 0 copies are held out."""
    background = _pool(recipe, design.background) if design.background else Texts(ids=(), texts=())
    copies = dict(design.generated)
    sets = {name: canary_set(design.examples, seed=recipe.seed_of(f"set/{name}"), prefix=name) for name in copies}
    for name, given in design.sets.items():
        sets[name] = _read(recipe, given)
        copies[name] = given.copies
    planted = plant_canaries(
        sets,
        copies,
        background.texts,
        separator=design.separator,
        examples_per_document=design.examples_per_document,
        seed=recipe.seed_of("plant"),
    )
    documents = {name: design.separator.join(examples.texts) for name, examples in sets.items()}
    parts = [Part(name, copies[name], (document,)) for name, document in documents.items()]
    if len(background):
        parts.append(Part("background", 1, background.texts))
    return Plan(
        training=(planted.documents,),
        truth=tuple({**row, "file": f"canaries/{row['set']}.jsonl"} for row in planted.truth),
        audited={f"canaries/{name}.jsonl": _rows(examples) for name, examples in sets.items()},
        held_out=tuple(document for name, document in documents.items() if copies[name] == 0),
        parts=(tuple(parts),),
        tokenizer_texts=_tokenizer_texts(recipe, (*background.texts, *documents.values())),
        hashes={"corpus": background.sha256} | {f"sets/{name}": examples.sha256 for name, examples in sets.items()},
    )


def _plan_assignments(recipe: Recipe, design: AssignmentsDesign) -> Plan:
    """K models, each trained on its own random items; parts by role and by whether the model was trained on them."""
    sizes = [design.items, design.calibration, design.known_members, design.background]
    pool = _pool(recipe, sum(sizes))
    order = np.random.default_rng(recipe.seed_of("plant")).permutation(sum(sizes))
    items, calibration, known, background = (
        take(pool, np.sort(part)) for part in np.split(order, np.cumsum(sizes)[:-1])
    )
    member = assign_models(items, design.models, share=design.share, seed=recipe.seed_of("assign"))
    shared = Texts(ids=known.ids + background.ids, texts=known.texts + background.texts)
    training = training_lists(items, member, background=shared, seed=recipe.seed_of("assign"))
    roles = (("candidate", items), ("calibration", calibration), ("known_member", known), ("background", background))
    truth = []
    for role, texts in roles:
        for index, name in enumerate(texts.ids):
            trained = member[:, index] if role == "candidate" else np.full(design.models, role != "calibration")
            truth.append(labelled({"id": name, "role": role}, [int(value) for value in trained]))
    audited = {"candidates.jsonl": items, "calibration.jsonl": calibration, "known_members.jsonl": known}
    return Plan(
        training=tuple(texts.texts for texts in training),
        truth=tuple(truth),
        audited={name: _rows(texts, truth) for name, texts in audited.items() if len(texts)},
        held_out=calibration.texts,
        parts=_parts_by_model(truth, pool, "role", design.models),
        tokenizer_texts=_tokenizer_texts(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def _plan_blocks(recipe: Recipe, design: BlocksDesign) -> Plan:
    """K models and three blocks; the candidates are remainder and clean, in random order."""
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
    everywhere = [1] * design.models
    truth = [*blocks.truth, *(labelled({"id": name, "block": "background"}, everywhere) for name in background.ids)]
    candidates = np.random.default_rng(recipe.seed_of("candidates")).permutation(
        [index for index, row in enumerate(blocks.truth) if row["block"] != "calibration"]
    )
    return Plan(
        training=tuple(texts.texts for texts in blocks.training),
        truth=tuple(truth),
        audited={
            "candidates.jsonl": _rows(take(items, candidates), truth),
            "calibration.jsonl": _rows(blocks.calibration, truth),
        },
        held_out=blocks.clean.texts,
        parts=_parts_by_model(truth, pool, "block", design.models),
        tokenizer_texts=_tokenizer_texts(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def _pool(recipe: Recipe, count: int) -> Texts:
    """The first `count` texts of the corpus; those of a file must differ if members are drawn from it."""
    corpus = recipe.corpus
    if corpus.file is None:
        draw = generate if corpus.generator == "documents" else canary_set
        return draw(count, seed=recipe.seed_of("corpus"))
    texts = _read(recipe, corpus, id_field=corpus.id_field)
    if len(texts) < count:
        raise InputError(f"{corpus.file}: [plant] needs {count} texts, but corpus.file holds {len(texts)}")
    chosen = take(texts, np.arange(count))
    if isinstance(recipe.plant, CanariesDesign):  # there the corpus is only background
        return chosen
    first: dict[str, str] = {}
    for name, text in zip(chosen.ids, chosen.texts, strict=True):
        if first.setdefault(text, name) != name:  # one copy could be trained on and the other be a non-member
            raise InputError(
                f"{corpus.file}: {first[text]!r} and {name!r} are the same text, of which one could be planted and the "
                "other not; remove the duplicates"
            )
    return chosen


def _read(recipe: Recipe, given: Corpus | FileSet, id_field: str | None = None) -> Texts:
    """The texts of a file that a recipe names: one of its fields, or what a template makes of several."""
    assert given.file is not None
    if given.template is None:
        return load_texts(recipe.place(given.file), text_field=given.text_field, id_field=id_field)
    return load_texts(with_text(read_rows(recipe.place(given.file)), given.template), id_field=id_field)


def _tokenizer_texts(recipe: Recipe, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Generated texts like the recipe's that are in no part of it; if texts come from files, all `texts` of the recipe.

    Besides the corpus, canary sets bring examples.
    """
    canaries = recipe.plant if isinstance(recipe.plant, CanariesDesign) else None
    if recipe.corpus.file is not None or (canaries and canaries.sets):
        return texts
    seed, count = recipe.seed_of("tokenizer"), recipe.tokenizer.texts
    if recipe.corpus.generator == "examples":
        return canary_set(count, seed=seed).texts
    if canaries is None:
        return generate(count, seed=seed).texts
    return generate(count - count // 2, seed=seed).texts + canary_set(max(1, count // 2), seed=seed).texts


def _rows(texts: Texts, truth: Sequence[Row] = ()) -> tuple[Row, ...]:
    """Rows of a file of texts: id, text, and what is known: a label, and a column for each model if `truth` has any."""
    known = {row["id"]: {key: row[key] for key in row if key == "label" or key.startswith("model-")} for row in truth}
    rows = []
    for index, (name, text) in enumerate(zip(texts.ids, texts.texts, strict=True)):
        label = {"label": texts.labels[index]} if texts.labels else {}
        rows.append({"id": name, "text": text} | label | known.get(name, {}))
    return tuple(rows)


def _parts_by_model(truth: Sequence[Row], pool: Texts, column: str, num_models: int) -> tuple[tuple[Part, ...], ...]:
    """For each model the texts of each role or block, those that it was trained on apart from the others."""
    text_of = dict(zip(pool.ids, pool.texts, strict=True))
    parts = []
    for model in range(1, num_models + 1):
        groups: dict[tuple[str, int], list[str]] = {}
        for row in truth:
            groups.setdefault((row[column], row[f"model-{model}"]), []).append(text_of[row["id"]])
        parts.append(tuple(Part(name, copies, tuple(texts)) for (name, copies), texts in sorted(groups.items())))
    return tuple(parts)
