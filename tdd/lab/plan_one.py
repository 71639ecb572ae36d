"""Plans for one model: members among candidates, and sets in canonical order."""

from __future__ import annotations

from tdd.lab.canaries import canary_set
from tdd.lab.designs import CanariesDesign, MembersDesign
from tdd.lab.plan import Part, Plan, pool_of, rows_of, tokenizer_texts_of
from tdd.lab.plant import plant, truth_rows
from tdd.lab.plant_canaries import plant_canaries
from tdd.lab.recipe import Recipe
from tdd.records import Texts
from tdd.texts import load_texts

__all__ = ["plan_canaries", "plan_members"]


def plan_members(recipe: Recipe, design: MembersDesign) -> Plan:
    """One model and members among candidates; parts by role and number of copies."""
    sizes = {name: getattr(design, name) for name in ("members", "nonmembers", "calibration", "background")}
    pool = pool_of(recipe, sum(sizes.values()))
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
        audited={"candidates.jsonl": rows_of(planted.candidates), "calibration.jsonl": rows_of(planted.calibration)},
        held_out=planted.calibration.texts,
        parts=(tuple(Part(name, copies, tuple(texts)) for (name, copies), texts in parts),),
        tokenizer_texts=tokenizer_texts_of(recipe, pool.texts),
        hashes={"corpus": pool.sha256},
    )


def plan_canaries(recipe: Recipe, design: CanariesDesign) -> Plan:
    """One model and whole sets in canonical order; sets of 0 copies are held out."""
    background = pool_of(recipe, design.background) if design.background else Texts(ids=(), texts=())
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
        audited={f"canaries/{name}.jsonl": rows_of(examples) for name, examples in sets.items()},
        held_out=tuple(documents[name][0] for name in sets if copies[name] == 0),
        parts=(tuple(parts),),
        tokenizer_texts=tokenizer_texts_of(
            recipe, (*background.texts, *own), also_examples=True, files=bool(design.sets)
        ),
        hashes={"corpus": background.sha256} | {f"sets/{name}": examples.sha256 for name, examples in sets.items()},
    )
