"""Every sentence that can be printed has what backs it: a claim, a test of an error rate, or that it states a fact."""

import ast
import collections
import json
import pathlib
import re

import printed_sentences
import pytest
import sentence_table

from tdd.procedures.procedure import all_guarantees

TESTS = pathlib.Path(__file__).parents[1]
CLAIMS = {
    row["name"]: row["holds"]
    for row in json.loads((TESTS.parent / "benchmarks" / "results" / "validity.json").read_text("utf-8"))["claims"]
}
ROWS = [row for row in all_guarantees() if row.call.startswith("tdd.")]


def groups(text):
    """Backing -> its indented lines."""
    found, backing = {}, ""
    for line in text.strip().splitlines():
        if line.startswith("  "):
            found[backing].append(line[2:])
        else:
            backing = line
            found[backing] = []
    return found


def entries():
    """(scope, first words) -> backing."""
    lines = [(line.split(" | ", 1), backing) for backing, own in groups(sentence_table.BACKED).items() for line in own]
    return {(scope, start): backing for (scope, start), backing in lines}


def facts():
    """Scope -> number of sentences."""
    joined = re.sub(r"\n  +", " ", sentence_table.FACTS.strip())
    parts = [(file, part.rsplit(" ", 1)) for file, names in (line.split(": ") for line in joined.splitlines())
             for part in names.split(", ")]  # fmt: skip
    return {f"{file}:{'' if name == '-' else name}": int(number) for file, (name, number) in parts}


def unbacked(printed):
    """Scopes whose sentences without a backing are not as many as the table of facts says, and these sentences."""
    backed, left, used = entries(), collections.defaultdict(list), set()
    for scope, sentence in printed:
        fitting = {entry for entry in backed if entry[0] == scope and sentence.startswith(entry[1])}
        used |= fitting
        if not fitting:
            left[scope].append(sentence)
    known = facts()
    wrong = {scope: left[scope] for scope in {*left, *known} if len(left[scope]) != known.get(scope, 0)}
    return wrong, set(backed) - used


@pytest.fixture(scope="module")
def printed():
    return [*printed_sentences.printed()]


def test_every_sentence_has_its_entry(printed):
    """A new sentence: its scope and first words under what backs it in BACKED, or one more in FACTS."""
    wrong, unused = unbacked(printed)
    assert not wrong
    assert not unused, "entries of sentences that are gone"


def test_a_new_sentence_is_noticed(printed):
    new = "audit/assemble.py:_outcome", "The model has certainly seen {} of these."
    assert new[1] in unbacked([*printed, new])[0][new[0]]
    gone = [pair for pair in printed if pair[0] != "report/audit.py:_bounds"]
    assert any(scope == "report/audit.py:_bounds" for scope, _ in unbacked(gone)[1])


def test_what_counts_as_a_sentence():
    code = '''
def f(x):
    """A docstring of more than five words."""
    _logger.info("a line of the log, which is not printed")
    if x:
        raise InputError(f"{x} is the message of an error")
    return f"{x} of {g('this one stands inside of a value')} are" " members", "four words are few"
'''
    assert list(printed_sentences.sentences(ast.parse(code))) == [
        "{} of {} are members",
        "this one stands inside of a value",
    ]


def holds(backing):
    """Whether what is named exists; a claim: whether it holds."""
    kind, _, name = backing.partition(" ")
    if kind == "claim":
        return CLAIMS[name]
    file, function = name.split("::")
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)


@pytest.mark.parametrize("backing", sorted({*groups(sentence_table.BACKED), *groups(sentence_table.GUARANTEES)}))
def test_what_backs_a_sentence_exists(backing):
    assert backing == "row" or holds(backing) or backing.startswith("claim ")


def backing_of(row):
    """What backs a row of the table of guarantees: the entries with a word of its option, else those of its call."""
    found = collections.defaultdict(set)
    words = set(re.findall(r"[\w=]+|\w+", row.option)) | set(re.findall(r"\w+", row.option))
    for backing, lines in groups(sentence_table.GUARANTEES).items():
        for entry in " ".join(lines).split(", "):
            call, _, word = entry.partition(" ")
            if call == row.call and (not word or word in words):
                found[bool(word)].add(backing)
    return found[True] or found[False]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.call}-{row.option}")
def test_every_guarantee_is_measured(row):
    (backing,) = backing_of(row)
    if row.guarantee.kind == "finite-sample":
        assert holds(backing), f"{backing} does not hold"
    if row.guarantee.kind == "none":
        assert not (backing.startswith("claim ") and holds(backing)), f"{backing} holds"
