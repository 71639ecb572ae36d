"""The passes that a set of scores needs, and the way of their rows through the store and the model."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tdd.records import Texts
from tdd.scoring.buckets import Batch
from tdd.scoring.devices import Devices
from tdd.scoring.distinct_rows import DistinctRows, distinct_rows
from tdd.scoring.gradient_pass import GradientProgram, GradientResults
from tdd.scoring.in_step import ReadOrCompute
from tdd.scoring.inputs import Model, PassInput, encode_pass
from tdd.scoring.passes import BatchRunner
from tdd.scoring.plan import ScorePlan
from tdd.scoring.programs import TokenProgram
from tdd.scoring.row_results import RowResults
from tdd.scoring.scores import Evidence, ScoreRequest, parse_score
from tdd.scoring.store.through import through
from tdd.scoring.token_stats import tiling

__all__ = ["ScoreRun"]


@dataclasses.dataclass(frozen=True)
class ScoreRun:
    """Everything between the arguments of `tdd.score` and its numbers.

    Attributes:
      requests: the scores.
      models: "text", and "reference" where a score needs it.
      inputs: pass -> its rows.
      distinct: which of them are computed.
      results: pass -> what came back.
    """

    requests: Sequence[ScoreRequest]
    models: Mapping[str, Model]
    inputs: Mapping[str, PassInput]
    distinct: DistinctRows
    results: Mapping[str, RowResults | GradientResults]

    @classmethod
    def prepare(
        cls,
        requests: Sequence[ScoreRequest],
        table: Texts,
        models: Mapping[str, Model],
        *,
        max_length: int | None,
        long_texts: str,
    ) -> ScoreRun:
        """Tokenise the texts of every pass; computes nothing of the models.

        The pass over the texts themselves has no statistics where no score needs them, and is not computed.
        """
        passes = ["text", *dict.fromkeys(name for request in requests for name in request.score.passes)]
        statistics = tuple(dict.fromkeys(field for request in requests for field in request.score.statistics))
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
                encoded=inputs["text"].encoded if name == "gradient" else None,
            )
        loss = [parse_score("loss")]
        results: dict[str, RowResults | GradientResults] = {
            name: GradientResults(given.rows)
            if name == "gradient"
            else RowResults(given.rows, requests if name == "text" else loss)
            for name, given in inputs.items()
        }
        distinct = distinct_rows({name: given.rows for name, given in inputs.items()})
        return cls(requests, models, inputs, distinct, results)

    def run(
        self,
        plan: ScorePlan,
        todo: Sequence[tuple[int, Batch]],
        where: Devices,
        read_or_compute: ReadOrCompute = through,
    ) -> Iterator[Batch]:
        """Compute what is not in the store, take everything in, and yield each batch when that has happened.

        Args:
          plan: of the run.
          todo: its batches with their numbers, or those of a shard.
          where: the devices.
          read_or_compute: decides for each batch.
        """
        if not self.inputs["text"].rows.statistics:
            self._count_tokens()
        for group in (("text", "lowercase"), ("gradient",), ("reference",)):
            batches = [(number, batch) for number, batch in todo if batch.kind in group]
            if batches:
                model = self.models["reference" if "reference" in group else "text"]
                yield from self._run(plan, batches, model, where, read_or_compute)

    def evidence(self) -> Evidence:
        """What the scores need beside the statistics of the texts."""
        text, results = self.inputs["text"].encoded, self.results
        compressed = np.array([len(zlib.compress(kept.encode())) for kept in text.kept], np.float64)
        evidence = Evidence(compressed_bytes=compressed)
        if "gradient" in results:
            evidence = evidence._replace(grad_norm=results["gradient"].values)
        if "lowercase" in results:
            evidence = evidence._replace(lowercase_loss=self.tokens_of("lowercase").values["loss"])
        if "reference" in results:
            other = self.inputs["reference"].encoded
            evidence = evidence._replace(reference_loss=self.tokens_of("reference").values["loss"])
            same = all(np.array_equal(a, b) for a, b in zip(text.tokens, other.tokens, strict=True))
            if not same:
                evidence = evidence._replace(
                    tokens_per_byte=self.tokens_of("text").num_tokens / text.scored_bytes,
                    reference_tokens_per_byte=self.tokens_of("reference").num_tokens / other.scored_bytes,
                )
        return evidence

    def tokens_of(self, name: str) -> RowResults:
        """Results of a pass for token statistics."""
        found = self.results[name]
        assert isinstance(found, RowResults)
        return found

    def _run(
        self,
        plan: ScorePlan,
        batches: Sequence[tuple[int, Batch]],
        model: Model,
        where: Devices,
        read_or_compute: ReadOrCompute,
    ) -> Iterator[Batch]:
        kind = batches[0][1].kind
        capacity = max((one.size * one.length for one in plan.batches if one.kind != "gradient"), default=0)

        @functools.cache
        def runner() -> BatchRunner:
            params = where.put_params(model.params)
            if kind == "gradient":
                program = GradientProgram(model.lm, params, where)
            else:
                program = TokenProgram(model.lm, params, where, capacity, tiling(where.platform))
            return BatchRunner(program, len(where), halve=not where.spans)

        def compute(todo: Iterator[tuple[int, Batch]]) -> Iterator[tuple[int, Batch, list[np.ndarray]]]:
            first = next(todo, None)
            if first is None:
                return  # and the parameters need not be placed
            computed = runner().run(itertools.chain([first], todo), lambda kind: self.inputs[kind].rows)
            for number, batch, values in computed:
                yield number, batch, self._parts(batch, values)

        for batch, parts in read_or_compute(
            plan.spaces.get(kind),
            batches,
            compute,
            lambda batch: [self.distinct.keys[batch.kind][row] for row in batch.rows],
            lambda batch: self.inputs[batch.kind].rows.statistics,
        ):
            self._take(batch, parts)
            yield batch

    def _parts(self, batch: Batch, values: np.ndarray) -> list[np.ndarray]:
        """Values [fields, columns] of a batch, cut into those of its rows."""
        columns = np.ones(len(batch.rows)) if batch.kind == "gradient" else None
        if columns is None:
            columns = self.inputs[batch.kind].rows.num_targets(batch.rows)
        return np.split(values, np.cumsum(columns)[:-1].astype(np.int64), axis=1)

    def _take(self, batch: Batch, parts: Sequence[np.ndarray]) -> None:
        """Hand the numbers of a batch to the results, and to those of the rows that are the same."""
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
