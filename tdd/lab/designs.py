"""What can be planted: the sections [plant] of recipes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tdd.validate.errors import InputError
from tdd.validate.lab import check_count, check_range
from tdd.validate.planting import check_copies, check_shares

__all__ = ["DESIGNS", "AssignmentsDesign", "BlocksDesign", "CanariesDesign", "Design", "FileSet", "MembersDesign"]


@dataclasses.dataclass(frozen=True)
class MembersDesign:
    """Members among candidates, for PTDI and KTD; see `tdd.lab.plant.plant`."""

    design: ClassVar[str] = "members"
    models: ClassVar[int] = 1
    members: int
    nonmembers: int
    calibration: int
    background: int = 0
    duplication: int | tuple[int, ...] = 1

    def __post_init__(self) -> None:
        for name in ("members", "nonmembers", "calibration"):
            check_count(name, getattr(self, name), minimum=1)
        check_count("background", self.background, minimum=0)
        check_copies("duplication", self.duplication, minimum=1)


@dataclasses.dataclass(frozen=True)
class FileSet:
    """A set of examples from a file, in the file's order.

    Attributes:
      file: what `tdd.load_texts` reads.
      copies: how often it is planted.
      text_field: of the file.
    """

    file: str
    copies: int
    text_field: str = "text"

    def __post_init__(self) -> None:
        check_count("copies", self.copies, minimum=0)


@dataclasses.dataclass(frozen=True)
class CanariesDesign:
    """Whole sets in canonical order, for the exchangeability test; see `tdd.lab.plant_canaries.plant_canaries`.

    Attributes:
      examples: of each generated set.
      copies: one generated set for each number, named `x0`, `x10`, ...; a number given twice gives `x10-a`, `x10-b`.
      sets: further sets from files, by name.
      background: documents of the corpus among them.
      separator: between two examples.
      examples_per_document: None for one document a set.
    """

    design: ClassVar[str] = "canaries"
    models: ClassVar[int] = 1
    examples: int = 200
    copies: tuple[int, ...] = ()
    sets: Mapping[str, FileSet] = dataclasses.field(default_factory=dict)
    background: int = 0
    separator: str = "\n\n"
    examples_per_document: int | None = None

    def __post_init__(self) -> None:
        check_count("examples", self.examples, minimum=2)
        if self.copies or not self.sets:
            check_copies("copies", self.copies, minimum=0)
        _check_set_names(self.sets, self.generated)
        check_count("background", self.background, minimum=0)
        if self.examples_per_document is not None:
            check_count("examples_per_document", self.examples_per_document, minimum=1)

    @property
    def generated(self) -> dict[str, int]:
        """Name -> copies of the generated sets."""
        found: dict[str, int] = {}
        for count in self.copies:
            same = [name for name, copies in found.items() if copies == count]
            twice = self.copies.count(count) > 1
            found[f"x{count}-{_letters(len(same))}" if twice else f"x{count}"] = count
        return found


@dataclasses.dataclass(frozen=True)
class AssignmentsDesign:
    """Several models, each trained on a random share of the items; see `tdd.lab.assign.assign_models`.

    Attributes:
      models: K.
      items: texts that are audited.
      share: of the items that a model is trained on; one number, or one a model.
      calibration: further texts that no model is trained on.
      known_members: further texts that all models are trained on, known to the auditor.
      background: further texts that all models are trained on.
    """

    design: ClassVar[str] = "assignments"
    models: int
    items: int
    share: float | tuple[float, ...] = 0.5
    calibration: int = 0
    known_members: int = 0
    background: int = 0

    def __post_init__(self) -> None:
        check_count("models", self.models, minimum=1)
        check_count("items", self.items, minimum=1)
        shares = check_shares("share", self.share, self.models)
        for name in ("calibration", "known_members", "background"):
            check_count(name, getattr(self, name), minimum=0)
        _check_all_trained(shares, self.items, self.known_members + self.background)


@dataclasses.dataclass(frozen=True)
class BlocksDesign:
    """Several models and three blocks, for JMCS and JECS; see `tdd.lab.assign.three_blocks`.

    Attributes:
      models: K.
      items: texts that are divided.
      calibration, remainder, share: of `three_blocks`.
      background: further texts that all models are trained on.
    """

    design: ClassVar[str] = "blocks"
    models: int
    items: int
    calibration: float = 0.3
    remainder: float = 0.1
    share: float | tuple[float, ...] = 0.5
    background: int = 0

    def __post_init__(self) -> None:
        check_count("models", self.models, minimum=1)
        check_count("items", self.items, minimum=3)
        for name in ("calibration", "remainder"):
            check_range(name, getattr(self, name), 0.0, 1.0)
        check_shares("share", self.share, self.models)
        check_count("background", self.background, minimum=0)


Design = MembersDesign | CanariesDesign | AssignmentsDesign | BlocksDesign

DESIGNS: dict[str, type[Design]] = {
    kind.design: kind for kind in (CanariesDesign, MembersDesign, AssignmentsDesign, BlocksDesign)
}


def _letters(index: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    letters = ""
    while index >= 0:
        index, letter = divmod(index, 26)
        letters, index = chr(ord("a") + letter) + letters, index - 1
    return letters


_LONGEST_NAME = 200


def _check_all_trained(shares: Sequence[float], items: int, shared: int) -> None:
    """Every model is trained on some text; a share of less than half an item is none."""
    for model, share in enumerate(shares, start=1):
        if not shared and int(share * items + 0.5) == 0:
            raise InputError(
                f"model {model} is trained on nothing: its share of the {items} items is {share:g}, and there are "
                "neither known_members nor background; give it some"
            )


def _check_set_names(sets: Mapping[str, Any], taken: Mapping[str, int]) -> None:
    """Names of sets can be names of files and are given once."""
    seen = {name.casefold(): name for name in taken}
    for name in sets:
        if not name or not all(letter.isalnum() or letter in "-_." for letter in name) or name.startswith("."):
            raise InputError(f"sets names {name!r}; use letters, digits, '-', '_' and '.', for it names a file")
        if len(name.encode()) > _LONGEST_NAME:
            raise InputError(f"sets names {name!r}, longer than {_LONGEST_NAME} bytes, and it names a file; shorten it")
        if name in taken:
            raise InputError(f"sets names {name!r}, which is the name of a generated set; choose another")
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(f"sets names {name!r}, which is one file with {other!r} on some systems; choose another")
