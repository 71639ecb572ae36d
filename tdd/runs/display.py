"""Results that show themselves, in notebooks, as a page, as Markdown, figures or a data frame; and a progress bar."""

from __future__ import annotations

import abc
import contextlib
import importlib
import math
import pathlib
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from tdd.validate import InputError, some

PAGE = "report.html"
"""Name of the report in the folder of a run."""


class Displayed(abc.ABC):
    """A result of `tdd.run_audit`, `tdd.select`, `tdd.run_exchange`, a study or a power plan.

    `tdd.report` makes the report; it is loaded on the first call.
    """

    def to_html(self) -> str:
        """The report as one HTML page without scripts; it loads nothing from outside."""
        return report_module("page").to_html(self.report())

    def to_markdown(self) -> str:
        """The report in GitHub's Markdown, without figures."""
        return report_module("page").to_markdown(self.report())

    def write_page(self, folder: pathlib.Path) -> None:
        """Write `to_html()` as report.html into the folder of the run, whole or not at all."""
        report_module("page").write_page(self.report(), folder / PAGE)

    def figures(self) -> dict[str, Any]:
        """The figures of the report: title -> `matplotlib.figure.Figure`."""
        return report_module("page").figures(self.report())

    def plot(self, title: str | None = None) -> Any:
        """One of `figures()`: the first, or the one with this title; a notebook shows it.

        Returns:
          A `matplotlib.figure.Figure`, of no window: `savefig` writes it.

        Raises:
          InputError: no such figure; a run whose verdict is withheld, and a single row, have none.
        """
        drawn = self.figures()
        if title is None and drawn:
            return next(iter(drawn.values()))
        if title not in drawn:
            asked = "no figure" if title is None else f"no figure {title!r}"
            raise InputError(f"this result has {asked}; it has {some(sorted(drawn)) if drawn else 'none'}")
        return drawn[title]

    def to_pandas(self) -> Any:
        """The rows of the result as a `pandas.DataFrame`.

        These are the items of an audit, the shards of a test of canonical order, the settings of a study or of a plan.

        Raises:
          ImportError: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        rows = self._rows()
        columns = {name: list(values) for name, values in rows.items()} if isinstance(rows, dict) else list(rows)
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        try:
            report = self.report()
        except Exception:  # of a result made by hand, in the middle of somebody's traceback
            return object.__repr__(self)
        return f"<{type(self).__name__}: {': '.join(filter(None, (report.title, report.verdict)))}>"

    def _repr_html_(self) -> str:
        return report_module("page").to_html(self.report(), whole=False)

    @abc.abstractmethod
    def report(self) -> Any:
        """The report, a `tdd.report.sections.Report`: title, verdict and sections."""

    @abc.abstractmethod
    def _rows(self) -> Any:
        """A dict of columns, or a sequence of rows."""


def report_module(name: str = "") -> Any:
    """`tdd.report`, which stands above the results, or a module of it."""
    return importlib.import_module(f"tdd.report.{name}".rstrip("."))


def level_in_words(alpha: float) -> str:
    """The level in percent, without the noise of binary fractions: 10% for 0.1.

    >>> level_in_words(0.1), level_in_words(0.0125)
    ('10%', '1.25%')
    """
    from tdd.kernels import lattice

    level = lattice.as_level(alpha)
    percent = 100 * Fraction(int(level.numerator), int(level.denominator))
    return f"{percent.numerator}%" if percent.denominator == 1 else f"{float(percent):g}%"


def format_p_value(p_value: Any, log_p_value: Any = None, level: float | None = None) -> str:
    """A p-value for readers: .031 as it is, tiny ones as a power of ten.

    With a `level` it has as many digits as it takes to stand on the same side of it as the p-value.

    >>> format_p_value(0.0312), format_p_value(0.0, -46.05), format_p_value(0.05002, level=0.05)
    ('0.031', '1.0e-20', '0.05002')
    """
    if not is_known(p_value):
        return "unknown"
    log = log_p_value if is_known(log_p_value) else math.log(p_value) if p_value > 0 else -math.inf
    if log == -math.inf:
        return "0"
    texts = (_of_digits(p_value, log, digits) for digits in range(2, 18))
    right = (text for text in texts if level is None or (float(text) <= level) == (p_value <= level))
    return next(right, repr(float(p_value)))


def _of_digits(p_value: float, log: float, digits: int) -> str:
    if log > math.log(1e-3):
        return f"{p_value:.{digits}g}"
    exponent = math.floor(log / math.log(10))
    mantissa = f"{math.exp(log - exponent * math.log(10)):.{digits - 1}f}"
    return f"{mantissa}e{exponent}" if float(mantissa) < 10 else f"{1:.{digits - 1}f}e{exponent + 1}"


def is_known(value: Any) -> bool:
    """A number, neither None nor NaN."""
    return value is not None and not math.isnan(value)


@contextlib.contextmanager
def progress_bar(description: str, total: int, *, enabled: bool, unit: str = "tokens") -> Iterator[Callable[..., None]]:
    """Yield `advance(count)` of a bar with units a second and the time left; silent if stderr is no terminal.

    `advance(count, total=..., description=...)` changes what was given before.
    """
    if not (enabled and sys.stderr.isatty()):
        yield lambda count, **changes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Units a second."""

        def render(self, task):
            digits = 0 if unit == "tokens" else 2
            return Text(f"{task.speed:,.{digits}f} {unit}/s" if task.speed else f"- {unit}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count, **changes: bar.update(task, advance=count, **changes)
