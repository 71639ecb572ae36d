"""The procedure of an audit, from its name and options."""

from __future__ import annotations

import dataclasses
from typing import Any

from tdd.procedures.procedure import Procedure, as_procedure
from tdd.procedures.values import ConditionalBH
from tdd.validate import arrays, runs

__all__ = ["audited"]


def audited(method: Any, *, delta: float, null: str | None, **options: Any) -> Procedure:
    """The procedure that an audit runs.

    Args:
      method: a `Procedure`, or its name with or without options.
      delta: of the audit; "conditional" by name holds for a share 1 - delta of calibration samples.
      null: the direction that the caller believes to test; checked where given.
      **options: of the procedure, None where not given.

    Raises:
      InputError: as `as_procedure`; a null that the procedure does not test, a level out of range.
    """
    procedure = as_procedure(method, **options)
    runs.check_direction(null, procedure.null, procedure.name)
    arrays.check_level(delta, "delta")
    if isinstance(procedure, ConditionalBH) and procedure is not method:
        procedure = dataclasses.replace(procedure, delta=float(delta))
    return procedure
