"""Which kind of items the arguments of an audit mean; the file of a kind is imported where it is meant."""

from __future__ import annotations

import dataclasses
from typing import Any

from tdd.audit.inputs import Reading
from tdd.audit.items import Items, TextItems
from tdd.procedures.procedure import Procedure
from tdd.scoring.how import Run


def items_of(model: Any, procedure: Procedure, reading: Reading, how: Run, shard: Any) -> Items:
    """The kind of items that the arguments of `tdd.run_audit` mean.

    Raises:
      InputError: options that do not belong together.
    """
    if reading.image_field is not None:
        from tdd.audit.pictures import ImageItems

        return ImageItems(model, procedure, reading, how, shard)
    if model is None:
        from tdd.audit.samples import SampleItems

        return SampleItems(procedure, reading, how, shard)
    return TextItems(reading, dataclasses.replace(how, long_texts=how.long_texts or procedure.long_texts))
