"""One table with a text and its paraphrases as columns → texts, knockoffs, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tdd.records import Texts
from tdd.texts.load import hash_texts, texts_of_rows
from tdd.texts.read import read_rows
from tdd.validate import tables as table_checks
from tdd.validate import texts as checks
from tdd.validate.errors import InputError
from tdd.validate.texts import fields_found, is_absent

__all__ = ["TextColumns", "load_text_columns"]


class TextColumns(NamedTuple):
    """The texts of one table.

    Attributes:
      texts: N texts with ids and labels.
      knockoffs: k `Texts`, the j-th with the j-th paraphrase of every text, in the same order and with the same ids.
      groups: N names of clusters (the book of a passage), or an empty tuple.
    """

    texts: Texts
    knockoffs: tuple[Texts, ...]
    groups: tuple[str, ...]


def load_text_columns(
    source: Any,
    *,
    text_field: str | None = None,
    knockoff_fields: Sequence[str] = (),
    id_field: str | None = None,
    label_field: str | None = None,
    group_field: str | None = None,
    format: str | None = None,
) -> TextColumns:
    """Read a table whose rows hold a text and its paraphrases.

    Args:
      source: a path or a Python table, as in `load_texts`; or `Texts`, where no field is asked of it.
      text_field: field with the text, as in `load_texts`.
      knockoff_fields: fields with the paraphrases, one each of every text.
      id_field: field with unique identifiers; without it "id" where there is one, else row numbers.
      label_field: field with the known truth, 1 member and 0 non-member.
      group_field: field with the cluster of each text.
      format: format of a file, where its extension does not tell.

    Raises:
      InputError: as `load_texts`; a field that does not exist (those that do are listed), is named twice or is the
        text's own; a row without one of its paraphrases (absent, null or blank), with how many there are and the first.

    Cost: the source is read once.

    >>> table = [{"text": "one text", "b": "a text"}, {"text": "two texts", "b": "texts, two"}]
    >>> load_text_columns(table, knockoff_fields=["b"]).knockoffs[0].texts
    ('a text', 'texts, two')
    """
    wanted = (knockoff_fields,) if isinstance(knockoff_fields, str) else tuple(knockoff_fields)
    if isinstance(source, Texts):
        _check_no_columns(knockoff_fields=wanted or None, group_field=group_field)
        return TextColumns(source, (), ())
    rows = read_rows(source, format=format)
    texts = texts_of_rows(rows, text_field=text_field, id_field=id_field, label_field=label_field)
    own = checks.text_field_of(rows.source, text_field, rows.fields) if rows.fields else ""
    _check_knockoff_fields(rows.source, wanted, own, rows.fields)
    columns = {field: rows.column(field) for field in wanted}
    _check_complete_knockoffs(rows.source, columns, texts.ids, rows.place)
    knockoffs = []
    for field, column in columns.items():
        name = f"{rows.source}, field {field!r}"
        paraphrases = checks.text_column(name, column, rows.place)
        knockoffs.append(Texts(texts.ids, paraphrases, source=name, sha256=hash_texts(texts.ids, paraphrases)))
    groups: tuple[str, ...] = ()
    if group_field is not None:
        checks.existing_field(rows.source, "group_field", group_field, rows.fields)
        groups = table_checks.group_column(rows.source, group_field, rows.column(group_field), rows.place)
    return TextColumns(texts, tuple(knockoffs), groups)


_NAMED = 5


def _check_knockoff_fields(source: str, wanted: Sequence[str], text_field: str, fields: Sequence[str]) -> None:
    """The fields of the paraphrases: there, different, and none of them the text's own."""
    absent = [field for field in wanted if field not in fields]
    if absent:
        raise InputError(
            f"{source}: there is no knockoff field {', '.join(map(repr, absent))}; {fields_found(fields)}; name the "
            "fields that hold the paraphrases (knockoff_fields)"
        )
    for field in wanted:
        if field == text_field:
            raise InputError(f"knockoff_fields names {field!r}, the field of the texts themselves; leave it out")
        if list(wanted).count(field) > 1:
            raise InputError(f"knockoff_fields names {field!r} twice; leave one out")


def _check_complete_knockoffs(
    source: str, columns: Mapping[str, Sequence[Any]], ids: Sequence[str], place: Callable[[int], str]
) -> None:
    """Every row has all its paraphrases.

    Args:
      source: what messages call the table.
      columns: values by knockoff field.
      ids: identifier of each row.
      place: row index to words such as "line 7".

    Raises:
      InputError: some rows lack a paraphrase; how many in each field, and the first of them.
    """
    found = []
    for field, values in columns.items():
        rows = [
            i for i, value in enumerate(values) if is_absent(value) or (isinstance(value, str) and not value.strip())
        ]
        if rows:
            named = ", ".join(f"{ids[i]!r} ({place(i)})" for i in rows[:_NAMED])
            more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
            found.append(f"field {field!r} has none for {len(rows)} of {len(ids)} rows: ids {named}{more}")
    if found:
        raise InputError(
            f"{source}: knockoffs are missing (absent, null or blank): {'; '.join(found)}. Every text needs a "
            "paraphrase in each knockoff field: fill them in, remove the rows, or leave the field out"
        )


def _check_no_columns(**fields: Any) -> None:
    """No column is asked of texts that have been read already."""
    for name, value in fields.items():
        if value is not None:
            raise InputError(
                f"{name}={value!r} names columns of a table, and what was given are Texts, which have none; give the "
                "path or the table itself"
            )
