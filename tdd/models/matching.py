"""Names in a checkpoint's files -> names in its family's spelling."""

from __future__ import annotations

from tdd.models.families.record import Family, Slot
from tdd.models.families.tensors import tied_copy
from tdd.models.spec import DecoderSpec
from tdd.models.weights import DTYPES, StoredTensors
from tdd.validate.errors import InputError
from tdd.validate.weights import check_tensors

__all__ = ["match"]


def match(
    stored: StoredTensors, family: Family, spec: DecoderSpec, slots: tuple[Slot, ...], where: str
) -> dict[str, str]:
    """Find every tensor of an architecture in the files.

    Files of a bare model leave a prefix out, some use other names, some hold buffers that are not parameters, some
    of tied models hold the embedding twice.

    Args:
      stored: the files.
      family: whose names they follow.
      spec: the architecture.
      slots: its parameters.
      where: the folder, for messages.

    Returns:
      Name in the family's spelling -> name in the files.

    Raises:
      InputError: tensors are missing, too many, of another shape or of a type that is not read, all of them named in
        one message; or a second copy of a tied embedding that differs from it.
    """
    expected = {name: shape for slot in slots for name, shape in slot.stored(spec.num_layers)}
    buffers = {name.format(layer=layer) for name in family.buffers for layer in range(spec.num_layers)}
    found = _spelled(stored.names(), family, expected.keys() | buffers)
    found = {name: held for name, held in found.items() if name not in buffers}
    copy, original = tied_copy(family.names)
    if spec.tied_head and copy in found and original in found:
        held = found.pop(copy)
        _check_tied(stored.equal(held, found[original]), copy, original, where)
    check_tensors(
        expected,
        {name: stored.shape(held) for name, held in found.items()},
        where,
        advice="its weights and its config.json do not belong together",
        dtypes={name: stored.dtype(held) for name, held in found.items()},
        supported=tuple(DTYPES),
    )
    return found


def _spelled(names: frozenset[str], family: Family, known: set[str]) -> dict[str, str]:
    prefix = family.bare_prefix or family.names.base
    bare = not any(name.startswith(prefix) for name in names)
    found: dict[str, str] = {}
    for name in sorted(names):
        spelled = prefix + name if bare and prefix + name in known else family.aliases.get(name, name)
        # where a file has both spellings, the other one stays, and is too many
        found[name if spelled in names and spelled != name else spelled] = name
    return found


def _check_tied(equal: bool, copy_name: str, original_name: str, where: str) -> None:
    """A stored copy of the embedding equals it where the configuration ties the two."""
    if not equal:
        raise InputError(
            f"{where} ties the readout to the embedding (tie_word_embeddings), but {copy_name} differs from "
            f"{original_name}; set tie_word_embeddings to false, or remove {copy_name}"
        )
