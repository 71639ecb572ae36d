"""Preparation: marks of whole items that stay behind where calibration items and candidates were not prepared alike.

A byte-order mark before each calibration text, a first letter in lower case or a full stop that was stripped moves
every score. Among the words of a text it has no weight, and the blind baseline does not see it. A mark is a yes/no
question about a whole item: whether a text begins with a lower-case letter, whether a file has the format JPEG.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
import unicodedata
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from tdd.audit.duplicates import identifiers, strings
from tdd.audit.sampling import ROLES, SLACK, subsample, units_of
from tdd.records import Guarantee, Texts

GUARANTEE_ROWS = [
    (
        "tdd.run_audit",
        "preparation",
        Guarantee(
            "P(a warning) <= level",
            ("calibration texts and candidates are exchangeable (groups of them, where groups are named)",),
            "finite-sample",
            "Westfall & Young (1993): the largest of Fisher's exact tests over the marks, by permutation",
        ),
    )
]

_UNLIKE = "{} and {} were not prepared alike: "
_DRAWS, _CHUNK = 1999, 200
_MAX_ITEMS = 10_000
_SHOWN_MARKS, _SHOWN_ITEMS, _SHOWN_CHARACTERS = 3, 2, 40
_READ = 20_000
"""Characters of each end of a text that are read."""


class Marks(NamedTuple):
    """What is asked of N items."""

    phrases: tuple[str, ...]  # each question as a predicate in the plural, "begin with a digit"
    has: np.ndarray  # [marks, N] bool, the answers
    alike: tuple[str, ...]  # what each is about; of marks that are about one thing a message names the clearest
    excerpt: Callable[[int, int], str]  # (mark, item) -> the part of the item that shows its answer


class FoundMark(NamedTuple):
    """A mark that the roles do not share alike."""

    mark: str  # the predicate
    num_calibration: int  # calibration items that have it
    num_candidates: int  # candidates that have it
    p_value: float  # adjusted for the other marks
    calibration: tuple[tuple[str, str], ...]  # (id, excerpt) of two calibration items: with it, if more of them have it
    candidates: tuple[tuple[str, str], ...]  # of two candidates


@dataclasses.dataclass(frozen=True)
class Preparation:
    """The comparison of all marks."""

    p_value: float  # the smallest adjusted p-value of a mark; 1 where the check did not run
    num_marks: int  # marks that some units have and some do not
    num_calibration: int  # items compared
    num_candidates: int
    num_draws: int  # random divisions behind the p-value; 0 where the check did not run
    found: tuple[FoundMark, ...]  # marks at or below the level, at most 3, the clearest first
    unchecked: str  # what was not tested and why, or empty
    warning: str  # empty where nothing was found

    @property
    def finding(self) -> str:
        """The clearest mark in a sentence; empty where nothing was found."""
        if not self.found:
            return ""
        return _UNLIKE.format(*ROLES) + _counts(self.found[0], (self.num_calibration, self.num_candidates), ROLES)


def preparation(
    calibration: Texts | Sequence[str],
    candidates: Texts | Sequence[str],
    *,
    seed: int,
    level: float = 0.01,
    groups: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
    marks: Callable[[Sequence[str]], Marks] | None = None,
    roles: tuple[str, str] = ROLES,
) -> Preparation:
    """Test whether some mark of whole items is more frequent in one role than a random division would make it.

    Marks of texts: the classes of the first and the last character; characters of rare classes (controls, format
    characters such as byte-order marks, soft hyphens and zero-width blanks, unusual blanks, private ones), quotation
    marks and dashes by kind, letters beyond ASCII; Unicode composition; line ends, tabs, repeated and trailing blanks;
    encoding damage; markup, entities and addresses; case throughout; a length that the longest texts have in common;
    whether a text is a copy of another.
    Statistic: the smallest two-sided p-value of Fisher's exact test over the marks. Test: the roles are shuffled among
    the units (items, or groups) 1,999 times; p = (1 + #{shuffles whose smallest p-value is as small}) / 2000, and so
    for each mark.

    Guarantee: P(a warning) <= level at every sample size if units are exchangeable. It holds for all marks together.

    Not seen: what leaves no mark on single items, as another year of half of the texts, words that were replaced one by
    one, or a limit of the length far above most texts: benchmarks/README.md has what was measured. Nothing is corrected
    here: the candidates must stay what the model may have seen, so it is the calibration items that are prepared
    again, by the program that made the candidates.

    Args:
      calibration, candidates: the items, as strings.
      seed: seed of the divisions and of the sample.
      level: a warning is raised at p-values up to this.
      groups: group of every calibration item and of every candidate; roles are shuffled among groups, and a mark is
        that of any item of a group, and again that of most of them.
      marks: what is asked of items that are no texts.
      roles: what the finding calls the two.

    Returns:
      The finding. Where no division could reach the level, the check does not run, and `unchecked` says so.

    Cost: at most 10,000 items (a random sample, balanced as far as possible, with at most equally many of each group)
    and 20,000 characters of each end: a second.
    """
    items = [*strings(calibration), *strings(candidates)]
    names = [*identifiers(calibration), *identifiers(candidates)]
    role = np.repeat([0, 1], [len(calibration), len(candidates)])
    generator = np.random.default_rng((seed, 0x9A2F))
    group: Sequence[Hashable] = range(len(items)) if groups is None else [*groups[0], *groups[1]]
    kept = subsample(role, _MAX_ITEMS, generator, None if groups is None else group)
    role, items, names = role[kept], [items[row] for row in kept], [names[row] for row in kept]
    group = [group[row] for row in kept]
    unit_of_item, unit_role = units_of(role, group)
    counts = int(np.count_nonzero(role == 0)), int(np.count_nonzero(role == 1))
    num_known = int(np.count_nonzero(unit_role == 0))
    if _log_divisions(unit_role.size, num_known) < -math.log(level):
        smaller = min(num_known, unit_role.size - num_known)
        kind = f"{'item' if groups is None else 'group'}{'' if smaller == 1 else 's'}"
        reason = (
            f"whether {roles[0]} and {roles[1]} were prepared alike (the smaller role has {smaller} {kind}, too "
            "few for any difference to be significant)"
        )
        return Preparation(1.0, 0, *counts, 0, (), reason, f"not tested: {reason}")
    asked = (marks or text_marks)(items)
    mark_of, has = _of_units(asked.has, unit_of_item, unit_role.size)
    surprise = _surprise(has, unit_role, generator)
    largest = surprise.max(axis=0, initial=0.0)
    p_values = (1 + np.count_nonzero(largest[1:] >= surprise[:, :1] - 1e-9, axis=1)) / (1 + _DRAWS)
    known = has[:, unit_role == 0].sum(axis=1)
    order = np.lexsort((-known, -surprise[:, 0]))  # of equal ones those that calibration items have
    clear = [row for row in order.tolist() if p_values[row] <= level * SLACK]
    first: dict[str, tuple[int, int]] = {}  # of marks that exclude one another, as the classes of an end, the clearest
    for row in clear:
        mark = int(mark_of[row])
        first.setdefault(asked.alike[mark], (mark, row))
    shown = [*first.values()][:_SHOWN_MARKS]
    found = tuple(_found(asked, mark, float(p_values[row]), role, names) for mark, row in shown)
    return Preparation(
        p_value=float(p_values.min(initial=1.0)),
        num_marks=len({*mark_of.tolist()}),
        num_calibration=counts[0],
        num_candidates=counts[1],
        num_draws=_DRAWS,
        found=found,
        unchecked="",
        warning=_warning(found, counts, roles) if found else "",
    )


def _log_divisions(units: int, known: int) -> float:
    """Logarithm of the number of divisions of the units into the two roles."""
    return math.lgamma(units + 1) - math.lgamma(known + 1) - math.lgamma(units - known + 1)


def _of_units(has: np.ndarray, unit_of_item: np.ndarray, num_units: int) -> tuple[np.ndarray, np.ndarray]:
    """The marks [rows, U] of units that some units have and some do not, and the number of the mark of each row."""
    sizes = np.bincount(unit_of_item, minlength=num_units)
    counts = np.stack([np.bincount(unit_of_item, weights=row, minlength=num_units) for row in has])
    both = np.concatenate([counts > 0, 2 * counts > sizes]) if (sizes > 1).any() else counts > 0
    mark = np.arange(len(both)) % len(has)
    varies = both.any(axis=1) & ~both.all(axis=1)
    return mark[varies], both[varies]


def _surprise(has: np.ndarray, unit_role: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Minus the logarithm of Fisher's p-value of each mark, under the roles and under shuffles: [marks, 1 + draws]."""
    known = (unit_role == 0).astype(np.float32)
    marks = has.astype(np.float32)
    found = [marks @ known[:, None]]
    for start in range(0, _DRAWS, _CHUNK):
        shuffles = np.repeat(known[:, None], min(_CHUNK, _DRAWS - start), axis=1)
        found.append(marks @ generator.permuted(shuffles, axis=0))
    counts = np.concatenate(found, axis=1).round().astype(np.int64)
    tables: dict[int, np.ndarray] = {}
    totals = has.sum(axis=1).tolist()
    for total in totals:
        if total not in tables:
            tables[total] = _fisher(total, has.shape[1], int(known.sum()))
    return np.stack([tables[total][row] for total, row in zip(totals, counts, strict=True)]) if totals else counts * 0.0


def _fisher(total: int, size: int, known: int) -> np.ndarray:
    """Minus the logarithm of the two-sided p-value where k of `total` marked units are among the known, for each k."""
    from scipy.stats import hypergeom

    log_p = np.asarray(hypergeom.logpmf(np.arange(min(total, known) + 1), size, total, known))
    order = np.argsort(log_p, kind="stable")
    tail = np.logaddexp.accumulate(log_p[order])
    # outcomes as likely as one another have the p-value of all of them
    last = np.searchsorted(log_p[order], log_p[order] + 1e-9, side="right") - 1
    surprise = np.empty_like(log_p)
    surprise[order] = -tail[last]
    return np.maximum(surprise, 0.0)


def _found(asked: Marks, mark: int, p_value: float, role: np.ndarray, names: Sequence[str]) -> FoundMark:
    """The mark with counts, and two items of each role that show the difference."""
    has = asked.has[mark]
    counts = [int(np.count_nonzero(has[role == value])) for value in (0, 1)]
    shares = [count / max(1, np.count_nonzero(role == value)) for value, count in enumerate(counts)]
    shown = []
    for value in (0, 1):
        wanted = shares[value] >= shares[1 - value]
        rows = np.flatnonzero((role == value) & (has == wanted))[:_SHOWN_ITEMS]
        shown.append(tuple((str(names[row]), asked.excerpt(mark, int(row))) for row in rows))
    return FoundMark(asked.phrases[mark], counts[0], counts[1], p_value, shown[0], shown[1])


def _warning(found: Sequence[FoundMark], counts: tuple[int, int], roles: tuple[str, str]) -> str:
    parts = []
    for one in found:
        shown = [
            f"{what.removesuffix(' items')}: {', '.join(excerpt for _, excerpt in items)}"
            for what, items in zip(roles, (one.calibration, one.candidates), strict=True)
            if items
        ]
        parts.append(_counts(one, counts, roles, *shown))
    return (
        f"{_UNLIKE.format(*roles)}{'. '.join(parts)}. A mark that one side has moves all scores of that side: prepare "
        f"the {roles[0]} again from their source, by the program that made the {roles[1]}"
    )


def _counts(one: FoundMark, counts: tuple[int, int], roles: tuple[str, str], *more: str) -> str:
    """How many items of each role have a mark, and its p-value."""
    return (
        f"{one.num_calibration} of {counts[0]} {roles[0]} and {one.num_candidates} of {counts[1]} {roles[1]} "
        f"{one.mark} ({'; '.join([f'p = {one.p_value:.3g}', *more])})"
    )


# --- marks of texts ---------------------------------------------------------------------------------------------------

_SENTENCE_END = frozenset(".!?\u2026\u3002\uff01\uff1f")
_CLOSING = frozenset("\"'\u201d\u2019\u00bb)]}\u300d\u300f")
_DAMAGE = re.compile("\ufffd|[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac|\u00ef\u00bb\u00bf|\\\\u[0-9a-fA-F]{4}")

_FIRST = ("an upper-case letter", "a lower-case letter", "a letter without case", "a digit", "white space",
          "a quotation mark", "an invisible character", "a mark or a symbol")  # fmt: skip
_LAST = ("a letter", "a digit", "the end of a sentence", "a closing mark", "white space", "an invisible character",
         "a mark or a symbol")  # fmt: skip
_UNSEEN = ("Cc", "Cf", "Co", "Cn", "Cs")

_CATEGORIES = {
    "Cc": "have a control character", "Cf": "have a format character, as a byte-order mark or a soft hyphen",
    "Co": "have a private or unassigned character", "Cn": "have a private or unassigned character",
    "Cs": "have a private or unassigned character", "Zs": "have an unusual space character",
    "Zl": "have an unusual space character", "Zp": "have an unusual space character",
    "Mn": "have a combining mark",
}  # fmt: skip
_CHARACTERS = {
    "have a carriage return": "\r", "have a tab": "\t", "have a line break": "\n",
    "have a curly quotation mark": "\u201c\u201d", "have a curly apostrophe": "\u2018\u2019",
    "have a straight quotation mark": '"', "have a straight apostrophe": "'", "have a long dash": "\u2013\u2014",
    "have an ellipsis": "\u2026", "have a ligature": "\ufb00\ufb01\ufb02\ufb03\ufb04",
}  # fmt: skip
_PATTERNS = {
    "have two spaces in a row": re.compile("  "),
    "have an empty line": re.compile(r"\n[ \t\r]*\n"),
    "have a space before a line break": re.compile(r"[ \t]\r?\n"),
    "have a word divided at a line break": re.compile(r"[^\W\d_]-\r?\n"),
    "have a space before a punctuation mark": re.compile(r"\w [,.;:!?](?:\s|$)"),
    "have encoding damage": _DAMAGE,
    "have a tag": re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>"),
    "have a character reference": re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{1,6}|#x[0-9a-fA-F]{1,5});"),
    "have Markdown": re.compile(r"(?m)^#{1,6} |\*\*\w|^```|\]\(\S"),
    "have a web address": re.compile(r"https?://|www\."),
    "have a digit": re.compile(r"\d"),
    "have an upper-case letter": re.compile(r"[A-Z\u00c0-\u00d6\u0391-\u03a9\u0410-\u042f]"),
    "have a lower-case letter": re.compile(r"[a-z\u00df-\u00f6\u03b1-\u03c9\u0430-\u044f]"),
    "have a punctuation mark": re.compile(r"[,.;:!?]"),
    "have a comma": re.compile(","),
}


@functools.cache
def _category(character: str) -> str:
    return unicodedata.category(character)


def _first_class(text: str) -> str:
    """One of `_FIRST`."""
    if not text or text[0].isspace():
        return "white space"
    kind = _category(text[0])
    if kind in _UNSEEN:
        return "an invisible character"
    known = {"Lu": "an upper-case letter", "Lt": "an upper-case letter", "Ll": "a lower-case letter", "Nd": "a digit"}
    if text[0] in "\"'" or kind in ("Pi", "Pf"):
        return "a quotation mark"
    return known.get(kind, "a letter without case" if kind[0] == "L" else "a mark or a symbol")


def _last_class(text: str) -> str:
    """One of `_LAST`."""
    if not text or text[-1].isspace():
        return "white space"
    last = text[-1]
    if last in _SENTENCE_END or (last in _CLOSING and len(text) > 1 and text[-2] in _SENTENCE_END):
        return "the end of a sentence"
    kind = _category(last)
    return (
        "a closing mark" if last in _CLOSING
        else "a letter" if kind[0] in "LM"
        else "a digit" if kind == "Nd"
        else "an invisible character" if kind in _UNSEEN
        else "a mark or a symbol"
    )  # fmt: skip


_PHRASES = (
    *(f"begin with {kind}" for kind in _FIRST),
    *(f"end with {kind}" for kind in _LAST),
    *dict.fromkeys(_CATEGORIES.values()),
    "have a letter beyond ASCII",
    *_CHARACTERS,
    *_PATTERNS,
    "are not in Unicode's composed form (NFC)",
)
_OF_LENGTH = ("are as long as the longest in characters", "are as long as the longest in words")
_COPIES = "are copies of another item"


def _answers(text: str) -> list[bool]:
    """Answers to `_PHRASES`."""
    text = text if len(text) <= 2 * _READ else text[:_READ] + text[-_READ:]
    there = {*text}
    kinds = {_CATEGORIES.get(_category(one)) for one in there - {" ", "\n", "\r", "\t"}}
    first, last = _first_class(text), _last_class(text)
    return [
        *(kind == first for kind in _FIRST),
        *(kind == last for kind in _LAST),
        *(phrase in kinds for phrase in dict.fromkeys(_CATEGORIES.values())),
        any(one > "\x7f" and _category(one)[0] == "L" for one in there),
        *(not there.isdisjoint(characters) for characters in _CHARACTERS.values()),
        *(pattern.search(text) is not None for pattern in _PATTERNS.values()),
        not unicodedata.is_normalized("NFC", text),
    ]


def text_marks(texts: Sequence[str]) -> Marks:
    """The marks of texts.

    >>> marks = text_marks(["The end.", "the end"])
    >>> [phrase for phrase, (a, b) in zip(marks.phrases, marks.has) if b and not a]
    ['begin with a lower-case letter', 'end with a letter']
    """
    answers = np.array([_answers(text) for text in texts], bool).reshape(len(texts), len(_PHRASES)).T
    lengths = np.array([[len(text), len(text.split())] for text in texts], np.int64).reshape(-1, 2).T
    longest = lengths == lengths.max(axis=1, initial=0)[:, None]
    phrases = (*_PHRASES, *_OF_LENGTH, _COPIES)

    def excerpt(mark: int, item: int) -> str:
        return excerpt_of(texts[item], phrases[mark])

    about = tuple(" ".join(phrase.split()[:2]) if phrase.startswith(("begin", "end")) else phrase for phrase in phrases)
    return Marks(phrases, np.concatenate([answers, longest, copied(texts)[None]]), about, excerpt)


def copied(items: Sequence[str]) -> np.ndarray:
    """Which items are equal to another one, up to case and white space: [N] bool."""
    plain = [" ".join(item.split()).casefold() for item in items]
    counts = collections.Counter(plain)
    return np.array([counts[item] > 1 for item in plain], bool)


def excerpt_of(text: str, phrase: str) -> str:
    """The part of a text that shows whether it has a mark, with characters that cannot be seen as escapes.

    >>> excerpt_of("\\ufeffThe quick brown fox", "have a format character, as a byte-order mark or a soft hyphen")
    '"\\\\ufeffThe quick brown fox"'
    """
    place = _place(text, phrase)
    start = max(0, min(place - _SHOWN_CHARACTERS // 2, len(text) - _SHOWN_CHARACTERS))
    part = text[start : start + _SHOWN_CHARACTERS]
    seen = "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in part)
    return f'{"... " * (start > 0)}"{seen}"{" ..." * (start + len(part) < len(text))}'


def _place(text: str, phrase: str) -> int:
    """Where the mark stands: at an end, or where it is first found."""
    if phrase.startswith("end with") or phrase in _OF_LENGTH:
        return len(text)
    if (pattern := _PATTERNS.get(phrase)) is not None and (match := pattern.search(text)):
        return match.start()
    wanted = _CHARACTERS.get(phrase, "")
    places = (
        place
        for place, one in enumerate(text)
        if one in wanted or (not wanted and one not in " \n\r\t" and _CATEGORIES.get(_category(one)) == phrase)
    )
    return next(places, 0)
