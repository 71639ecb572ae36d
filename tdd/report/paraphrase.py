"""The report of a run of paraphrases: who wrote them and how, lengths and copies, examples, how to go on."""

from __future__ import annotations

import pathlib
import shlex
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from tdd.audit.paraphrase import EXAMPLES, TABLE
from tdd.report.sections import Column, Facts, Points, Report, Row, Section, Table, guide
from tdd.runs.folder import read_file
from tdd.validate import InputError, spelled
from tdd.validate.files import parse_json

_SHOWN = 400
_GUIDE = (
    "An audit by ktd compares the score of each text with those of its paraphrases. This page shows how they were "
    "written; it says nothing about training.",
    "Read the first texts beside their paraphrases: each should say the same in other words, in a similar length.",
    "The audited model must not write the paraphrases: it may find its own words likely.",
)


def read_rows(folder: pathlib.Path, run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The first rows of the table, those that the report shows.

    Raises:
      InputError: no such table, one that was damaged or edited, or one of another run.
    """
    lines = read_file(folder / TABLE, run).splitlines()
    try:
        rows = [parse_json(line.decode()) for line in lines[:EXAMPLES]]
        _examples(run, rows)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / TABLE} is damaged: {error}; make the run again") from error
    return rows


def next_command(run: Mapping[str, Any], folder: pathlib.Path) -> str:
    """The command that audits the texts with their paraphrases, from the folder that holds theirs."""
    audited, columns = run["options"]["audited"] or "MODEL", ",".join(one["column"] for one in run["result"])
    table = shlex.quote(str(pathlib.PurePath(folder.name) / TABLE))
    return f"tdd audit {shlex.quote(audited)} --candidates {table} --method ktd --knockoffs {columns}"


def paraphrase_report(run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], folder: pathlib.Path) -> Report:
    """The report of a run.

    Args:
      run: Content of run.json.
      rows: First rows of its table.
      folder: Where the run is.
    """
    sections: list[Section] = [guide(_GUIDE), Points("What this run does not establish", tuple(run["open_points"]))]
    if run["warnings"]:
        sections.insert(0, Points("Warnings", tuple(run["warnings"]), "warning"))
    names = ("5%", "median", "95%")
    columns = (Column("version"), *(Column(name, number=True) for name in ("texts", *names, "copies", "cut")))
    lines = tuple(
        Row(
            (
                one["column"],
                f"{one['texts']:,}",
                *(f"{one[f'length_ratio_{name}']:.2f}" for name in names),
                f"{one['copies']:,}",
                f"{one['cut']:,}",
            )
        )
        for one in run["result"]
    )
    note = (
        "5%, median and 95%: quantiles of the number of words of a paraphrase, divided by that of its text. Copies: "
        "paraphrases that are the text itself. Cut: those that reached max_tokens."
    )
    shown = (Column("id"), Column("version"), Column("text"))
    sections += [
        Table("Lengths and copies", columns, lines, note),
        Table("The first texts", shown, _examples(run, rows)),
        Facts("How they were written", tuple(_facts(run))),
        Points("How to go on", (next_command(run, folder),)),
    ]
    return Report(f"Paraphrases by {run['options']['model']}", run["outcome"], tuple(sections))


def _examples(run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[Row, ...]:
    columns = ("text", *(one["column"] for one in run["result"]))
    return tuple(
        Row(
            (spelled(str(row["id"])) if column == "text" else "", column, _shortened(row[column])),
            ruled=column == "text",
        )
        for row in rows
        for column in columns
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " ..."


def _known_by(writer: Mapping[str, Any]) -> str:
    """What identifies the paraphraser: its hash, or the host of a service; plain http is for machines nearby."""
    if "address" not in writer:
        return f"sha256 {writer['sha256']}"
    address = urllib.parse.urlsplit(writer["address"])
    return f"address {address.hostname}" if address.scheme == "https" else "address in run.json"


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    options, writer, source = run["options"], run["paraphraser"], run["inputs"]["texts"]
    return [
        ("model", f"{options['model']} ({writer['kind']}; {_known_by(writer)})"),
        ("prompt", options["prompt"]),
        ("decoding", ", ".join(f"{name} {value}" for name, value in options["decoding"].items() if value is not None)),
        ("seed", str(options["seed"])),
        ("by sentence", f"texts of more than {options['sentence_words']} words"),
        ("refused as paraphraser", options["audited"] or "no model was named"),
        ("input", f"{source['rows']:,} texts of {source['source']} (contents {source['sha256'][:12]})"),
    ]
