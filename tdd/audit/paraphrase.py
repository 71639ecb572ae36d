"""`tdd.paraphrase`: texts -> paraphrases by a local T5 or by a service, kept as they come, so that none is asked twice.

A text of many words is paraphrased sentence by sentence. Each answer is a line of answers.jsonl in the folder of the
run; the table is made of these lines at the end, and a run that was interrupted goes on from them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import json
import logging
import os
import pathlib
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.records import Texts
from tdd.runs.atomic import disk_errors
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
from tdd.texts import load_texts
from tdd.validate import InputError
from tdd.validate.arrays import as_count
from tdd.validate.files import check_choice

__all__ = ["paraphrase"]

_logger = logging.getLogger(__name__)

ANSWERS, TABLE = "answers.jsonl", "paraphrases.jsonl"
EXAMPLES = 5
"""Texts that the report shows."""
LOCAL_PROMPT = "paraphrase: {text}"
SERVICE_PROMPT = "Paraphrase the following text. Keep its meaning. Answer with the paraphrase only.\n\n{text}"
DECODINGS = ("sampling", "beams")
_LOCAL = {"temperature": 1.9, "top_k": 50, "top_p": 0.95}
_SERVICE = {"temperature": 1.0, "top_k": None, "top_p": 0.95}
_REDRAWS = 5
"""How often a text is drawn at most until it is not empty."""
_LONGEST_SOURCE, _LONGEST_ANSWER = 2_048, 4_096
"""Most tokens of what is paraphrased at once, whose attention takes their square, and of an answer."""
_ROWS = 8
"""Sentences that the local model works on together; fewer are filled up, so that all meet one compiled program."""
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

_EXCHANGEABLE = (
    "Whether a text that was not trained on and its paraphrases are exchangeable, which ktd assumes. The audit's "
    'symmetry test on known non-members can refute it and cannot prove it; rule="conformal" does not need it.'
)
_NEAR = (
    "Whether the versions of a text are exchangeable with each other: those of a beam search are not drawn but ranked, "
    "and often near copies of each other, so that several may tell little more than one."
)

_TIMEOUT = 120
"""Seconds that a service may stay silent."""
_LONGEST_WAIT = 60
_LARGEST = 1 << 20
_SHOWN = 120
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""Statuses that pass."""


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
    decoding: str = "sampling",
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    max_tokens: int = 128,
    sentence_words: int = 40,
    api_key_variable: str | None = None,
    attempts: int = 6,
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
      decoding: "sampling", or "beams" for a T5: version v is the v-th best sequence of `tdd.models.beams.BeamSearch`,
        whatever the seed.
      temperature, top_k, top_p: Of sampling, see `tdd.models.t5.filtered`; None for 1.9, 50 and .95 of a T5, and 1,
        none and .95 of a service. Temperature 0 is greedy.
      max_tokens: Most tokens of an answer.
      sentence_words: Texts with more words are paraphrased sentence by sentence.
      api_key_variable: Environment variable with the key of the service; the key is sent, and written nowhere.
      attempts: How often a sentence is asked before the run ends, if the service is busy, late or answers nonsense.

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
    how = _decoding(decoding, endpoint, {"temperature": temperature, "top_k": top_k, "top_p": top_p})
    options = {
        "model": os.fspath(model),
        "endpoint": endpoint,
        "versions": as_count(versions, "versions"),
        "seed": _whole(seed, "seed", 0),
        "prompt": (LOCAL_PROMPT if endpoint is None else SERVICE_PROMPT) if prompt is None else prompt,
        "decoding": how | {"max_tokens": as_count(max_tokens, "max_tokens")},
        "sentence_words": as_count(sentence_words, "sentence_words"),
    }
    _check_options(options)
    writer: Any
    if endpoint is not None:
        tries = as_count(attempts, "attempts")
        writer = _Service(endpoint, options["model"], options["decoding"], api_key_variable, tries)
    else:
        writer = _LocalT5(options["model"], options["decoding"])
    _check_not_audited(options, writer.facts, audited)
    facts = {**options, "texts": [read.sha256, read.labels], "paraphraser": writer.facts}
    folder = pathlib.Path(out)
    open_run_folder(folder, fingerprint(facts), f"paraphrases of {read.source} by {options['model']}")
    if (folder / "run.json").exists():
        run = read_sealed(folder / "run.json", SCHEMA, "remove the folder and run again")
        read_file(folder / TABLE, run)
        return run
    pieces = [_pieces(text, options["sentence_words"]) for text in read.texts]
    answers = _answered(folder / ANSWERS, pieces, options, writer)
    rows = [*_rows(read, pieces, answers, options)]
    run = _record(rows, {**options, "audited": None if audited is None else os.fspath(audited)}, writer.facts, read)
    write_run(folder, run, {TABLE: (json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)})
    report = report_module("paraphrase").paraphrase_report(run, rows[:EXAMPLES], folder)
    report_module("page").write_page(report, folder / PAGE)
    log_findings(run["warnings"])
    return run


def _whole(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**63:
        raise InputError(f"{name} must be a whole number from {least} on, got {value!r}")
    return int(value)


def _decoding(decoding: str, endpoint: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a decoding by name, those that were given among them."""
    check_choice("decoding", decoding, DECODINGS)
    if decoding == "sampling":
        defaults = _LOCAL if endpoint is None else _SERVICE
        return {name: defaults[name] if value is None else value for name, value in given.items()}
    if endpoint is not None:
        raise InputError("decoding='beams' is for a T5 of this machine; leave it out with an endpoint")
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name}={value!r} is an option of decoding='sampling'; leave it out with 'beams'")
    from tdd.models.beams import BeamSearch

    return dataclasses.asdict(BeamSearch())


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
        data = place.read_bytes()
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
    return {
        **run_head("paraphrase", options["seed"]),
        "options": dict(options),
        "inputs": {"texts": {"source": read.source, "sha256": read.sha256, "rows": len(rows)}},
        "paraphraser": dict(facts),
        "result": result,
        "warnings": warnings,
        "open_points": [_EXCHANGEABLE, *([_NEAR] if "beams" in options["decoding"] else [])],
        "outcome": f"{len(rows)} texts, {options['versions']} paraphrases each",
    }


@dataclasses.dataclass
class _LocalT5:
    """A T5 of this machine."""

    model: str
    decoding: Mapping[str, Any]

    def __post_init__(self) -> None:
        from tdd.models.source import fingerprint as of_files
        from tdd.models.source import resolve

        found = resolve(self.model)
        self.facts = {"kind": "t5", "revision": found.revision, "sha256": of_files(found.folder)}
        self._folder = found.folder

    def write(self, prompts: Mapping[str, tuple[str, int]]) -> Iterator[tuple[str, str, bool]]:
        """(name, answer, whether it was cut) of each prompt and version; those of similar lengths together."""
        if not prompts:
            return
        from tdd.models.t5 import load_t5

        spec, params, tokenizer = load_t5(self._folder)
        rows = {name: _token_ids(tokenizer, prompt, spec.end) for name, (prompt, _) in prompts.items()}
        decoding = {**self.decoding}
        longest = decoding.pop("max_tokens")
        if "beams" in decoding:
            for name, ids in self._searched(spec, params, rows, prompts, longest, decoding):
                yield name, *_text(tokenizer, ids, spec.end)
            return
        decoding["top_k"] = decoding["top_k"] or spec.vocab_size
        for attempt in range(_REDRAWS if decoding["temperature"] else 1):
            empty = {}
            for name, ids in self._drawn(spec, params, rows, attempt, longest, decoding):
                text, cut = _text(tokenizer, ids, spec.end)
                if text or attempt + 1 == _REDRAWS or not decoding["temperature"]:
                    yield name, text, cut
                else:
                    empty[name] = rows[name]
            rows = empty

    @staticmethod
    def _searched(
        spec: Any, params: Any, rows: Mapping[str, list[int]], prompts: Mapping[str, tuple[str, int]], longest: int,
        decoding: Any,
    ) -> Iterator[tuple[str, np.ndarray]]:  # fmt: skip
        """(name, token ids) of each row; each prompt is searched once, for all its versions."""
        from tdd.models.beams import BeamSearch
        from tdd.models.t5 import beams

        names: dict[str, dict[int, str]] = {}
        for name, (prompt, version) in prompts.items():
            names.setdefault(prompt, {})[version] = name
        once = {prompt: rows[next(iter(of_prompt.values()))] for prompt, of_prompt in names.items()}
        for batch, tokens, mask in _batches(once, spec.padding):
            written = np.asarray(beams(spec, params, tokens, mask, BeamSearch(**decoding), longest=longest))
            for prompt, sequences in zip(batch, written[: len(batch)], strict=True):
                for version, name in names[prompt].items():
                    yield name, sequences[version - 1]

    @staticmethod
    def _drawn(
        spec: Any, params: Any, rows: Mapping[str, list[int]], attempt: int, longest: int, decoding: Any
    ) -> Iterator[tuple[str, np.ndarray]]:
        """(name, token ids) of each row; another attempt draws with other keys."""
        import jax

        from tdd.models.t5 import generate

        for batch, tokens, mask in _batches(rows, spec.padding):
            seeds = [int(name[:8], 16) for name in batch] + [0] * (_ROWS - len(batch))
            keys = jax.vmap(jax.random.key)(np.array(seeds, np.uint32))
            if attempt:
                keys = jax.vmap(jax.random.fold_in, (0, None))(keys, 2**31 + attempt)  # tokens fold in their numbers
            written = np.asarray(generate(spec, params, tokens, mask, keys, longest=longest, **decoding))
            yield from zip(batch, written[: len(batch)], strict=True)


def _token_ids(tokenizer: Any, prompt: str, end: int) -> list[int]:
    tokens = list(tokenizer(prompt)["input_ids"])
    tokens = tokens if tokens[-1:] == [end] else [*tokens, end]
    if len(tokens) > _LONGEST_SOURCE:
        raise InputError(
            f"a piece of {len(tokens)} tokens is too long for one answer (at most {_LONGEST_SOURCE}); divide it into "
            f"sentences or lines: {prompt[:60]!r}..."
        )
    return tokens


def _text(tokenizer: Any, ids: np.ndarray, end: int) -> tuple[str, bool]:
    """The answer, and whether it was cut."""
    cut = end not in ids
    ids = ids if cut else ids[: ids.tolist().index(end)]
    return tokenizer.decode(ids, skip_special_tokens=True).strip(), cut


def _padded(length: int) -> int:
    """The next power of two, at least 16: how long a row is depends on nothing but itself."""
    return max(16, 1 << (length - 1).bit_length())


def _batches(rows: Mapping[str, Sequence[int]], padding: int) -> Iterator[tuple[list[str], np.ndarray, np.ndarray]]:
    """Names, tokens [_ROWS, S] and mask of rows of similar lengths."""
    by_length: dict[int, list[str]] = {}
    for name, tokens in rows.items():
        by_length.setdefault(_padded(len(tokens)), []).append(name)
    for length, names in sorted(by_length.items()):
        for start in range(0, len(names), _ROWS):
            batch = names[start : start + _ROWS]
            tokens = np.full((_ROWS, length), padding, np.int32)
            mask = np.zeros((_ROWS, length), bool)
            for row, name in enumerate(batch):
                tokens[row, : len(rows[name])] = rows[name]
                mask[row, : len(rows[name])] = True
            mask[len(batch) :, 0] = True
            yield batch, tokens, mask


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the key would be sent to another address."""

    def redirect_request(self, *ignored: Any) -> None:
        return None


class _NoAnswer(Exception):
    """This attempt gave nothing; `wait` are the seconds that the service asks for, or None."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class _Service:
    """A model behind an address.

    Args:
      endpoint: http or https address; /chat/completions is added where it does not end so.
      model: Its name there.
      decoding: temperature, top_p, top_k (sent where it is not None, as not every service knows it), max_tokens.
      key_variable: Environment variable with the key, or None where none is needed.
      attempts: How often one prompt is sent.

    Raises:
      InputError: an address of another kind, or one that holds a password or options, which would be written down; a
        variable that is not set.
    """

    def __init__(
        self, endpoint: str, model: str, decoding: Mapping[str, Any], key_variable: str | None, attempts: int
    ) -> None:
        plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
        try:
            parts = urllib.parse.urlsplit(endpoint)
            host = (parts.hostname or "").encode("idna")
            known = plain and parts.scheme in ("http", "https") and bool(host) and parts.port != 0
        except ValueError:  # brackets without end, a port that is no number, a name of empty or long parts
            known = False
        if not known:
            raise InputError(f"endpoint must be an http or https address, got {endpoint.split('@')[-1]!r}")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise InputError(
                "endpoint must hold no password, ? or #, as it is written into run.json; put a key into an environment "
                "variable and name that"
            )
        address = endpoint.rstrip("/")
        self._address = address if address.endswith("/chat/completions") else f"{address}/chat/completions"
        self._body = {"model": model, **{name: value for name, value in decoding.items() if value is not None}}
        self._attempts = attempts
        self._key = "" if key_variable is None else os.environ.get(key_variable, "").strip()
        if key_variable is not None and not self._key:
            raise InputError(f"the environment variable {key_variable!r} is not set; it must hold the service's key")
        if not self._key.isprintable() or not self._key.isascii():
            raise InputError(f"the environment variable {key_variable!r} holds characters that no key has")
        self._open = urllib.request.build_opener(_NoRedirects).open
        self.facts = {"kind": "chat completions", "address": self._address}

    def write(self, prompts: Mapping[str, tuple[str, int]]) -> Iterator[tuple[str, str, bool]]:
        """(name, answer, whether it was cut) of each prompt, in turn; the name, in hexadecimal, is its seed.

        Raises:
          InputError: the service refuses a request, or answers none of the attempts.
        """
        for name, (prompt, _) in prompts.items():
            answer, cut = self._answer(prompt, int(name[:8], 16) >> 1)
            yield name, answer, cut

    def _answer(self, prompt: str, seed: int) -> tuple[str, bool]:
        body = {**self._body, "messages": [{"role": "user", "content": prompt}], "seed": seed}
        reason = ""
        for attempt in range(self._attempts):
            try:
                return self._content(self._send(json.dumps(body).encode()))
            except _NoAnswer as failure:
                reason = self._clean(str(failure))
                wait = min(_LONGEST_WAIT, max(2**attempt, failure.wait or 0))
            if attempt + 1 < self._attempts:
                _logger.info("%s: %s; asking again in %d s", self._address, reason, wait)
                time.sleep(wait)
        raise InputError(
            f"{self._address} gave no answer in {self._attempts} attempts: {reason}; what was answered is kept, run "
            "the same command again to continue"
        )

    def _send(self, data: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self._address, data, headers, method="POST")
        try:
            with self._open(request, timeout=_TIMEOUT) as response:
                content = response.read(_LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                said = self._shown(_read_some(error))
            if error.code in _AGAIN:
                raise _NoAnswer(f"status {error.code}: {said}", _seconds(error.headers.get("Retry-After"))) from None
            raise InputError(self._clean(f"{self._address} refuses the request, status {error.code}: {said}")) from None
        except (OSError, http.client.HTTPException) as error:  # no connection, silence, a broken answer
            raise _NoAnswer(str(error) or type(error).__name__) from None
        if len(content) > _LARGEST:
            raise _NoAnswer(f"an answer of more than {_LARGEST} bytes")
        return content

    def _clean(self, text: str) -> str:
        """The text without the key, which a service may repeat, as it is or escaped in JSON."""
        for form in (self._key, json.dumps(self._key)[1:-1], self._key.replace("/", "\\/")) if self._key else ():
            text = text.replace(form, "[key]")
        return text

    def _shown(self, data: bytes) -> str:
        """The beginning of an answer, in one line and without the key."""
        text = " ".join(self._clean(data.decode("utf-8", "replace"))[: 8 * _SHOWN].split())
        return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")

    def _content(self, data: bytes) -> tuple[str, bool]:
        """The first choice's text, and whether it was cut."""
        try:
            choice = json.loads(data)["choices"][0]
            content, reason = choice["message"]["content"], choice.get("finish_reason")
            content.encode()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _NoAnswer(f"no chat completion: {self._shown(data)}") from None
        if not content.strip():
            raise _NoAnswer("an empty answer")
        if self._clean(content) != content:
            raise _NoAnswer("an answer that holds the key")
        return content.strip(), reason not in (None, "stop")


def _read_some(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_LARGEST)
    except (OSError, http.client.HTTPException):
        return b""


def _seconds(header: str | None) -> float | None:
    """Seconds of a Retry-After that is a number."""
    return float(header) if header is not None and header.isdecimal() and header.isascii() else None
