"""The procedure of an audit, from its name and options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tdd.procedures.grammar import as_procedure, check_no_options
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import ConditionalBH
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["audited"]


def audited(
    method: Any, *, alpha: float, delta: float, seed: int, null: str | None, others: Mapping[str, Any]
) -> Procedure:
    """The procedure that an audit runs.

    Args:
      method: a `Procedure`, or its name with or without options.
      alpha: level of the audit.
      delta: of the audit; "conditional" by name holds for a share 1 - delta of calibration samples, unless told.
      seed: of the audit.
      null: the direction that the caller believes to test; checked where given.
      others: further keywords of the call, none of which may be an option of a procedure.

    Raises:
      InputError: as `as_procedure`; a null that the procedure does not test, a level out of range.
    """
    procedure = as_procedure(method)
    check_no_options(procedure, others)
    _check_direction(null, procedure.null, procedure.name)
    arrays.check_level(alpha)
    arrays.check_level(delta, "delta")
    arrays.check_seed(seed)
    if isinstance(procedure, ConditionalBH) and isinstance(method, str) and "delta=" not in method:
        procedure = dataclasses.replace(procedure, delta=float(delta))
    return procedure


def _check_direction(null: str | None, needed: str, method: str) -> None:
    """The null that the caller names, if any, is the one that the method tests."""
    if null is None or null == needed:
        return
    if null not in ("nonmember", "member"):
        raise InputError(f'null must be "nonmember" or "member", got {null!r}')
    raise InputError(
        f'{method} tests the null "{needed}" and calibrates on known {needed}s; null={null!r} would turn its '
        f"guarantee round. Pass known {needed}s as calibration and leave null out"
    )
