"""The passes that a set of scores needs, their batches, and the way through them."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tdd.audit.gradient_pass import GradientProgram, GradientResults, gradient_budget
from tdd.audit.mesh import Devices
from tdd.audit.passes import BatchRunner
from tdd.audit.programs import TokenProgram
from tdd.audit.row_results import RowResults
from tdd.audit.score_inputs import Model, PassInput, encode_pass
from tdd.audit.score_store import ScoreStore
from tdd.records import Texts
from tdd.scoring.buckets import Batch, plan
from tdd.scoring.scores import Evidence, ScoreRequest, parse_score
from tdd.scoring.token_stats import tiling

__all__ = ["ScoreRun"]


@dataclasses.dataclass(frozen=True)
class ScoreRun:
    """Everything between the arguments of `tdd.score` and its numbers.

    Attributes:
      requests: the scores.
      models: "text", and "reference" where a score needs it.
      inputs: pass -> its rows.
      batches: of all passes, one after another.
      results: pass -> what came back.
    """

    requests: Sequence[ScoreRequest]
    models: Mapping[str, Model]
    inputs: Mapping[str, PassInput]
    batches: Sequence[Batch]
    results: Mapping[str, RowResults | GradientResults]

    @classmethod
    def prepare(
        cls,
        requests: Sequence[ScoreRequest],
        table: Texts,
        models: Mapping[str, Model],
        *,
        budget: int,
        max_length: int | None,
        long_texts: str,
    ) -> ScoreRun:
        """Tokenise the texts of every pass and plan the batches; computes nothing of the models.

        The pass over the texts themselves has no batches where no score needs their token statistics.
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
        return cls(requests, models, inputs, _plan(inputs, budget), results)

    @property
    def num_tokens(self) -> int:
        """Tokens of all batches, padding included."""
        return sum(batch.size * batch.length for batch in self.batches)

    def run(self, where: Devices, store: ScoreStore | None) -> Iterator[Batch]:
        """Compute what is not in the store, take everything in, and yield each batch when that has happened."""
        if not self.inputs["text"].rows.statistics:
            self._count_tokens()
        for group in (("text", "lowercase"), ("gradient",), ("reference",)):
            mine = [(number, batch) for number, batch in enumerate(self.batches) if batch.kind in group]
            if mine:
                yield from self._run(mine, self.models["reference" if "reference" in group else "text"], where, store)

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
        self, mine: Sequence[tuple[int, Batch]], model: Model, where: Devices, store: ScoreStore | None
    ) -> Iterator[Batch]:
        todo = [entry for entry in mine if store is None or entry[0] not in store]
        params = where.put_params(model.params) if todo else None
        if mine[0][1].kind == "gradient":
            program = GradientProgram(model.lm, params, where)
        else:
            capacity = max(batch.size * batch.length for batch in self.batches if batch.kind != "gradient")
            program = TokenProgram(model.lm, params, where, capacity, tiling(where.platform))
        computed = BatchRunner(program, len(where)).run(todo, lambda kind: self.inputs[kind].rows)
        for number, batch in mine:
            if store is not None and number in store:
                values = store.read(number)
            else:
                _, _, values = next(computed)
                if store is not None:
                    store.append(number, values)
            self.results[batch.kind].add(batch.rows, values)
            yield batch

    def _count_tokens(self) -> None:
        """The pass over the texts, without a model: how many tokens each has."""
        rows = self.inputs["text"].rows
        for row in range(len(rows.windows)):
            one = np.array([row])
            self.results["text"].add(one, np.zeros((0, rows.num_targets(one).sum()), np.float32))


def _plan(inputs: Mapping[str, PassInput], budget: int) -> list[Batch]:
    """Batches of all passes; those whose models accept the same length share their shapes, and so programs."""
    batches: list[Batch] = []
    tokens = {name: given for name, given in inputs.items() if name != "gradient"}
    if not inputs["text"].rows.statistics:
        del tokens["text"]
    for limit in dict.fromkeys(given.limit for given in tokens.values()):
        lengths = {name: given.rows.lengths for name, given in tokens.items() if given.limit == limit}
        batches += plan(lengths, token_budget=budget, limit=limit)
    if "gradient" in inputs:
        given = inputs["gradient"]
        batches += plan({"gradient": given.rows.lengths}, token_budget=gradient_budget(budget), limit=given.limit)
    order = list(inputs)
    return sorted(batches, key=lambda batch: order.index(batch.kind))
