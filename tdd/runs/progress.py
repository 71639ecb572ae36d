"""A progress bar on standard error, with rate and time left; silent where nobody watches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]


@contextlib.contextmanager
def progress_bar(
    description: str, total: int, *, enabled: bool, unit: str = "tokens"
) -> Iterator[Callable[[float], None]]:
    """Yield `advance(count)`. The bar shows units a second and the time left, if stderr is a terminal."""
    if not (enabled and sys.stderr.isatty()):
        yield lambda count: None
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
        yield lambda count: bar.advance(task, count)
