"""Šidák's and the two-stage procedures, and the parts that step-up procedures share."""

import functools

import contracts_core as core
import references_family as ref
from contract_entry import ELEMENTARY, FEW, Entry

from tdd.kernels import stepup


def entry(kernel, name, reference, alpha, roundings=FEW, **options):
    return Entry(
        name,
        lambda p_values, mask=None: core.step_fields(kernel(p_values, alpha, mask=mask, **options)),
        core.lattice_p,
        core.step_reference(functools.partial(reference, **options), alpha),
        label=f"alpha={alpha}" + "".join(f",{k}={v}" for k, v in options.items()),
        roundings=roundings,
    )


SIDAK = FEW + 2 * ELEMENTARY
"""-expm1(m log1p(-p)), whose condition is at most 1 in p."""

ENTRIES = [
    *[entry(stepup.sidak, "stepup.sidak", ref.sidak, alpha, SIDAK) for alpha in (0.3, 0.7)],
    *[entry(stepup.holm_sidak, "stepup.holm_sidak", ref.holm_sidak, alpha, SIDAK) for alpha in (0.3, 0.7)],
    *[
        entry(stepup.two_stage_bh, "stepup.two_stage_bh", ref.two_stage_bh, alpha, 2 * FEW, variant=variant)
        for alpha in (0.1, 0.25)
        for variant in stepup.VARIANTS
    ],
]

ELSEWHERE = {
    **{
        f"stepup_parts.{name}": "a part of every entry of stepup and hommel"
        for name in ("count", "critical", "items", "order", "result", "tolerance")
    },
    **{
        f"stepup_parts.{name}": "takes functions; a whole family of the entries of stepup"
        for name in ("fixed_point", "scaled_bh", "step_down")
    },
    "rows.map_rows": "takes a function; against vmap in tests/kernels/test_rows.py",
}
