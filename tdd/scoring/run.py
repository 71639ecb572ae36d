"""The passes that a set of scores needs: token rows → statistics from the store or the model → scores of texts."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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

__all__ = ["ScoreRun"]

_PAD = 64
"""Texts whose numbers of tokens round up to the same multiple of this are scored together."""


@dataclasses.dataclass(frozen=True)
class ScoreRun:
    """Everything between the arguments of `tdd.score` and its numbers.

    Attributes:
      models: "text"; "reference", "reference 2", ... and "tuned" where a score needs them.
      inputs: Pass -> its rows.
      distinct: Those that are computed.
      results: Pass -> what came back.
    """

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
        beside: Mapping[str, Any],
    ) -> ScoreRun:
        """Tokenise the texts of every pass; computes nothing of the models.

        The pass over the texts themselves is not computed if no score needs its statistics. `beside` has the token ids
        of the prefixes, by pass, and the texts of the population; windows under the model are shorter by the longest
        prefix.
        """
        prefixes = {name: tokens for name, tokens in beside.items() if name != "population"}
        reserved = max(map(len, prefixes.values()), default=0)
        asked = ["text", *dict.fromkeys(name for request in requests for name in request.score.passes)]
        reduced = {"text": requests, "tuned": [one for one in requests if "tuned" in one.score.passes]}
        loss = [parse_score("loss")]
        inputs: dict[str, PassInput] = {}
        for name, of in _passes(asked, models):
            fields = dict.fromkeys(field for one in reduced.get(name, loss) for field in one.score.statistics)
            inputs[name] = encode_pass(
                name,
                beside["population"] if name.startswith("population") else table,
                of,
                models[of],
                ("grad_norm",) if name == "gradient" else tuple(field for field in fields if field != "tokens"),
                max_length=max_length,
                long_texts=long_texts,
                windowed="gradient" not in asked,
                encoded=inputs["text"].encoded if name in ("gradient", "tuned", *prefixes) else None,
                prefix=prefixes.get(name),
                reserved=0 if of.startswith("reference") else reserved,
            )
        results: dict[str, RowResults | GradientResults] = {
            name: GradientResults(given.rows) if name == "gradient" else RowResults(given.rows, reduced.get(name, loss))
            for name, given in inputs.items()
        }
        distinct = distinct_rows({name: given.rows for name, given in inputs.items()})
        return cls(models, inputs, distinct, results)

    def run(self, plan: ScorePlan, todo: Sequence[tuple[int, Batch]], devices: Devices) -> Iterator[Batch]:
        """Read or compute the numbered batches `todo` of the plan, collect their numbers, and yield each batch."""
        if not self.inputs["text"].rows.statistics:
            self._count_tokens()
        # passes that have a program and a place in the store in common
        together = {
            name: (given.model, name == "gradient", given.identity().get("prefix"))
            for name, given in self.inputs.items()
        }
        groups: dict[Any, list[tuple[int, Batch]]] = {}
        for number, batch in todo:
            groups.setdefault(together[batch.kind], []).append((number, batch))
        for batches in groups.values():
            yield from self._run(plan, batches, devices)

    def evidence(self) -> Evidence:
        """The evidence of the scores beside the statistics of the texts."""
        results = self.results
        text = self.inputs["text"].encoded
        compressed = np.array([len(zlib.compress(kept.encode())) for kept in text.kept], np.float64)
        evidence = Evidence(compressed_bytes=compressed)
        if "gradient" in results:
            evidence = evidence._replace(grad_norm=results["gradient"].values)
        for name in ("lowercase", "prefix", "member_prefix"):
            if name in results:
                evidence = evidence._replace(**{f"{name}_loss": self.tokens_of(name).values["loss"]})
        if "reference" in results:
            references = [name for name in self.models if name.startswith("reference")]
            populations = [f"population under {name}" for name in references] if "population" in results else []
            same = self._same_tokens("text", references) and self._same_tokens("population", populations)

            def losses(name: str) -> np.ndarray:
                return self.tokens_of(name).values["loss"] * (1.0 if same else self._tokens_per_byte(name))

            evidence = evidence._replace(
                tokens_per_byte=1.0 if same else self._tokens_per_byte("text"),
                reference_loss=np.stack([losses(name) for name in references]),
            )
            if populations:
                evidence = evidence._replace(
                    population_loss=losses("population"),
                    reference_population_loss=np.stack([losses(name) for name in populations]),
                )
        return evidence

    def _same_tokens(self, name: str, others: Sequence[str]) -> bool:
        """Whether the texts of a pass have the same tokens in the others."""
        return all(
            np.array_equal(a, b)
            for other in others
            for a, b in zip(self.inputs[name].encoded.tokens, self.inputs[other].encoded.tokens, strict=True)
        )

    def _tokens_per_byte(self, name: str) -> np.ndarray:
        """Scored tokens per byte of scored text, by the tokenizer of the pass."""
        return self.tokens_of(name).num_tokens / self.inputs[name].encoded.scored_bytes

    def tokens_of(self, name: str) -> RowResults:
        """Results of a pass for token statistics."""
        results = self.results[name]
        assert isinstance(results, RowResults)
        return results

    def _run(self, plan: ScorePlan, batches: Sequence[tuple[int, Batch]], devices: Devices) -> Iterator[Batch]:
        kind = batches[0][1].kind
        model = self.models[self.inputs[kind].model]
        capacity = max((batch.num_tokens for batch in plan.batches if batch.kind != "gradient"), default=0)

        def program() -> PassProgram:
            params = devices.put_params(model.parameters())
            if kind == "gradient":
                return GradientProgram(model.lm, params, devices)
            given = (model.lm, params, devices, capacity, tiling(devices.platform))
            if (prefix := self.inputs[kind].prefix) is None:
                return TokenProgram(*given)
            from tdd.scoring.prefixes import SuffixProgram

            behind = SuffixProgram(*given)
            behind.put_prefix(prefix)
            return behind

        runner = BatchRunner(program, len(devices), halve=not devices.spans)

        def compute(missing: Iterator[tuple[int, Batch]]) -> Iterator[tuple[int, Batch, list[np.ndarray]]]:
            for number, batch, values in runner.run(missing, lambda kind: self.inputs[kind].rows):
                yield number, batch, self._parts(batch, values)

        for batch, parts in read_or_compute(
            plan.namespaces.get(kind),
            batches,
            compute,
            lambda batch: [self.distinct.keys[batch.kind][row] for row in batch.rows],
            lambda batch: self.inputs[batch.kind].rows.statistics,
            lockstep=devices.spans,
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


def _passes(asked: Sequence[str], models: Mapping[str, Model]) -> Iterator[tuple[str, str]]:
    """Every pass and the name of its model."""
    references = [name for name in models if name.startswith("reference")]
    for name in asked:
        if name == "reference":
            yield from zip(references, references, strict=True)
        elif name == "population":
            yield name, "text"
            yield from ((f"population under {of}", of) for of in references)
        else:
            yield name, "tuned" if name == "tuned" else "text"


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
