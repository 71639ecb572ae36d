"""What writes paraphrases: a T5 of this machine, or a model behind an address.

Both have `facts`, which identify them in run.json, and `write`: prompts by name -> (name, answer, was it cut) each.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import logging
import os
import queue
import threading
import time
import unicodedata
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from tdd.audit.masked import masked
from tdd.validate import InputError, printable

_logger = logging.getLogger(__name__)

_REDRAWS = 5
"""How often a text is drawn at most until it is not empty."""
_LONGEST_SOURCE = 2_048
"""Most tokens of what is paraphrased at once; attention takes their square."""
_ROWS = 8
"""Sentences that the local model works on together; fewer are filled up, so that all meet one compiled program."""

_TIMEOUT = 120
"""Seconds that a service may stay silent."""
_DEADLINE = 600
"""Seconds after which an answer that is not whole is given up."""
_LONGEST_WAIT = 60
_LARGEST = 1 << 20
_SHOWN = 120
_OK, _REDIRECTED = 200, 300
_REDIRECTS = {301, 302, 303, 307, 308}
_T = TypeVar("_T")
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""Statuses that pass."""


@dataclasses.dataclass
class LocalT5:
    """A T5 of this machine."""

    model: str
    decoding: Mapping[str, Any]

    def __post_init__(self) -> None:
        from tdd.models.source import fingerprint as of_files
        from tdd.models.source import resolve

        found = resolve(self.model, gguf=False)
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


class Service:
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
                return self._content(self._send(json.dumps(body).encode()), prompt)
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
            status, headers, content = _within(_DEADLINE, lambda: self._received(request))
        except (OSError, http.client.HTTPException) as error:  # no connection, silence, a broken answer
            raise _NoAnswer(str(error) or type(error).__name__) from None
        if status in _REDIRECTS:
            place = self._clean(headers.get("Location") or "no address")
            raise InputError(
                f"{self._address} sends on to {place!r} (status {status}); neither the key nor the texts are sent "
                "there: give that address as endpoint if you trust it"
            )
        if status in _AGAIN:
            raise _NoAnswer(f"status {status}: {self._shown(content)}", _seconds(headers.get("Retry-After")))
        if not _OK <= status < _REDIRECTED:
            said = self._shown(content)
            raise InputError(self._clean(f"{self._address} refuses the request, status {status}: {said}"))
        if len(content) > _LARGEST:
            raise _NoAnswer(f"an answer of more than {_LARGEST} bytes")
        promised = headers.get("Content-Length", "")
        if _is_count(promised) and len(content) < float(promised):  # int() refuses 5,000 digits
            raise _NoAnswer(f"an answer that was cut short, {len(content)} of {promised} bytes")
        return content

    def _received(self, request: urllib.request.Request) -> tuple[int, Any, bytes]:
        """Status, header lines and body, of what is too large its beginning, of an error what can be read."""
        try:
            with self._open(request, timeout=_TIMEOUT) as response:
                return response.status, response.headers, response.read(_LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, _read_some(error)

    def _clean(self, text: str) -> str:
        """The text as one printable line without the key, which a service may repeat in any spelling."""
        return printable(masked(text, self._key))

    def _shown(self, data: bytes) -> str:
        """The beginning of an answer, in one line and without the key."""
        text = " ".join(masked(data.decode("utf-8", "replace"), self._key)[: 8 * _SHOWN].split())
        return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")

    def _content(self, data: bytes, prompt: str) -> tuple[str, bool]:
        """The first choice's text, and whether it was cut; with no control character that the prompt does not hold."""
        try:
            choice = json.loads(data)["choices"][0]
            content, reason = choice["message"]["content"], choice.get("finish_reason")
            content.encode()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _NoAnswer(f"no chat completion: {self._shown(data)}") from None
        if not content.strip():
            raise _NoAnswer("an empty answer")
        if masked(content, self._key) != content:
            raise _NoAnswer("an answer that holds the key")
        known = {*prompt, "\t", "\n", "\r"}
        if odd := next((c for c in content if unicodedata.category(c) == "Cc" and c not in known), ""):
            raise _NoAnswer(f"an answer with the control character {odd!r}")
        return content.strip(), reason not in (None, "stop")


def _read_some(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_LARGEST)
    except (OSError, http.client.HTTPException):
        return b""


def _within(seconds: float, call: Callable[[], _T]) -> _T:
    """What `call` returns or raises; a service that keeps a connection alive by single bytes is not waited for."""
    done: queue.SimpleQueue[tuple[_T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put((call(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        value, error = done.get(timeout=seconds)
    except queue.Empty:
        raise _NoAnswer(f"no whole answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return cast(_T, value)


def _is_count(text: str) -> bool:
    return text.isdecimal() and text.isascii()


def _seconds(header: str | None) -> float | None:
    """Seconds of a Retry-After that is a number; infinite, and then cut off, beyond what a float holds."""
    return float(header) if header is not None and _is_count(header) else None
