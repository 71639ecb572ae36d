"""Results that show themselves: in notebooks, as a page, as Markdown, as figures, as a data frame."""

from __future__ import annotations

import abc
import importlib
from typing import Any

__all__ = ["Displayed"]


class Displayed(abc.ABC):
    """A result of `tdd.run_audit`, `tdd.select`, `tdd.run_exchange`, a study or a power plan.

    The report is made by `tdd.report`, a layer above the results, which is loaded on the first call.
    """

    def to_html(self) -> str:
        """The report as one HTML page without scripts; it loads nothing from outside."""
        return _report("page").to_html(self._report())

    def to_markdown(self) -> str:
        """The report in GitHub's Markdown, without figures."""
        return _report("markdown").to_markdown(self._report())

    def figures(self) -> dict[str, Any]:
        """The figures of the report: title -> `matplotlib.figure.Figure`."""
        return _report("page").figures(self._report())

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
            report = self._report()
        except Exception:  # of a result made by hand, in the middle of somebody's traceback
            return object.__repr__(self)
        return f"<{type(self).__name__}: {': '.join(filter(None, (report.title, report.verdict)))}>"

    def _repr_html_(self) -> str:
        return _report("page").to_html(self._report(), whole=False)

    def _report(self) -> Any:
        return _report("run").result_report(self)

    @abc.abstractmethod
    def _rows(self) -> Any:
        """A dict of columns, or a sequence of rows."""


def _report(name: str) -> Any:
    return importlib.import_module(f"tdd.report.{name}")
