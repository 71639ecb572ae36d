"""Plans for several models: each trained on its own share of the texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdd.lab.assign import assign_models, three_blocks, training_lists
from tdd.lab.designs import AssignmentsDesign, BlocksDesign
from tdd.lab.plan import Part, Plan, pool_of, rows_of, tokenizer_texts_of
from tdd.lab.plant import take
from tdd.lab.recipe import Recipe
from tdd.lab.truth import Row
from tdd.records import Texts

__all__ = ["plan_assignments", "plan_blocks"]


def plan_assignments(recipe: Recipe, design: AssignmentsDesign) -> Plan:
    """K models, each trained on its own share of the items; parts by role and by whether the model saw them."""
    sizes = [design.items, design.calibration, design.known_members, design.background]
    pool = pool_of(recipe, sum(sizes))
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
            truth.append(_labelled({"id": name, "role": role} | dict(zip(columns, map(int, seen), strict=True))))
    audited = {"candidates.jsonl": rows_of(items, truth)}
    if design.calibration:
        audited["calibration.jsonl"] = rows_of(calibration, truth)
    if design.known_members:
        audited["known_members.jsonl"] = rows_of(known, truth)
    return Plan(
        training=tuple(texts.texts for texts in training),
        truth=tuple(truth),
        audited=audited,
        held_out=calibration.texts,
        parts=_parts_by_model(truth, pool, "role"),
        tokenizer_texts=tokenizer_texts_of(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def plan_blocks(recipe: Recipe, design: BlocksDesign) -> Plan:
    """K models and three blocks; the candidates are remainder and clean, in random order."""
    pool = pool_of(recipe, design.items + design.background)
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
    shared = ({"id": name, "block": "background"} | dict.fromkeys(columns, 1) for name in background.ids)
    truth = tuple(_labelled(row) for row in (*blocks.truth, *shared))
    candidates = np.random.default_rng(recipe.seed_of("candidates")).permutation(
        [index for index, row in enumerate(blocks.truth) if row["block"] != "calibration"]
    )
    return Plan(
        training=tuple(texts.texts for texts in blocks.training),
        truth=truth,
        audited={
            "candidates.jsonl": rows_of(take(items, candidates), truth),
            "calibration.jsonl": rows_of(blocks.calibration, truth),
        },
        held_out=blocks.clean.texts,
        parts=_parts_by_model(truth, pool, "block"),
        tokenizer_texts=tokenizer_texts_of(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def _labelled(row: Row) -> Row:
    """A row of the truth with a label: 1 where any model was trained on the text."""
    seen = {key: value for key, value in row.items() if key.startswith("model-")}
    return {key: row[key] for key in row if key not in seen} | {"label": max(seen.values())} | seen


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
