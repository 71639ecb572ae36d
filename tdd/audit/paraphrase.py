"""`tdd.paraphrase`: texts -> paraphrases by a local T5 or by a service, kept as they come, so that none is asked twice.

A text of many words is paraphrased sentence by sentence. Each answer is a line of answers.jsonl in the folder of the
run; the table is made of these lines at the end, and a run that was interrupted goes on from them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from tdd.audit.paraphrasers import LocalT5, Service
from tdd.records import Texts
from tdd.runs.atomic import disk_errors, read_regular
from tdd.runs.display import PAGE, report_module
from tdd.runs.folder import (
    SCHEMA,
    fingerprint,
    log_findings,
    open_run_folder,
    read_file,
    read_sealed,
    run_head,
    write_run,
)
from tdd.runs.portable import without_folders
from tdd.texts import load_texts
from tdd.validate import InputError
from tdd.validate.arrays import as_count
from tdd.validate.files import check_choice
from tdd.validate.options import KnownFields
from tdd.validate.settings import on_own_devices

ANSWERS, TABLE = "answers.jsonl", "paraphrases.jsonl"
EXAMPLES = 5
"""Texts that the report shows."""
LOCAL_PROMPT = "paraphrase: {text}"
SERVICE_PROMPT = "Paraphrase the following text. Keep its meaning. Answer with the paraphrase only.\n\n{text}"
DECODINGS = ("sampling", "beams")
_LOCAL = {"temperature": 1.9, "top_k": 50, "top_p": 0.95}
_SERVICE = {"temperature": 1.0, "top_k": None, "top_p": 0.95}
_LINE_END = r"(?<!\s)(\s*\n\s*)"
_TITLES = ("Dr", "Mr", "Ms", "St", "Mrs", "Prof", "Fig", "Figs", "vs", "cf", r"e\.g", r"i\.e")
"""Abbreviations that end no sentence; an initial ends none either."""
_BEFORE_NUMBERS = (
    "No", "Nos", "no", "nos", "fig", "figs", "Vol", "vol", "Ch", "ch", "Sec", "sec", "Eq", "eq", "p", "pp", "ca",
    "approx",
)  # fmt: skip
"""Abbreviations that end no sentence where a digit follows."""
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[^\W\d_a-z]\.)"
    + "".join(rf"(?<!\b{word}\.)" for word in _TITLES)
    + "".join(rf"(?!(?<=\b{word}\.)\s+\d)" for word in _BEFORE_NUMBERS)
    + r"[\"')\]\u201d\u2019]*(\s+)(?=[\"'(\[\u201c\u2018]?[A-Z0-9])"
    + rf"|{_LINE_END}"
)
"""White space between sentences, which end in a mark before a capital or a digit, or with the line."""
_LINES = re.compile(_LINE_END)
_WORD = re.compile(r"\w+")
_COPIES_WARNED, _SHORT, _LONG = 0.05, 0.8, 1.25
_COLDEST = 0.01
_LONGEST_ANSWER = 4_096
"""Most tokens of an answer."""

_EXCHANGEABLE = (
    "Whether a text that was not trained on and its paraphrases are exchangeable, which ktd assumes. The audit's "
    'symmetry test on known non-members can refute it and cannot prove it; rule="conformal" does not need it.'
)
_NEAR = (
    "Whether the versions of a text are exchangeable with each other: those of a beam search are not drawn but ranked, "
    "and often near copies of each other, so that several may tell little more than one."
)


class DecodingOptions(TypedDict, total=False):
    """The fields of `Decoding` as keywords of a call."""

    decoding: str
    temperature: float | None
    top_k: int | None
    top_p: float | None
    max_tokens: int


@dataclasses.dataclass(frozen=True)
class Decoding(KnownFields):
    """How an answer is chosen; see `paraphrase` for the options."""

    decoding: str = "sampling"
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    max_tokens: int = 128

    def settings(self, endpoint: str | None) -> dict[str, Any]:
        """All settings by name, those that were left out among them.

        Raises:
          InputError: another decoding, or an option that it does not have.
        """
        check_choice("decoding", self.decoding, DECODINGS)
        given = {name: getattr(self, name) for name in _LOCAL}
        limit = {"max_tokens": as_count(self.max_tokens, "max_tokens")}
        if self.decoding == "sampling":
            defaults = _LOCAL if endpoint is None else _SERVICE
            return {name: defaults[name] if value is None else value for name, value in given.items()} | limit
        if endpoint is not None:
            raise InputError("decoding='beams' is for a T5 of this machine; leave it out with an endpoint")
        for name, value in given.items():
            if value is not None:
                raise InputError(f"{name}={value!r} is an option of decoding='sampling'; leave it out with 'beams'")
        from tdd.models.beams import BeamSearch

        return dataclasses.asdict(BeamSearch()) | limit


@on_own_devices()
def paraphrase(
    texts: Any,
    *,
    out: str | os.PathLike[str],
    model: str | os.PathLike[str],
    endpoint: str | None = None,
    audited: str | os.PathLike[str] | None = None,
    versions: int = 1,
    seed: int = 0,
    prompt: str | None = None,
    sentence_words: int = 40,
    api_key_variable: str | None = None,
    attempts: int = 6,
    **options: Unpack[DecodingOptions],
) -> dict[str, Any]:
    """Paraphrase texts, for `ktd`.

    An answer depends on the seed, the number of the version and the sentence, and not on the other texts (a service
    may ignore the seed). The folder gets answers.jsonl, paraphrases.jsonl (id, text, label if known, and for each
    version v `paraphrase_v`, `length_ratio_v` in words, `copy_v`, and `cut_v`: an answer reached `max_tokens`),
    run.json and report.html.

    Args:
      texts: What `tdd.load_texts` reads.
      out: Folder of the run; the same call continues an interrupted one, and reads a finished one.
      model: Folder or hub id of a T5; with `endpoint`, the model's name there.
      endpoint: http(s) address of an OpenAI-compatible service, to which /chat/completions is added.
      audited: The model that is to be audited; it is refused as paraphraser, since it writes what it predicts well.
      versions: Paraphrases of each text.
      seed: Non-negative random seed.
      prompt: With {text} where the text goes; None for "paraphrase: {text}" of a T5, and a request in words otherwise.
      sentence_words: Texts with more words are paraphrased sentence by sentence.
      api_key_variable: Environment variable with the key of the service; the key is sent, and written nowhere.
      attempts: How often a sentence is asked before the run ends, if the service is busy, late or answers nonsense.
      **options: how an answer is chosen:

        - decoding: "sampling", or "beams" for a T5: version v is the v-th best sequence of
          `tdd.models.beams.BeamSearch`, whatever the seed.
        - temperature, top_k, top_p: of sampling, see `tdd.models.t5.filtered`; None for 1.9, 50 and .95 of a T5, and 1,
          none and .95 of a service. Temperature 0 is greedy.
        - max_tokens: most tokens of an answer (128).

    Returns:
      What run.json holds: options, `paraphraser`, and `result` with length ratios and copies of each version.

    Raises:
      InputError: options out of range, the audited model, a service that refuses or keeps failing, a folder of
        another run. What was answered is kept.

    Cost: one generation of at most max_tokens tokens for each sentence and version.
    """
    for name, value, kinds in (
        ("model", model, (str, os.PathLike)),
        ("endpoint", endpoint, (str, type(None))),
        ("audited", audited, (str, os.PathLike, type(None))),
    ):
        if not isinstance(value, kinds):
            raise InputError(f"{name} must be a path or a name, got {value!r}")
    read = load_texts(texts)
    chosen = {
        "model": os.fspath(model),
        "endpoint": endpoint,
        "versions": as_count(versions, "versions"),
        "seed": _whole(seed, "seed", 0),
        "prompt": (LOCAL_PROMPT if endpoint is None else SERVICE_PROMPT) if prompt is None else prompt,
        "decoding": Decoding(**options).settings(endpoint),
        "sentence_words": as_count(sentence_words, "sentence_words"),
    }
    _check_options(chosen)
    writer: Any
    if endpoint is not None:
        tries = as_count(attempts, "attempts")
        writer = Service(endpoint, chosen["model"], chosen["decoding"], api_key_variable, tries)
    else:
        writer = LocalT5(chosen["model"], chosen["decoding"])
    _check_not_audited(chosen, writer.facts, audited)
    named = None if audited is None else os.fspath(audited)
    facts = {**chosen, "texts": [read.sha256, read.labels], "paraphraser": writer.facts}
    folder = pathlib.Path(out)
    open_run_folder(folder, fingerprint(facts), f"paraphrases of {read.source} by {chosen['model']}")
    if (folder / "run.json").exists():
        run = read_sealed(folder / "run.json", SCHEMA, "remove the folder and run again")
        if run["options"]["audited"] == named:
            read_file(folder / TABLE, run)
            return run
    pieces = [_pieces(text, chosen["sentence_words"]) for text in read.texts]
    answers = _answered(folder / ANSWERS, pieces, chosen, writer)
    rows = [*_rows(read, pieces, answers, chosen)]
    run = _record(rows, {**chosen, "audited": named}, writer.facts, read)
    write_run(folder, run, {TABLE: (json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)})
    report = report_module("paraphrase").paraphrase_report(run, rows[:EXAMPLES], folder)
    report_module("page").write_page(report, folder / PAGE)
    log_findings(run["warnings"])
    return run


def _whole(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**63:
        raise InputError(f"{name} must be a whole number from {least} on, got {value!r}")
    return int(value)


def _check_options(options: Mapping[str, Any]) -> None:
    decoding, prompt = options["decoding"], options["prompt"]
    if "temperature" in decoding:
        for name, least, most in (("temperature", 0, 100), ("top_p", 0, 1)):
            value = decoding[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InputError(f"{name} must be a number in {least}..{most}, got {value!r}")
        if 0 < decoding["temperature"] < _COLDEST:
            raise InputError(f"temperature must be 0 or at least {_COLDEST}, got {decoding['temperature']!r}")
        if decoding["top_k"] is not None:
            as_count(decoding["top_k"], "top_k")
    elif options["versions"] > decoding["beams"]:
        raise InputError(f"versions must be at most {decoding['beams']}, one a beam, got {options['versions']}")
    if decoding["max_tokens"] > _LONGEST_ANSWER:
        raise InputError(f"max_tokens must be at most {_LONGEST_ANSWER}, got {decoding['max_tokens']}")
    if not isinstance(prompt, str) or prompt.count("{text}") != 1:
        raise InputError(f"prompt must hold {{text}} once, where the text goes; got {prompt!r}")


def _check_not_audited(
    options: Mapping[str, Any], facts: Mapping[str, Any], audited: str | os.PathLike[str] | None
) -> None:
    """The paraphraser is not the model that is audited, by its name or by its files."""
    if audited is None:
        return
    paraphraser, suspect = (_without_revision(os.fspath(one)).casefold() for one in (options["model"], audited))
    same = paraphraser == suspect
    if options["endpoint"] is not None:
        same |= paraphraser.rsplit("/", 1)[-1] == suspect.rsplit("/", 1)[-1]
    elif os.path.isdir(audited):
        from tdd.models.source import fingerprint as of_files

        same |= of_files(audited) == facts["sha256"]
    if same:
        raise InputError(
            f"model {options['model']!r} is the audited model, or has its name: its paraphrases are what it "
            "predicts well, whether or not it has seen the texts, so that ktd compares unlike things; give another "
            "paraphraser"
        )


def _without_revision(name: str) -> str:
    """The name of a model, without the revision of a hub id and without slashes at the end."""
    return (name if os.path.isdir(name) or "@" not in name.rpartition("/")[2] else name.rpartition("@")[0]).rstrip("/")


def _pieces(text: str, sentence_words: int) -> list[tuple[str, str]]:
    """The lines of the text, or its sentences, each with the white space that follows it; less that before the text."""
    text, found, last = text.lstrip(), [], 0
    for match in (_LINES if len(text.split()) <= sentence_words else _SENTENCE_END).finditer(text):
        start, stop = match.span(match.lastindex or 0)
        if text[last:start].strip():
            found.append((text[last:start], text[start:stop]))
            last = stop
    rest = text[last:].rstrip()
    return [*found, (rest, text[last + len(rest) :])] if rest else found


def _name(piece: str, version: int, seed: int) -> str:
    """SHA-256 of (seed, version, piece): names an answer, and seeds it."""
    return hashlib.sha256(f"{seed} {version} {piece}".encode()).hexdigest()


def _answered(
    place: pathlib.Path, pieces: Sequence[Sequence[tuple[str, str]]], options: Mapping[str, Any], writer: Any
) -> dict[str, Mapping[str, Any]]:
    """All answers by their names: those of the file, and those that are asked for now and added to it."""
    held = _read_answers(place)
    missing = {
        name: (options["prompt"].replace("{text}", piece), version)
        for parts in pieces
        for piece, _ in parts
        for version in range(1, options["versions"] + 1)
        if (name := _name(piece, version, options["seed"])) not in held
    }
    with disk_errors(place):
        file = open(place, "ab")  # noqa: SIM115
    with file:
        for name, answer, cut in writer.write(missing):
            held[name] = {"name": name, "answer": answer, "cut": cut}
            with disk_errors(place):
                file.write(json.dumps(held[name], ensure_ascii=False).encode() + b"\n")
                file.flush()
    return held


def _read_answers(place: pathlib.Path) -> dict[str, Mapping[str, Any]]:
    """The whole lines of the file; the beginning of a line, which a run left that was stopped, is removed."""
    if not place.exists():
        return {}
    with disk_errors(place):
        data = read_regular(place)
    whole = data[: data.rfind(b"\n") + 1]
    held = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = json.loads(line)
            name, answer, cut = row["name"], row["answer"], row["cut"]
            if not isinstance(name, str) or not isinstance(answer, str) or not isinstance(cut, bool):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{place}: line {number} is damaged; remove that line and run again") from error
        held[name] = row
    if len(whole) < len(data):
        with disk_errors(place), open(place, "r+b") as file:
            file.truncate(len(whole))
    return held


def _rows(
    read: Texts,
    pieces: Sequence[Sequence[tuple[str, str]]],
    answers: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    for number, (identifier, text, parts) in enumerate(zip(read.ids, read.texts, pieces, strict=True)):
        row: dict[str, Any] = {"id": identifier, "text": text}
        before = text[: len(text) - len(text.lstrip())]
        if read.labels:
            row["label"] = read.labels[number]
        for version in range(1, options["versions"] + 1):
            found = [answers[_name(piece, version, options["seed"])] for piece, _ in parts]
            written = before + "".join(one["answer"] + space for one, (_, space) in zip(found, parts, strict=True))
            row |= {
                f"paraphrase_{version}": written,
                f"length_ratio_{version}": len(written.split()) / len(text.split()),
                f"copy_{version}": _words(written) == _words(text),
                f"cut_{version}": any(one["cut"] for one in found),
            }
        yield row


def _words(text: str) -> list[str]:
    """The words without case and punctuation; the text itself where it has none."""
    return _WORD.findall(text.casefold()) or [text.strip()]


def _record(
    rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any], facts: Mapping[str, Any], read: Any
) -> dict[str, Any]:
    result, warnings = [], []
    for version in range(1, options["versions"] + 1):
        ratios = [row[f"length_ratio_{version}"] for row in rows]
        copies, cut = (sum(row[f"{name}_{version}"] for row in rows) for name in ("copy", "cut"))
        low, median, high = np.quantile(ratios, (0.05, 0.5, 0.95)).tolist()
        column = f"paraphrase_{version}"
        result.append({
            "column": column, "texts": len(rows), "length_ratio_5%": low, "length_ratio_median": median,
            "length_ratio_95%": high, "copies": copies, "cut": cut,
        })  # fmt: skip
        if copies > _COPIES_WARNED * len(rows):
            warnings.append(f"{column}: {copies} of {len(rows)} are the text itself; ktd cannot tell a copy from it")
        if empty := sum(not ratio for ratio in ratios):
            warnings.append(f"{column}: {empty} of {len(rows)} are empty; take these texts out and run again")
        if not _SHORT <= median <= _LONG:
            warnings.append(f"{column}: the median length is {median:.2f} of the text's; lengths alone tell them apart")
        if cut:
            warnings.append(f"{column}: {cut} of {len(rows)} were cut at max_tokens; raise it")
    return without_folders(
        {
            **run_head("paraphrase", options["seed"]),
            "options": dict(options),
            "inputs": {"texts": {"source": read.source, "sha256": read.sha256, "rows": len(rows)}},
            "paraphraser": dict(facts),
            "result": result,
            "warnings": warnings,
            "open_points": [_EXCHANGEABLE, *([_NEAR] if "beams" in options["decoding"] else [])],
            "outcome": f"{len(rows)} texts, {options['versions']} paraphrase{'s' * (options['versions'] > 1)} of each",
        }
    )
