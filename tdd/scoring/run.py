"""The passes that a set of scores needs: token rows → statistics from the store or the model → scores of texts."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tdd.records import Texts
from tdd.scoring.buckets import Batch
from tdd.scoring.devices import Devices
from tdd.scoring.engine import BatchRunner, read_or_compute
from tdd.scoring.inputs import (
    OTHER,
    OWN,
    Deferred,
    DistinctRows,
    Model,
    PassInput,
    distinct_rows,
    encode_pass,
    is_gradient,
)
from tdd.scoring.plan import ScorePlan
from tdd.scoring.programs import GradientProgram, PassProgram, Rows, TokenProgram
from tdd.scoring.scores.parts import padded_stats
from tdd.scoring.scores.score import Score, finished
from tdd.scoring.tasks import Task, Tasks, reserved
from tdd.scoring.token_stats import tiling

_BLOCK = 2**22
"""Characters of a block, about a million tokens."""

_PAD = 64
"""Texts whose numbers of tokens round up to the same multiple of this are scored together."""

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def in_blocks(texts: Texts) -> list[Texts]:
    """The texts in consecutive blocks of about equal size; few texts are one block."""
    ends = np.cumsum([len(text) for text in texts.texts])
    num_blocks = -(-ends[-1] // _BLOCK)
    block_of = (ends - 1) * num_blocks // max(1, ends[-1])
    edges = [0, *(np.flatnonzero(np.diff(block_of)) + 1).tolist(), len(texts)]
    return [
        dataclasses.replace(texts, ids=texts.ids[a:b], texts=texts.texts[a:b], labels=())
        for a, b in itertools.pairwise(edges)
    ]


class Turn(NamedTuple):
    """A block of texts, and which models they go through."""

    number: int
    texts: Texts
    of: str | None = None  # the name of one model; None: all models
    later: tuple[str, ...] = ()  # those of them that wait for a turn of their own


def in_turns(texts: Texts, models: Mapping[str, Model]) -> list[Turn]:
    """The blocks; then, if they are several, the blocks again for each model whose parameters are `Deferred`.

    So each is loaded once. Its texts are tokenised a second time: what is kept of a block stays small.
    """
    blocks = in_blocks(texts)
    deferred = tuple(name for name, model in models.items() if isinstance(model.params, Deferred))
    later = deferred if len(blocks) > 1 else ()
    turns = [Turn(number, block, later=later) for number, block in enumerate(blocks)]
    return turns + [Turn(number, block, name) for name in later for number, block in enumerate(blocks)]


def ahead(make: Callable[[_In], _Out], items: Sequence[_In]) -> Generator[_Out, None, None]:
    """`make(item)` of each in turn: while the caller works with one, a thread makes the next.

    An error of the thread is raised when its turn comes. Closing waits until the thread ends.
    """
    with ThreadPoolExecutor(1) as pool:
        made = make(items[0])
        for item in items[1:]:
            coming = pool.submit(make, item)
            yield made
            made = coming.result()
        yield made


class Runners:
    """The runners of a run's passes: their parameters and programs stay on the devices from block to block.

    Parameters that are loaded when they are needed make room for those of the next model.
    """

    def __init__(self, models: Mapping[str, Model], devices: Devices) -> None:
        self.devices = devices
        self._models = models
        self._params: dict[str, Any] = {}
        self._runners: dict[Any, BatchRunner] = {}

    def get(self, group: Any, given: PassInput, capacity: int) -> BatchRunner:
        """The runner of a group of passes, of which one is given, made when it is first asked for.

        `group` is what they have in common, the name of the model first and whether they are for gradients second; a
        batch has at most `capacity` scored positions.
        """
        name, gradient, *_ = group
        for other in [
            other for other in self._params if other != name and isinstance(self._models[other].params, Deferred)
        ]:
            del self._params[other]
            self._runners = {key: runner for key, runner in self._runners.items() if key[0] != other}

        def program() -> PassProgram:
            lm = self._models[name].lm
            if name not in self._params:
                self._params[name] = self.devices.put_params(self._models[name].parameters())
            params = self._params[name]
            if gradient:
                return GradientProgram(lm, params, self.devices)
            common = (lm, params, self.devices, capacity, tiling(self.devices.platform))
            if given.prefix is None:
                return TokenProgram(*common)
            from tdd.scoring.prefixes import SuffixProgram

            behind = SuffixProgram(*common)
            behind.put_prefix(given.prefix)
            return behind

        return self._runners.setdefault(group, BatchRunner(program, len(self.devices), halve=not self.devices.spans))


class BlockScores(NamedTuple):
    """What is kept of a block of texts once its batches are done."""

    # (what, name) -> [n] numbers: what is kept, by pass and label; "per byte", scored tokens per byte of scored text,
    # by pass; "measure" of a text by name; "num_tokens"
    columns: Mapping[tuple[str, str], np.ndarray]
    differs: frozenset[str]  # passes of other models whose tokens are not those of the scored model
    prepends_bos: bool  # as in `Encoded`
    shapes: frozenset[tuple[str, int, int, int]]  # shapes of the batches, after the name of the pass
    # how many windows, texts that were cut, rows that were stored before, tokens that were computed, and tokens that
    # were not padding: windows, truncated, stored, computed, real
    counts: collections.Counter[str]

    def values(self, label: str, tasks: Tasks) -> np.ndarray:
        """One score of all texts: [n].

        Losses are per token if the tokenizers of its models agree on every text, else per byte.
        """
        score, read = tasks.scores[label], tasks.read[label]
        used = [one for found in read.values() for one in (found if isinstance(found, list) else [found])]
        per_byte = any(name in self.differs for name, _ in used)
        scaled = {over for name, _ in used if (over := tasks.tasks[name].over)} | {
            name for name, _ in used if tasks.tasks[name].of.startswith(OTHER) and not is_gradient(name)
        }

        def column(place: tuple[str, str]) -> np.ndarray:
            of_pass = self.columns[place]
            return of_pass * self.columns["per byte", place[0]] if per_byte and place[0] in scaled else of_pass

        evidence: dict[str, Any] = {name: self.columns["measure", name] for name in score.measures()}
        for name, found in read.items():
            evidence[name] = np.stack([*map(column, found)]) if isinstance(found, list) else column(found)
        if per_byte:
            evidence["tokens_per_byte"] = self.columns["per byte", OWN]
        return finished(score, self.columns[OWN, label], evidence)


def joined(blocks: Sequence[BlockScores]) -> BlockScores:
    """All blocks as one."""
    return BlockScores(
        {
            key: np.concatenate([block.columns[key] for block in blocks if key in block.columns])
            for key in blocks[0].columns
        },
        frozenset().union(*(block.differs for block in blocks)),
        blocks[0].prepends_bos,
        frozenset().union(*(block.shapes for block in blocks)),
        sum((block.counts for block in blocks), collections.Counter()),
    )


@dataclasses.dataclass(frozen=True)
class ScoreRun:
    """Everything between a block of texts and its numbers."""

    turn: Turn  # the texts, and which models they go through
    inputs: Mapping[str, PassInput]  # pass -> its rows
    distinct: DistinctRows  # those that are computed
    results: Mapping[str, RowResults | GradientResults]  # pass -> what came back
    measures: Mapping[str, np.ndarray]  # name -> [n] numbers of the texts that scores need
    tasks: Mapping[str, Task]  # pass -> what it is

    @classmethod
    def prepare(cls, turn: Turn, *, tasks: Tasks, max_length: int | None, long_texts: str) -> ScoreRun:
        """Tokenise the texts of every pass; computes nothing of the models.

        In a turn of one model those of its passes alone. The pass over the texts themselves is not computed if no score
        needs its statistics. Passes over other texts go with the first block; windows under the model are shorter by
        the longest prefix.
        """
        inputs: dict[str, PassInput] = {}
        for name, task in tasks.tasks.items():
            others = task.made_by.texts
            if (others is not None and turn.number > 0) or turn.of not in (None, task.of):
                continue
            same = others is None and task.made_by.change is None and not task.of.startswith(OTHER)
            inputs[name] = encode_pass(
                task,
                turn.texts if others is None else others,
                tasks.models[task.of],
                max_length=max_length,
                long_texts=long_texts,
                windowed=tasks.windowed,
                encoded=inputs[OWN].encoded if same and OWN in inputs else None,
                reserved=reserved(tasks.tasks, task.of),
                again=turn.of is not None,
            )
        results: dict[str, RowResults | GradientResults] = {
            name: GradientResults(given.rows) if is_gradient(name) else RowResults(given.rows, tasks.tasks[name].keep)
            for name, given in inputs.items()
        }
        rows = {name: given.rows for name, given in inputs.items()}
        distinct = distinct_rows(rows, {name: like for name in inputs if (like := tasks.tasks[name].like)})
        measures = {}
        if turn.of is None:
            for score in tasks.scores.values():
                for name, measure in score.measures().items():
                    if name not in measures:
                        measures[name] = np.array([*map(measure, inputs[OWN].encoded.kept)], np.float64)
        made = cls(turn, inputs, distinct, results, measures, tasks.tasks)
        if turn.of is None and any(map(made._differs, inputs)):
            for name in made._per_byte():
                inputs[name].encoded.check_scored_bytes()
        return made

    def run(self, plan: ScorePlan, todo: Sequence[tuple[int, Batch]], runners: Runners) -> Iterator[Batch]:
        """Read or compute the numbered batches `todo` of the plan, collect their numbers, and yield each batch."""
        if OWN in self.inputs and not self.inputs[OWN].rows.statistics:
            self._count_tokens()
        # passes that have a program and a place in the store in common
        together = {
            name: (given.model, is_gradient(name), given.identity().get("prefix"))
            for name, given in self.inputs.items()
        }
        groups: dict[Any, list[tuple[int, Batch]]] = {}
        for number, batch in todo:
            groups.setdefault(together[batch.kind], []).append((number, batch))
        for group, batches in groups.items():
            yield from self._run(group, plan, batches, runners)

    def now(self, todo: Sequence[tuple[int, Batch]]) -> list[tuple[int, Batch]]:
        """The batches of the models whose turn it is."""
        passes = {name for name, given in self.inputs.items() if given.model not in self.turn.later}
        return [(number, batch) for number, batch in todo if batch.kind in passes]

    def scores(self, plan: ScorePlan) -> BlockScores:
        """What is kept of the block; `columns` of their turns replace those of models whose turn comes later."""
        text, real = self.inputs[OWN].encoded, 0
        for batch in plan.batches:
            real += batch.num_real(self.inputs[batch.kind].rows.lengths)
        counts = {
            "windows": len(self.inputs[OWN].rows.windows),
            "truncated": sum(map(operator.ne, map(len, text.kept), map(len, self.turn.texts.texts))),
            "stored": sum(len(batch.rows) for batch in plan.stored),
            "computed": sum(batch.num_tokens for batch in plan.batches),
            "real": real,
        }
        return BlockScores(
            self.columns(),
            frozenset(name for name in self.inputs if self._differs(name)),
            text.prepends_bos,
            frozenset(batch.shape for batch in plan.batches),
            collections.Counter(counts),
        )

    def columns(self) -> dict[tuple[str, str], np.ndarray]:
        """See `BlockScores`."""
        columns: dict[tuple[str, str], np.ndarray] = {}
        if OWN in self.inputs:
            columns["num_tokens", ""] = self._tokens_of(OWN).num_tokens
        columns |= {("measure", name): values for name, values in self.measures.items()}
        for name, results in self.results.items():
            columns |= {(name, label): values for label, values in results.values.items()}
        with np.errstate(all="ignore"):  # a text may have no scored byte
            for name in self._per_byte():
                num_tokens = self._tokens_of(name).num_tokens
                columns["per byte", name] = num_tokens / self.inputs[name].encoded.scored_bytes
        return columns

    def _per_byte(self) -> list[str]:
        """The passes of this block that are compared with those of other models, byte by byte if tokens differ."""
        others = [name for name, task in self.tasks.items() if task.of.startswith(OTHER) and not is_gradient(name)]
        compared = {OWN, *others, *(self.tasks[name].over for name in others)} if others else set()
        return [name for name in self.inputs if name in compared]

    def _differs(self, name: str) -> bool:
        """Whether a pass has other tokens than that of the scored model over the same texts."""
        over = self.tasks[name].over
        return over is not None and any(
            not np.array_equal(a, b)
            for a, b in zip(self.inputs[over].encoded.tokens, self.inputs[name].encoded.tokens, strict=True)
        )

    def _tokens_of(self, name: str) -> RowResults:
        """Results of a pass for token statistics."""
        results = self.results[name]
        assert isinstance(results, RowResults)
        return results

    def _run(
        self, group: Any, plan: ScorePlan, batches: Sequence[tuple[int, Batch]], runners: Runners
    ) -> Iterator[Batch]:
        kind = batches[0][1].kind
        capacity = max((batch.num_tokens for batch in plan.batches if not is_gradient(batch.kind)), default=0)
        runner = runners.get(group, self.inputs[kind], capacity)

        def compute(missing: Iterator[tuple[int, Batch]]) -> Iterator[tuple[int, Batch, list[np.ndarray]]]:
            for number, batch, values in runner.run(missing, lambda kind: self.inputs[kind].rows):
                yield number, batch, self._parts(batch, values)

        for batch, parts in read_or_compute(
            plan.namespaces.get(kind),
            batches,
            compute,
            lambda batch: [self.distinct.keys[batch.kind][row] for row in batch.rows],
            lambda batch: self.inputs[batch.kind].rows.statistics,
            lockstep=runners.devices.spans,
        ):
            self._collect(batch, parts)
            yield batch

    def _parts(self, batch: Batch, values: np.ndarray) -> list[np.ndarray]:
        """Values [fields, columns] of a batch, cut into those of its rows."""
        one_each = np.ones(len(batch.rows), np.int64)
        columns = one_each if is_gradient(batch.kind) else self.inputs[batch.kind].rows.num_targets(batch.rows)
        return np.split(values, np.cumsum(columns)[:-1], axis=1)

    def _collect(self, batch: Batch, parts: Sequence[np.ndarray]) -> None:
        """Add the numbers of a batch to the results of its rows and of all that are the same."""
        self.results[batch.kind].add(batch.rows, parts)
        fields = self.inputs[batch.kind].rows.statistics
        for row, part in zip(batch.rows, parts, strict=True):
            for kind, copy in self.distinct.copies.get((batch.kind, int(row)), ()):
                needed = [fields.index(field) for field in self.inputs[kind].rows.statistics]
                self.results[kind].add(np.array([copy]), [part[needed]])

    def _count_tokens(self) -> None:
        """The pass over the texts, without a model: how many tokens each has."""
        rows = self.inputs[OWN].rows
        every = np.arange(len(rows.windows))
        self.results[OWN].add(every, [np.zeros((0, count), np.float32) for count in rows.num_targets(every)])


class RowResults:
    """Collects one pass, holding statistics only of texts whose windows are not complete yet.

    Attributes:
      values: Label -> [N] float64, the tokens' part of each score that is kept; NaN for texts without rows.
      num_tokens: [N] int64, scored tokens.
    """

    def __init__(self, rows: Rows, keep: Mapping[str, Score]) -> None:
        num_texts = len(rows.tokens)
        self.values = {label: np.full(num_texts, np.nan) for label in keep}
        self.num_tokens = np.zeros(num_texts, np.int64)
        self._rows, self._keep = rows, keep
        self._reads_tokens = any("tokens" in score.computed for score in keep.values())
        self._missing = np.bincount(rows.text, minlength=num_texts)
        self._parts: dict[int, list[tuple[int, np.ndarray]]] = {}

    def add(self, row_indices: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Add the statistics of some rows, [fields, targets] each."""
        complete: list[int] = []
        for row, part in zip(row_indices, parts, strict=True):
            text = int(self._rows.text[row])
            self._parts.setdefault(text, []).append((int(row), part))
            self._missing[text] -= 1
            if self._missing[text] == 0:
                complete.append(text)
        wide: dict[int, list[tuple[int, np.ndarray]]] = {}
        for text in complete:
            parts = [part for _, part in sorted(self._parts.pop(text), key=lambda p: p[0])]
            column = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
            wide.setdefault(-(-column.shape[1] // _PAD) * _PAD, []).append((text, column))
        for width, pairs in wide.items():
            self._reduce([text for text, _ in pairs], [column for _, column in pairs], width)

    def _reduce(self, texts: list[int], columns: list[np.ndarray], width: int) -> None:
        """Score complete texts together. The length that a text is padded to depends on it alone: so do its bits."""
        tokens = [self._rows.tokens[text][1:] for text in texts] if self._reads_tokens else None
        stats = padded_stats(self._rows.statistics, columns, width, tokens)
        self.num_tokens[texts] = stats.mask.sum(1)
        for label, score in self._keep.items():
            self.values[label][texts] = score.rows(stats)


class GradientResults:
    """Collects a pass for gradients: `values` "" -> [N] float64, norm of the gradient of each text's summed loss."""

    def __init__(self, rows: Rows) -> None:
        self.values = {"": np.full(len(rows.tokens), np.nan)}
        self._text = rows.text

    def add(self, row_indices: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Add the norms of some texts, [1, 1] each."""
        self.values[""][self._text[row_indices]] = np.concatenate(parts, axis=1)[0]
