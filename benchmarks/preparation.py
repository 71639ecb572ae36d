"""What the checks without a model find of calibration texts that were prepared in another way, and how often they err.

Eight kinds of text, drawn by generators; one change of a share of the calibration texts; a verdict is withheld by the
checks of an audit together, as `tdd.run_audit` withholds it.

    python -m benchmarks.preparation
"""

from __future__ import annotations

import argparse
import inspect
import re
import string
import time
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks import harness
from tdd.audit import blind_baseline as code
from tdd.audit.assemble import failures
from tdd.audit.items import compare_roles
from tdd.audit.preparation import preparation
from tdd.audit.sampling import OF_EACH
from tdd.lab.corpus import generate
from tdd.records import Texts

SHARES = (1.0, 0.75, 0.5, 0.25, 0.1)
CALIBRATED = types.SimpleNamespace(num_calibration=1)


def prose(rng: np.random.Generator, count: int) -> list[str]:
    return [*generate(count, seed=int(rng.integers(2**31))).texts]


_LINES = [line for line in inspect.getsource(code).splitlines() if line.strip()]


def source(rng: np.random.Generator, count: int) -> list[str]:
    """Six lines of a program."""
    return ["\n".join(_LINES[start : start + 6]) for start in rng.integers(0, len(_LINES) - 6, count).tolist()]


def templated(rng: np.random.Generator, count: int) -> list[str]:
    rows = zip(prose(rng, count), rng.integers(1, 500, count).tolist(), strict=True)
    return [f"Invoice {number}\nItem: {' '.join(text.split()[:4])}\nTotal: {number}.00 EUR" for text, number in rows]


def multilingual(rng: np.random.Generator, count: int) -> list[str]:
    """Words of five scripts, a text in one of them."""
    alphabets = [
        string.ascii_lowercase,
        "\u03b1\u03b2\u03b3\u03b4\u03b5\u03b6\u03b7\u03b8\u03b9\u03ba\u03bb\u03bc\u03bd\u03bf\u03c0",
        "\u0430\u0431\u0432\u0433\u0434\u0435\u0436\u0437\u0438\u043a\u043b\u043c\u043d\u043e\u043f\u0440\u0441\u0442",
        "\u3042\u3044\u3046\u3048\u304a\u304b\u304d\u304f\u3051\u3053",
        "\u7684\u4e00\u662f\u4e0d\u4e86\u4eba\u6211\u5728\u6709\u4ed6",
    ]  # fmt: skip
    texts = []
    for kind in rng.integers(0, len(alphabets), count).tolist():
        letters, blank, stop = alphabets[kind], " " if kind < 3 else "", "." if kind < 3 else "。"
        words = ["".join(rng.choice([*letters], rng.integers(2, 8))) for _ in range(30)]
        texts.append(blank.join(words).capitalize() + stop)
    return texts


def short(rng: np.random.Generator, count: int) -> list[str]:
    """Questions of at most eight words."""
    return ["Who is " + " ".join(text.split()[: rng.integers(2, 6)]).strip(".,") + "?" for text in prose(rng, count)]


def dialogue(rng: np.random.Generator, count: int) -> list[str]:
    sentences = [re.split(r"(?<=[.?!]) ", text) for text in prose(rng, count)]
    return ["\n".join(f"{'AB'[turn % 2]}: {one}" for turn, one in enumerate(text)) for text in sentences]


def tables(rng: np.random.Generator, count: int) -> list[str]:
    return ["\n".join(",".join(map(str, row)) for row in rng.integers(0, 1000, (6, 4))) for _ in range(count)]


def near_copies(rng: np.random.Generator, count: int) -> list[str]:
    """Twenty texts, each time with one other word."""
    bases = [text.split() for text in prose(rng, 20)]
    texts = []
    for which in rng.integers(0, 20, count).tolist():
        words = [*bases[which]]
        words[rng.integers(0, len(words))] = "".join(rng.choice([*string.ascii_lowercase], 5))
        texts.append(" ".join(words))
    return texts


KINDS: dict[str, Callable[[np.random.Generator, int], list[str]]] = {
    "prose": prose, "code": source, "templated": templated, "multilingual": multilingual, "short": short,
    "dialogue": dialogue, "tables": tables, "near copies": near_copies,
}  # fmt: skip


def _words_replaced(text: str) -> str:
    """Every tenth word by another of the same text."""
    words = text.split(" ")
    return " ".join(words[(7 * place) % len(words)] if place % 10 == 5 else word for place, word in enumerate(words))


CHANGES: dict[str, Callable[[str], str]] = {
    "first word dropped": lambda text: text.split(" ", 1)[-1],
    "first letter in lower case": lambda text: text[:1].lower() + text[1:],
    "byte-order mark": lambda text: "\ufeff" + text,
    "soft hyphen": lambda text: text[: len(text) // 2] + "\u00ad" + text[len(text) // 2 :],
    "zero-width blank": lambda text: text[:20] + "\u200b" + text[20:],
    "last full stop stripped": lambda text: text.rstrip(".\u3002?"),
    "cut at 90%": lambda text: text[: int(0.9 * len(text))],
    "trailing line end": lambda text: text + "\n",
    "at most 60 words": lambda text: " ".join(text.split(" ")[:60]),
    "at most 40 words": lambda text: " ".join(text.split(" ")[:40]),
    "every tenth word replaced": _words_replaced,
    "another year": lambda text: re.sub(r"\b1(\d{3})\b", r"2\1", text),
}


def withheld(kind: str, size: int, change: str, share: float, seed: int) -> tuple[bool, bool]:
    """Whether marks alone, and all checks together, withhold the verdict of one division."""
    rng = np.random.default_rng((seed, size, [*KINDS].index(kind)))
    texts = KINDS[kind](rng, 2 * size)
    changed = rng.permutation(size) < round(share * size)
    known = [CHANGES[change](text) if change and one else text for text, one in zip(texts, changed, strict=False)]
    roles = [
        Texts(tuple(f"{role}{place}" for place in range(size)), tuple(part))
        for role, part in (("k", known[:size]), ("c", texts[size:]))
    ]
    if share < 1 and change:
        return bool(preparation(*roles, seed=seed, level=OF_EACH).warning), False
    found = compare_roles(*roles, seed=seed)
    decision: Any = CALIBRATED
    return bool(found["preparation"].warning), bool(failures(found, decision))


def _rates(calls: list[tuple[Any, ...]], pool: ProcessPoolExecutor) -> list[float]:
    return np.mean([*pool.map(withheld, *zip(*calls, strict=True), chunksize=8)], axis=0).tolist()


def measure(valid: int, divisions: int, workers: int) -> dict[str, Any]:
    """Rates of withheld verdicts: of valid data by kind, and of each change of prose by share and size."""
    with ProcessPoolExecutor(workers) as pool:
        rows = []
        for kind in KINDS:
            marks, together = _rates([(kind, 40, "", 1.0, seed) for seed in range(valid)], pool)
            rows.append({"kind": kind, "audits": valid, "marks": marks, "all checks": together})
        changed = []
        for change in CHANGES:
            for size in (150, 40):
                row: dict[str, Any] = {"change": change, "size": size}
                for share in SHARES:
                    marks, together = _rates([("prose", size, change, share, seed) for seed in range(divisions)], pool)
                    row[f"{share:g}"] = marks
                    if share == 1:
                        row["all checks"] = together
                changed.append(row)
    texts = prose(np.random.default_rng(0), 10_000)
    started = time.perf_counter()
    preparation(texts[:5_000], texts[5_000:], seed=0)
    seconds = time.perf_counter() - started
    return {"valid": rows, "changes": changed, "divisions": divisions, "seconds of 10,000 texts": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--valid", type=int, default=250, help="audits of valid data of each kind")
    parser.add_argument("--divisions", type=int, default=40, help="divisions for each change, share and size")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    result = measure(given.valid, given.divisions, given.workers)
    print(harness.write("preparation", {"command": "python -m benchmarks.preparation", **result}).name)


if __name__ == "__main__":
    main()
