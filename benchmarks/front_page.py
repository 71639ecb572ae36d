"""The picture of README.md: the first screen of the demonstration's report, drawn by a browser.

    python -m benchmarks.front_page --browser chromium

Runs the demonstration, lets a browser of Chromium's family draw its page, and writes `results/demo.png`. The picture
holds the words that it shows and the scores behind them (texts of PNG, called `page` and `scores`): tests decide on
these scores again, and compare the words with what the report says today.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tdd.demo.run import run_demo
from tdd.report.page import write_page
from tdd.report.sections import Facts, Help, Points, Report
from tdd.runs.folder import Audit

PICTURE = pathlib.Path(__file__).with_name("results") / "demo.png"
_SIZE = (1040, 1840)
_BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome", "chrome")
_WORDS, _SCORES = "page", "scores"


def words_of(report: Report) -> str:
    """The words of the first screen, a line each: title, result, and what comes before the first picture or table."""
    lines = [report.title, report.verdict]
    for section in report.sections:
        if isinstance(section, Points):
            lines += [section.title, *section.points]
        elif isinstance(section, (Help, Facts)):
            lines += [section.title, *(": ".join(filter(None, row)) for row in section.rows)]
        else:
            break
    return "\n".join(lines)


def scores_of(audit: Audit) -> str:
    """The scores that decided, with role and known truth, as CSV."""
    (column,) = audit.run["decision"]["columns"]
    known = (("calibration", value, 0) for value in audit.calibration[column].tolist())
    asked = zip(audit.items[column].tolist(), audit.items["label"].tolist(), strict=True)
    rows = [*known, *(("candidate", value, label) for value, label in asked)]
    return "\n".join([f"role,{column},label", *(f"{role},{value!r},{label}" for role, value, label in rows)])


def texts_in(picture: pathlib.Path) -> tuple[str, str]:
    """The words that a picture shows, and the scores behind them."""
    with Image.open(picture) as image:
        return str(image.info[_WORDS]), str(image.info[_SCORES])


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description="Draw the picture of README.md.")
    parser.add_argument("--browser", help=f"command of the browser (default: the first of {', '.join(_BROWSERS)})")
    parser.add_argument("--out", type=pathlib.Path, default=PICTURE, metavar="FILE", help="(default: %(default)s)")
    arguments = parser.parse_args(argv)
    browser = arguments.browser or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        parser.error(f"no browser was found ({', '.join(_BROWSERS)}); name one with --browser")
    audit = run_demo(progress=False).audit
    report = audit.report()
    with tempfile.TemporaryDirectory() as name:
        page, drawn = pathlib.Path(name, "page.html"), pathlib.Path(name, "drawn.png")
        write_page(report, page)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]
        size = f"--window-size={_SIZE[0]},{_SIZE[1]}"
        subprocess.run([browser, *options, size, f"--screenshot={drawn}", page.as_uri()], check=True, timeout=120)
        write_picture(drawn.read_bytes(), words_of(report), scores_of(audit), arguments.out)
    return 0


def write_picture(drawn: bytes, words: str, scores: str, place: pathlib.Path) -> None:
    """A PNG that holds the words which it shows, and the scores behind them."""
    information = PngInfo()
    information.add_itxt(_WORDS, words)
    information.add_itxt(_SCORES, scores, zip=True)
    with Image.open(io.BytesIO(drawn)) as image:
        image.convert("RGB").quantize(256).save(place, pnginfo=information, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
