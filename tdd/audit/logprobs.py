"""`tdd.score_log_probs`: what somebody else computed of each token → the scores that it suffices for."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from tdd.logprobs import LogProbs, Reading, ReadingOptions, read_log_probs
from tdd.records import Scores
from tdd.scoring.score import Scoring
from tdd.scoring.scores.parts import orders_of, padded_stats
from tdd.scoring.scores.score import OWN, Score, as_scores, check_no_fields, fields_of, finished, given_by_name
from tdd.texts import load_texts
from tdd.validate import InputError, some
from tdd.validate.settings import in_own_settings

PER_BYTE = "loss_per_byte"
"""Minus the sum of the log-probabilities over the UTF-8 bytes of the text: the score that sums suffice for."""
CHOICE = "choice_loss"
"""log sum_c exp s_c - s, s the sum of the right choice and s_c those of all choices: minus the logarithm of its
probability among them."""
_OF_SUMS = (PER_BYTE, CHOICE)

_ROWS = 512


@in_own_settings()
def score_log_probs(
    source: Any,
    scores: Scoring = ("loss", "min_k"),
    *,
    lowercase: Any = None,
    texts: Any = None,
    **reading: Unpack[ReadingOptions],
) -> Scores:
    """Score texts from log-probabilities of their tokens, without the model. LOWER = MORE member-like.

    Log-probabilities of the texts' own tokens suffice for "loss", "min_k" and "camia"; with the texts for "zlib" and
    "loss_per_byte"; with a second dump for "lowercase" and "reference"; with the tokens' ids for "diversity".
    Statistics of the distribution at every position suffice for "max_renyi" and "m_entropy", and beside the
    log-probabilities for "min_k_plus_plus", "surp" and "acmia"; the most likely tokens of a position (`top_logprobs`)
    suffice for none of these. Other scores need the model and are refused. The numbers are those of `tdd.score` and
    `tdd.score_images` on the same log-probabilities and statistics.

    Layouts ("auto" tells them apart by their fields):
      "plain": a record a text with a list of numbers, `{"id": "a1", "text": "...", "log_probs": [null, -3.2, ...]}`.
        Beside or instead of it lists of the same length, entry t of the distribution that predicts token t, under the
        names and with the definitions of `tdd.records.TokenStats`: "mu" (minus the entropy), "sigma", "renyi_half",
        "renyi_two", "renyi_inf", "m_entropy"; and the tokens' ids, whole numbers, in "tokens". Entropies that cannot
        belong to one distribution are refused: H_1/2 >= H_1 >= H_2 >= H_inf >= H_2 / 2 and -log p >= H_inf >= 0 must
        hold up to the rounding of half precision. "slice" divides an item into parts: the name of the one that the
        record holds, with a record of the same id for each part; or a list with a name, a list of names or null (in no
        part) for every position;
      "openai": completions with `echo`, one or several choices a record, or a batch file; generated tokens are
        dropped;
      "vllm": `prompt_logprobs`, saved `RequestOutput`s or answers of the server; the prompt's own token is found by
        `prompt_token_ids`, else where ranks leave no doubt, else it is an error;
      "lm-eval": `samples_*.jsonl` of lm-evaluation-harness (loglikelihood_rolling, loglikelihood, multiple_choice).
        They hold the sum over the tokens and not their number, which suffices for "loss_per_byte" and, per byte,
        "reference". The text of a multiple-choice item is its right choice, and "choice_loss" compares that with the
        other choices: the loss of the right one among them, log sum_c exp(s_c) - s. Identifiers are the task, by the
        file's name, and the number of the item; `id_field="doc_id"` takes the number alone;
      "together": completions with `echo`, the log-probabilities of `prompt`;
      "sglang": `meta_info.input_token_logprobs`; "tgi": `details.prefill`;
      "olmes": predictions with `model_output`, which hold sums as lm-eval's do, and the number of tokens: "loss" too.

    The first token of a text may be null: it has no context and is not scored. Log-probabilities at or below `floor`
    count as `floor`, are counted in the provenance and warned about.

    Args:
      source: a file (.jsonl, .json, .parquet, also .gz), several as in `tdd.load_texts`, or records in memory.
      scores: as in `tdd.score`; for "reference" with the dump of the texts under a reference model in the place of the
        model, "reference:model=DUMP": matched by id. Where any text has another number of tokens there, both losses are
        per byte of text.
      lowercase: dump of the lowercased texts, for "lowercase"; rows are matched by id.
      texts: the texts, matched by id, if the dump does not hold them; see `tdd.texts.load_texts`.
      **reading: how the dumps are read:

      format: one of the layouts ("auto").
      base: base of the logarithms, those of entropies too: "e", 2, 10 or another number above 1.
      polarity: "log_prob" where log-probabilities are log p, "loss" where they are -log p. Other statistics keep their
        sign.
      floor: see above; None makes minus infinity an error.
      field: the field with the list ("plain"); by default log_probs, logprobs, token_log_probs or token_logprobs.
      id_field: the field with identifiers; without it "id" ("custom_id", "doc_id"), else row numbers from 1.
        Identifiers that a server drew at random do not count as such; several choices of a record are "<id>-<index>".
      text_field: the field with the text.
      generated: "openai": tokens at the end of every list that were generated; by default what `usage` says.
      first_entry: "vllm": the file kept vLLM's order, in which the prompt's token comes first.

    Returns:
      `Scores`, a column for each name as it was written; with slices a column "<score> <slice>" for each of both, NaN
      for an item without the slice, and `num_tokens` counts positions in any of them. The provenance has hashes,
      layout, units and counts.

    Raises:
      InputError: a score that the numbers do not suffice for (all are named, with the reason); an unreadable or
        ambiguous file; a positive, missing or NaN log-probability, impossible statistics (row, position and value are
        named); repeated ids; rows without a scored token; a second dump that lacks rows.

    >>> dump = [{"id": "a", "log_probs": [None, -1.0, -3.0]}, {"id": "b", "log_probs": [None, -0.5]}]
    >>> score_log_probs(dump, "loss")["loss"].tolist()
    [2.0, 0.5]
    """
    requests = as_dump_scores(scores)
    if unknown := [name for name in reading if name not in ReadingOptions.__annotations__]:
        check_no_fields(unknown)
        known = ", ".join(ReadingOptions.__annotations__)
        raise InputError(f"there is no option {unknown[0]!r}; those of how a dump is read are {known}")
    how = Reading(**reading)
    dump = read_log_probs(source, how)
    bytes_of, compressed = _sizes(dump, texts)
    passes = {name for request in requests.values() if request is not None for name in request.passes()}
    num_without_text = int(np.isnan(bytes_of).sum())
    reference = _reference_of(requests)
    _check_sufficient(requests, dump, num_without_text, {"lowercase": lowercase, "reference": reference})
    evidence: dict[str, np.ndarray] = {"compressed_bytes": compressed}
    seconds: dict[str, LogProbs] = {}
    if "lowercase" in passes:
        seconds["lowercase"] = _matched("lowercase", lowercase, how, dump)
        evidence["lowercase"] = _losses(seconds["lowercase"])
    unit = "token"
    if "reference" in passes:
        other = seconds["reference"] = _matched("reference", reference, how, dump)
        unit = _add_reference(evidence, dump, other, bytes_of)
    values: dict[str, np.ndarray] = {}
    for label, request in requests.items():
        values |= _values(label, request, dump, bytes_of, evidence)
    return Scores(
        dump.ids,
        values,
        dump.num_tokens,
        {
            "scores": [*requests],
            "log_probs": _summary(dump),
            **{name: _summary(other) for name, other in seconds.items()},
            "base": str(how.base),
            "polarity": how.polarity,
            "floor": how.floor,
            "reference_unit": unit if "reference" in passes else None,
        },
    )


def as_dump_scores(given: Any) -> dict[str, Score | None]:
    """Column -> score; None for those of sums alone.

    Raises:
      InputError: as `tdd.scoring.scores.score.as_scores`.
    """
    if isinstance(given, Mapping):
        of_sums = [label for label, one in given.items() if one in _OF_SUMS or (one is None and label in _OF_SUMS)]
        for label, one in given.items():
            if (label in of_sums and one not in (None, label)) or (label in _OF_SUMS and label not in of_sums):
                name = label if label in _OF_SUMS else one
                raise InputError(f"scores={{{label!r}: {one!r}}}: the column {name!r} is that score alone")
        rest = {label: one for label, one in given.items() if label not in of_sums}
        read = as_scores(rest) if rest or not of_sums else {}
        return {str(label): None if label in of_sums else read[str(label)] for label in given}
    several = [given] if isinstance(given, (str, Score)) or not isinstance(given, Iterable) else [*given]
    of_sums = [one for one in several if isinstance(one, str) and one in _OF_SUMS]
    if len(set(of_sums)) < len(of_sums):
        raise InputError(f"scores names {of_sums[0]!r} more than once; remove the repetition")
    others = [one for one in several if not (isinstance(one, str) and one in _OF_SUMS)]
    rest = iter((as_scores(others) if others or not of_sums else {}).items())
    return dict((one, None) if isinstance(one, str) and one in _OF_SUMS else next(rest) for one in several)


def _reference_of(scores: Mapping[str, Score | None]) -> Any:
    """The dump under a reference model that scores were given; it is read once.

    Raises:
      InputError: different ones.
    """
    models = given_by_name([score for score in scores.values() if score is not None], "model")
    if len(models) > 1:
        raise InputError("two scores were given different dumps of a reference model; compute them in two calls")
    return next(iter(models.values()), None)


def _add_reference(evidence: dict[str, np.ndarray], dump: LogProbs, other: LogProbs, bytes_of: np.ndarray) -> str:
    """Add the losses under the reference model, per token or, where texts have other numbers of tokens, per byte."""
    if dump.tokens and other.tokens and np.array_equal(dump.num_tokens, other.num_tokens):
        evidence["reference"] = _losses(other)[None]
        return "token"
    if num_without_text := int(np.isnan(bytes_of).sum()):
        raise InputError(
            "the reference dump has other numbers of tokens, so both losses must be per byte of text, and "
            f"{num_without_text} rows have no text: name their field with text_field, or give texts="
        )
    evidence["tokens_per_byte"] = (dump.num_tokens if dump.tokens else 1.0) / bytes_of
    evidence["reference"] = (-other.sums / bytes_of)[None]
    return "byte"


def _values(
    label: str, request: Score | None, dump: LogProbs, bytes_of: np.ndarray, evidence: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """One score of every text, or of each slice of every text: [N] float64 by name of the column."""
    if label == CHOICE:
        return {label: np.array([np.logaddexp.reduce(sums) for sums in dump.choices]) - dump.sums}
    if request is None:
        return {label: -dump.sums / bytes_of}
    if request.name == "loss" and not dump.statistics and _sums_suffice(request, dump):
        return {label: -dump.sums if request.parameters["reduction"] == "sum" else -dump.sums / dump.counts}
    parts: Mapping[str, tuple[np.ndarray, ...] | None] = {label: None}
    if dump.slices:
        parts = {f"{label} {name}": masks for name, masks in dump.slices.items()}
    found = {}
    for column, masks in parts.items():
        rows = _rows(request, dump, masks) if dump.statistics else -dump.sums
        found[column] = np.asarray(finished(request, rows, evidence), np.float64)
    return found


def _rows(request: Score, dump: LogProbs, masks: tuple[np.ndarray, ...] | None) -> np.ndarray:
    """The part of a score that comes from the tokens that `masks` have: [N] float64, NaN where there are none.

    Texts of similar length are computed together.
    """
    counts = dump.num_tokens if masks is None else np.array([np.count_nonzero(mask) for mask in masks])
    fields = [name for name in request.reads if name != "tokens"]

    def of_text(values: np.ndarray, text: int) -> np.ndarray:
        return values if masks is None else values[masks[text]]

    order, found = np.argsort(counts, kind="stable"), np.empty(len(dump))
    for group in np.split(order, range(_ROWS, len(order), _ROWS)):
        columns = [np.stack([of_text(dump.statistics[name][text], text) for name in fields]) for text in group]
        ids = [of_text(dump.token_ids[text], text) for text in group] if "tokens" in request.reads else None
        found[group] = request.rows(padded_stats(fields, columns, max(1, counts[group].max()), ids))
    return found


def _sums_suffice(score: Score, dump: LogProbs) -> bool:
    """Whether a loss follows from sums of log-probabilities; a mean needs their numbers too."""
    return dump.counts is not None or score.parameters["reduction"] == "sum"


def _losses(dump: LogProbs) -> np.ndarray:
    return -dump.sums / dump.num_tokens


def _sizes(dump: LogProbs, texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """UTF-8 bytes and compressed bytes of every text, NaN where there is no text: [N], [N] float64."""
    by_id: Mapping[str, str | None] = dict(zip(dump.ids, dump.texts, strict=True))
    if texts is not None:
        table = load_texts(texts)
        by_id = dict(zip(table.ids, table.texts, strict=True))
        _check_matched("texts", table.source, [name for name in dump.ids if name not in by_id])
    sizes = [
        (len(text.encode()), len(zlib.compress(text.encode()))) if (text := by_id[name]) else (np.nan, np.nan)
        for name in dump.ids
    ]
    return tuple(np.array(sizes, np.float64).reshape(-1, 2).T)  # type: ignore[return-value]


def _matched(name: str, source: Any, reading: Reading, dump: LogProbs) -> LogProbs:
    """The rows of a second dump in the order of the first."""
    try:
        other = read_log_probs(source, reading)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    if other.slices or np.isnan(other.sums).any():
        lacks = "holds slices of items" if other.slices else "has no log-probabilities"
        raise InputError(f"{other.source}: {name} needs the log-probabilities of whole texts, and this file {lacks}")
    place = {identifier: index for index, identifier in enumerate(other.ids)}
    _check_matched(name, other.source, [identifier for identifier in dump.ids if identifier not in place])
    if name == "lowercase" and not other.tokens:
        raise InputError(f"{other.source}: {name} needs one log-probability a token, this file holds sums")
    order = [place[identifier] for identifier in dump.ids]
    matched = dataclasses.replace(
        other,
        ids=dump.ids,
        statistics={"log_prob": tuple(other.tokens[i] for i in order)} if other.tokens else {},
        sums=other.sums[order],
        texts=tuple(other.texts[i] for i in order),
    )
    for identifier, scored, text in zip(dump.ids, dump.texts, matched.texts, strict=True):
        expected = scored and scored.lower() if name == "lowercase" else scored
        if expected is not None and text is not None and expected != text:
            what = "the lowercased text" if name == "lowercase" else "the same text"
            raise InputError(f"{other.source}: the text of {identifier!r} in {name} is not {what}: {text[:60]!r}")
    return matched


def _summary(dump: LogProbs) -> dict[str, Any]:
    return {
        "source": dump.source,
        "format": dump.format,
        "sha256": dump.sha256,
        "file_sha256": dump.file_sha256 or None,
        "num_texts": len(dump),
        "num_tokens": int(dump.num_tokens.sum()) or None,
        "num_floored": dump.num_floored,
        "statistics": [*dump.statistics],
        "slices": [*dump.slices],
    }


_WHOLE_VOCABULARY = (
    "needs {} at every position, sums over the whole vocabulary; the tokens' own log-probabilities do not hold them, "
    "and top-k lists never suffice. A plain file may have them as lists"
)


def _check_sufficient(
    requests: Mapping[str, Score | None],
    dump: LogProbs,
    num_without_text: int,
    seconds: Mapping[str, Any],
) -> None:
    """Check that every score (None: one of sums) can be computed; all that cannot are named with their reasons."""
    reasons = {label: _missing(label, request, dump, num_without_text, seconds) for label, request in requests.items()}
    if listing := "; ".join(f"{label!r} {reason}" for label, reason in reasons.items() if reason):
        known = as_dump_scores((*OWN, *_OF_SUMS))
        possible = [name for name, one in known.items() if not _missing(name, one, dump, 0, dict.fromkeys(seconds, 1))]
        end = f". Possible from this file: {', '.join(possible)}" if possible else ""
        raise InputError(f"the log-probabilities do not suffice: {listing}{end}")
    used = {name for request in requests.values() if request is not None for name in request.passes()}
    for name, second in seconds.items():
        if second is not None and name not in used:
            raise InputError(f"{name} is given but no score uses it; add {name!r} to scores or leave it out")


def _missing(
    label: str, request: Score | None, dump: LogProbs, num_without_text: int, seconds: Mapping[str, Any]
) -> str | None:
    """Why a score cannot be computed, or None."""
    no_text = (
        f"needs the texts, and {num_without_text} rows have none: name their field with text_field, or give texts="
    )
    if label == CHOICE:
        return None if dump.choices else "needs the log-likelihoods of several choices (multiple_choice of lm-eval)"
    if dump.slices and (request is None or request.name == "zlib" or {*request.passes()} & {*seconds}):
        return "needs whole texts, and this file holds slices of items"
    if dump.statistics and not dump.tokens and (request is None or "log_prob" in request.reads):
        return "needs the log-probabilities of the tokens, and this file has none"
    if request is None:
        return no_text if num_without_text else None
    score = request
    beyond = [name for name in request.reads if name not in ("log_prob", "tokens", *dump.statistics)]
    if orders_of(beyond):
        return "needs the model itself; logged statistics have the orders 0.5, 1, 2 and inf"
    if beyond:
        return _WHOLE_VOCABULARY.format(" and ".join(beyond))
    if not score.computed or "corpus" in score.given:
        return "needs the model itself, not only its log-probabilities; see tdd.score"
    if beyond := [name for name in score.passes() if name not in seconds]:
        return f"needs the model itself ({beyond[0]}); see tdd.score"
    if any(given is not None and given.least > 1 for given in fields_of(score).values()):
        return "needs several reference models; see tdd.score"
    for name in score.passes():
        if seconds[name] is None:
            how = "model=, as in 'reference:model=DUMP'" if name in score.passes() and score.given else f"{name}="
            return f"needs a second dump: give {how}"
    if score.name == "loss" and _sums_suffice(score, dump):
        return None
    if not dump.statistics and score.name != "reference":
        return (
            f"needs the log-probability of every token; {dump.format} files hold their sum and not their number, which "
            "suffices for 'loss_per_byte'"
        )
    if "tokens" in request.reads and not dump.token_ids:
        return "needs the tokens' ids: whole numbers in a list tokens beside log_probs (plain)"
    if num_without_text and (score.name == "zlib" or not dump.statistics):
        return no_text
    return None


def _check_matched(name: str, source: str, missing: Sequence[str]) -> None:
    """Check that every row has its partner."""
    if missing:
        shown = some([*map(repr, missing)])
        raise InputError(
            f"{source}: {len(missing)} ids of the scored texts are not in {name}: {shown}; rows are matched by id"
        )
