"""From a recipe to texts: who is trained on what, what is audited, and what is true. Pure, seeded, no training."""

from __future__ import annotations

from tdd.lab.designs import AssignmentsDesign, CanariesDesign, MembersDesign
from tdd.lab.plan import Part, Plan
from tdd.lab.plan_one import plan_canaries, plan_members
from tdd.lab.plan_several import plan_assignments, plan_blocks
from tdd.lab.recipe import Recipe

__all__ = ["Part", "Plan", "make_plan"]


def make_plan(recipe: Recipe) -> Plan:
    """Generate or read the texts of a recipe and assign them.

    Raises:
      InputError: a file that cannot be read as texts, or that holds fewer than the design needs.
    """
    design = recipe.plant
    if isinstance(design, CanariesDesign):
        return plan_canaries(recipe, design)
    if isinstance(design, MembersDesign):
        return plan_members(recipe, design)
    return plan_assignments(recipe, design) if isinstance(design, AssignmentsDesign) else plan_blocks(recipe, design)
