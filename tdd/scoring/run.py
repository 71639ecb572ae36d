"""The passes that a set of scores needs: token rows → statistics from the store or the model → scores of texts."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np

from tdd.records import Texts
from tdd.scoring.buckets import Batch
from tdd.scoring.devices import Devices
from tdd.scoring.engine import BatchRunner, read_or_compute
from tdd.scoring.inputs import DistinctRows, Model, PassInput, distinct_rows, encode_pass
from tdd.scoring.plan import ScorePlan
from tdd.scoring.programs import GradientProgram, PassProgram, Rows, TokenProgram
from tdd.scoring.scores import Evidence, ScoreRequest, padded_stats, parse_score
from tdd.scoring.token_stats import tiling

__all__ = ["BlockScores", "Runners", "ScoreRun", "ahead", "in_blocks", "joined"]

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


def ahead(make: Callable[[_In], _Out], items: Sequence[_In]) -> Iterator[_Out]:
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
    """The runners of a run's passes: their parameters and programs stay on the devices from block to block."""

    def __init__(self, models: Mapping[str, Model], devices: Devices) -> None:
        self.devices = devices
        self._models = models
        self._params = functools.cache(lambda name: devices.put_params(models[name].params))
        self._runners: dict[str, BatchRunner] = {}

    def get(self, kind: str, capacity: int, prefix: np.ndarray | None) -> BatchRunner:
        """The runner of a pass, made when it is first asked for; batches have at most `capacity` scored positions."""
        name, devices = "reference" if kind == "reference" else "text", self.devices

        def program() -> PassProgram:
            lm, params = self._models[name].lm, self._params(name)
            if kind == "gradient":
                return GradientProgram(lm, params, devices)
            given = (lm, params, devices, capacity, tiling(devices.platform))
            if prefix is None:
                return TokenProgram(*given)
            from tdd.scoring.prefixes import SuffixProgram

            behind = SuffixProgram(*given)
            behind.put_prefix(prefix)
            return behind

        return self._runners.setdefault(kind, BatchRunner(program, len(devices), halve=not devices.spans))


class BlockScores(NamedTuple):
    """What is kept of a block of texts once its batches are done.

    Attributes:
      values: Label -> [n] float64, the tokens' part of each score.
      num_tokens: [n] int64, scored tokens.
      evidence: The evidence of the scores beside them, [n] each.
      same_tokens: Whether both models' tokenizers make the same tokens of every text.
      prepends_bos: As in `Encoded`.
      shapes: Shapes of the batches, after the name of the pass.
      counts: How many windows, texts that were cut, rows that were stored before, tokens that were computed, and
        tokens that were not padding: windows, truncated, stored, computed, real.
    """

    values: Mapping[str, np.ndarray]
    num_tokens: np.ndarray
    evidence: Evidence
    same_tokens: bool
    prepends_bos: bool
    shapes: frozenset[tuple[str, int, int]]
    counts: collections.Counter[str]


def joined(blocks: Iterable[BlockScores]) -> BlockScores:
    """All blocks as one. Losses are per token if both tokenizers agree on every text, else per byte."""
    values, num_tokens, evidence, same, bos, shapes, counts = zip(*blocks, strict=True)
    columns = [None if of[0] is None else np.concatenate([*of]) for of in zip(*evidence, strict=True)]
    whole = Evidence(*columns)
    if all(same):
        whole = whole._replace(tokens_per_byte=1.0, reference_tokens_per_byte=1.0)
    return BlockScores(
        {label: np.concatenate([block[label] for block in values]) for label in values[0]},
        np.concatenate(num_tokens),
        whole,
        all(same),
        bos[0],
        frozenset().union(*shapes),
        sum(counts, collections.Counter()),
    )


@dataclasses.dataclass(frozen=True)
class ScoreRun:
    """Everything between a block of texts and its numbers.

    Attributes:
      texts: The texts.
      inputs: Pass -> its rows.
      distinct: Those that are computed.
      results: Pass -> what came back.
      compressed: [n] bytes of each text after zlib, if a score needs them.
    """

    texts: Texts
    inputs: Mapping[str, PassInput]
    distinct: DistinctRows
    results: Mapping[str, RowResults | GradientResults]
    compressed: np.ndarray | None

    @classmethod
    def prepare(
        cls,
        table: Texts,
        *,
        requests: Sequence[ScoreRequest],
        models: Mapping[str, Model],
        max_length: int | None,
        long_texts: str,
        prefixes: Mapping[str, np.ndarray],
    ) -> ScoreRun:
        """Tokenise the texts of every pass; computes nothing of the models.

        The pass over the texts themselves is not computed if no score needs its statistics. With `prefixes`, the
        token ids that the texts follow by pass, windows under the model are shorter by the longest of them.
        """
        reserved = max(map(len, prefixes.values()), default=0)
        passes = ["text", *dict.fromkeys(name for request in requests for name in request.score.passes)]
        fields = dict.fromkeys(field for request in requests for field in request.score.statistics)
        statistics = tuple(field for field in fields if field != "tokens")
        inputs: dict[str, PassInput] = {}
        for name in passes:
            inputs[name] = encode_pass(
                name,
                table,
                models["reference" if name == "reference" else "text"],
                {"text": statistics, "gradient": ("grad_norm",)}.get(name, ("log_prob",)),
                max_length=max_length,
                long_texts=long_texts,
                windowed="gradient" not in passes,
                encoded=inputs["text"].encoded if name in ("gradient", *prefixes) else None,
                prefix=prefixes.get(name),
                reserved=0 if name == "reference" else reserved,
            )
        loss = [parse_score("loss")]
        results: dict[str, RowResults | GradientResults] = {
            name: GradientResults(given.rows)
            if name == "gradient"
            else RowResults(given.rows, requests if name == "text" else loss)
            for name, given in inputs.items()
        }
        distinct = distinct_rows({name: given.rows for name, given in inputs.items()})
        compressed = None
        if any(request.score.name == "zlib" for request in requests):
            kept = inputs["text"].encoded.kept
            compressed = np.array([len(zlib.compress(text.encode())) for text in kept], np.float64)
        return cls(table, inputs, distinct, results, compressed)

    def run(self, plan: ScorePlan, todo: Sequence[tuple[int, Batch]], runners: Runners) -> Iterator[Batch]:
        """Read or compute the numbered batches `todo` of the plan, collect their numbers, and yield each batch."""
        if not self.inputs["text"].rows.statistics:
            self._count_tokens()
        for group in (("text", "lowercase"), ("gradient",), ("reference",), ("prefix",), ("member_prefix",)):
            batches = [(number, batch) for number, batch in todo if batch.kind in group]
            if batches:
                yield from self._run(plan, batches, runners)

    def scores(self, plan: ScorePlan) -> BlockScores:
        """What is kept of the block."""
        text, of_text, real = self.inputs["text"].encoded, self._tokens_of("text"), 0
        for batch in plan.batches:
            real += int(self.inputs[batch.kind].rows.lengths[batch.rows].sum())
        counts = {
            "windows": len(self.inputs["text"].rows.windows),
            "truncated": sum(map(operator.ne, map(len, text.kept), map(len, self.texts.texts))),
            "stored": sum(len(batch.rows) for batch in plan.stored),
            "computed": sum(batch.num_tokens for batch in plan.batches),
            "real": real,
        }
        other = self.inputs.get("reference", self.inputs["text"]).encoded
        return BlockScores(
            of_text.values,
            of_text.num_tokens,
            self._evidence(),
            all(map(np.array_equal, text.tokens, other.tokens)),
            text.prepends_bos,
            frozenset(batch.shape for batch in plan.batches),
            collections.Counter(counts),
        )

    def _evidence(self) -> Evidence:
        """The evidence of the scores beside the statistics of the texts."""
        text, results = self.inputs["text"].encoded, self.results
        evidence = Evidence(compressed_bytes=self.compressed, tokens_per_byte=None, reference_tokens_per_byte=None)
        if "gradient" in results:
            evidence = evidence._replace(grad_norm=results["gradient"].values)
        for name in ("lowercase", "prefix", "member_prefix"):
            if name in results:
                evidence = evidence._replace(**{f"{name}_loss": self._tokens_of(name).values["loss"]})
        if "reference" in results:
            other = self.inputs["reference"].encoded
            evidence = evidence._replace(reference_loss=self._tokens_of("reference").values["loss"])
            with np.errstate(all="ignore"):  # a text may have no scored byte
                evidence = evidence._replace(
                    tokens_per_byte=self._tokens_of("text").num_tokens / text.scored_bytes,
                    reference_tokens_per_byte=self._tokens_of("reference").num_tokens / other.scored_bytes,
                )
        return evidence

    def _tokens_of(self, name: str) -> RowResults:
        """Results of a pass for token statistics."""
        results = self.results[name]
        assert isinstance(results, RowResults)
        return results

    def _run(self, plan: ScorePlan, batches: Sequence[tuple[int, Batch]], runners: Runners) -> Iterator[Batch]:
        kind = batches[0][1].kind
        capacity = max((batch.num_tokens for batch in plan.batches if batch.kind != "gradient"), default=0)
        runner = runners.get("text" if kind == "lowercase" else kind, capacity, self.inputs[kind].prefix)

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
        columns = one_each if batch.kind == "gradient" else self.inputs[batch.kind].rows.num_targets(batch.rows)
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
        rows = self.inputs["text"].rows
        every = np.arange(len(rows.windows))
        self.results["text"].add(every, [np.zeros((0, count), np.float32) for count in rows.num_targets(every)])


class RowResults:
    """Collects one pass, holding statistics only of texts whose windows are not complete yet.

    Attributes:
      values: Label -> [N] float64, the tokens' part of each score; NaN for texts without rows.
      num_tokens: [N] int64, scored tokens.
    """

    def __init__(self, rows: Rows, requests: Sequence[ScoreRequest]) -> None:
        num_texts = len(rows.tokens)
        self.values = {request.label: np.full(num_texts, np.nan) for request in requests}
        self.num_tokens = np.zeros(num_texts, np.int64)
        self._rows, self._requests = rows, requests
        self._reads_tokens = any("tokens" in request.score.statistics for request in requests)
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
        for request in self._requests:
            self.values[request.label][texts] = request.rows(stats)


class GradientResults:
    """Collects the pass for gradients: `values` [N] float64, norm of the gradient of each text's summed loss."""

    def __init__(self, rows: Rows) -> None:
        self.values = np.full(len(rows.tokens), np.nan)
        self._text = rows.text

    def add(self, row_indices: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Add the norms of some texts, [1, 1] each."""
        self.values[self._text[row_indices]] = np.concatenate(parts, axis=1)[0]
