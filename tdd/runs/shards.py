"""A static share of numbered work, for engines that start n copies of one command and restart what dies.

Shard i of n computes its pieces into a folder, and ends. No shard knows of another: any number may run at once, die,
be repeated or run twice. The same command without a shard finds the pieces in the folder, and computes what is missing.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.runs.atomic import disk_errors, read_regular, write_atomically
from tdd.validate import InputError, printable, some

_logger = logging.getLogger("tdd")
_PLACE = re.compile(r"(\d+)-of-(\d+)\.json")


class Shard(NamedTuple):
    """Shard `index` of `count`, from 0."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def owns(self, number: int) -> bool:
        """True if the piece with that number is this shard's: round robin, so that the load is even."""
        return number % self.count == self.index

    def part(self, sizes: Sequence[int]) -> range:
        """The numbers of the consecutive pieces that are this shard's: all shards have about the same total size."""
        ends = np.cumsum(np.asarray(sizes, np.int64))
        owners = (2 * ends - sizes) * self.count // (2 * ends[-1:])  # by the middle of each piece
        first, stop = np.searchsorted(owners, [self.index, self.index + 1])
        return range(int(first), int(stop))


def as_shard(value: Any, folder: Any = None, name: str = "store") -> Shard | None:
    """A shard given as (i, n) or "i/n"; None stays None. It needs a folder, which the argument `name` gives.

    Raises:
      InputError: neither of the two forms, numbers out of range, or no folder.
    """
    if value is None:
        return None
    pair = value.split("/") if isinstance(value, str) else value
    try:
        index, count = (int(x) if isinstance(x, str) else x.__index__() for x in pair)
    except (TypeError, ValueError, AttributeError):
        raise InputError(f"shard={value!r} must be I/N, as in 0/4 for the first of four: (0, 4) in Python") from None
    if not 0 <= index < count:
        last = f"the {count} shards are 0/{count} to {count - 1}/{count}" if count > 0 else "N must be at least 1"
        raise InputError(f"shard={index}/{count} does not exist: {last}")
    if folder is None:
        raise InputError(
            f"shard={index}/{count} needs {name}: a folder that all shards and the command that joins them can read "
            "and write"
        )
    return Shard(index, count)


class ShardLog:
    """Which shards of a run were begun and finished, and on what: `<folder>/shards/[<job>/]<i>-of-<n>.json`.

    Args:
      folder: where the shards leave their pieces.
      facts: name -> plain value, everything that must be alike in all shards: inputs, options, versions.
      job: a name that tells the run from others that use the folder at once.
    """

    def __init__(self, folder: str | os.PathLike[str], facts: Mapping[str, Any], job: str = "") -> None:
        self.root = pathlib.Path(folder).expanduser()
        self.folder = self.root / "shards" / urllib.parse.quote(job, safe="").replace(".", "%2E")
        self.facts = json.loads(json.dumps(facts, sort_keys=True, default=str))

    def begin(self, shard: Shard) -> None:
        """Note that a shard runs.

        Raises:
          InputError: the folder holds shards of another run, or cannot be written.
        """
        for place, _, found in self._found():
            if found["facts"] != self.facts:
                raise InputError(
                    f"shard {shard}: {self.root} holds shards of another run ({place.stem}): "
                    f"{_differences(self.facts, found['facts'])}. Give all shards the same command and the same "
                    f"files, or this run another folder; delete {self.folder} if the earlier run is over"
                )
        self._note(shard, finished=False)

    def finish(self, shard: Shard) -> None:
        """Note that a shard has computed all of its pieces."""
        self._note(shard, finished=True)

    def warn(self) -> None:
        """Say which shards have left nothing, were not finished, or are of another run."""
        found = self._found()
        others = [(place, entry) for place, _, entry in found if entry["facts"] != self.facts]
        if others:
            place, entry = others[0]
            _logger.warning(
                "%s holds shards of another run (%s): %s",
                self.root,
                place.stem,
                _differences(self.facts, entry["facts"]),
            )
        mine = [(shard, entry) for _, shard, entry in found if entry["facts"] == self.facts]
        if not mine:
            return
        count = max(shard.count for shard, _ in mine)
        finished = {shard.index for shard, entry in mine if shard.count == count and entry["finished"]}
        absent = [f"{i}/{count}" for i in range(count) if i not in finished]
        if absent:
            _logger.warning(
                "%s: shard%s %s did not finish here (killed, not started, or with a folder that is not shared); what "
                "is missing is computed now",
                self.root,
                "" if len(absent) == 1 else "s",
                some(absent, 8),
            )

    def forget(self) -> None:
        """Remove what is noted of the shards of this run: they are joined."""
        for place, _, entry in self._found():
            if entry["facts"] == self.facts:
                place.unlink(missing_ok=True)

    def _note(self, shard: Shard, *, finished: bool) -> None:
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        content = {"facts": self.facts, "finished": finished}
        write_atomically(self.folder / f"{shard.index}-of-{shard.count}.json", json.dumps(content).encode())

    def _found(self) -> list[tuple[pathlib.Path, Shard, dict[str, Any]]]:
        """What is noted of all shards; a damaged note counts as none."""
        found = []
        for place in sorted(self.folder.glob("*.json")):
            if match := _PLACE.fullmatch(place.name):
                try:
                    entry = json.loads(read_regular(place))
                    entry = {"facts": dict(entry["facts"]), "finished": bool(entry["finished"])}
                except (OSError, ValueError, KeyError, TypeError):
                    continue
                found.append((place, Shard(int(match[1]), int(match[2])), entry))
        return found


def _differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Each fact that differs, here and there."""
    names = [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]
    return "; ".join("{} {} here, {} there".format(name, *_apart(mine.get(name), theirs.get(name))) for name in names)


def _apart(*values: Any) -> list[str]:
    """Values in at most 60 characters each; long ones from shortly before the first difference."""
    texts = ["nothing" if value is None else printable(str(value)) for value in values]
    differ = (i for i, pair in enumerate(zip(*texts, strict=False)) if len(set(pair)) > 1)
    at = max(0, next(differ, min(map(len, texts))) - 10) if max(map(len, texts)) > 60 else 0
    parts = [f"{'...' if at else ''}{text[at:]}" for text in texts]
    return [part if len(part) <= 60 else f"{part[:57]}..." for part in parts]
