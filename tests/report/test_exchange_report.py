"""The report and the figures of a test of canonical order."""

import io
import warnings

import exchange_runs
import numpy as np
import pytest
from rich.console import Console

from tdd.report import exchange, exchange_plots
from tdd.report.sections import to_terminal
from tdd.runs.display import format_p_value


def printed(run, shards=None, width=100):
    text = io.StringIO()
    report = exchange.exchange_report(run, shards, shard_table=shards is not None)
    Console(file=text, width=width, highlight=False).print(to_terminal(report))
    return text.getvalue()


def flat(text):
    """Without borders and line breaks."""
    return " ".join("".join(" " if c in "│┃┏┓┗┛━┳┻┡┩╇─┌┐└┘┬┴┼├┤╞╡┴\n" else c for c in text).split())


@pytest.fixture(scope="module")
def one():
    entry = exchange_runs.entry("quiz", np.array([2.0, 2, 2, 2, 2, 2, 0, 0]), control=0.0)
    return exchange_runs.finish([entry], control=True), exchange_runs.shards([entry], [[2.0, 2, 2, 2, 2, 2, 0, 0]])


@pytest.fixture(scope="module")
def many():
    entries = [exchange_runs.entry(f"set {i}", 2.0 * (i < 2), seed=i, control=0.0) for i in range(5)]
    entries[3]["structure"]["p_value"] = 0.004
    return exchange_runs.finish(entries, control=True), exchange_runs.shards(entries, [2.0, 2.0, 0, 0, 0])


@pytest.fixture(scope="module")
def sequential():
    entry = exchange_runs.entry("quiz", 2.0, k=20, rule="e_process")
    run = exchange_runs.finish([entry], stop="e_process", target_p=0.001)
    return run, exchange_runs.shards([entry], [2.0])


def test_one_data_set(one):
    run, shards = one
    text = flat(printed(run))
    data = run["data"][0]
    for words in (
        "Test of published order: ./gpt", "depends on the published order of the data set quiz", "8 of 6 examples",
        "./other: p = ", "no structure seen (p = 0.4, above the level of 0.5%; one by one: neighbours 0.4)",
        "88 sequences, 10,560 tokens",
        "The verdict is that of combined, which must have been chosen beforehand", "the level 5%",
    ):  # fmt: skip
        assert words in text, words
    for name in ("combined", "rank_sum", "exact", "t", "permutation"):
        assert name in text
    assert f"p-value {format_p_value(data['p_value'], data['log_p_value'])} decision" in text
    assert "Shards of" not in text
    with_shards = flat(printed(run, shards))
    assert "Shards of quiz" in with_shards
    assert f"{shards['canonical'][2]:.2f} {shards['mean_shuffled'][2]:.2f} {shards['statistic'][2]:+.3f}" in with_shards
    assert with_shards.count("/10 ") == 8


def test_many_data_sets_smallest_p_value_first(many):
    run, shards = many
    text = flat(printed(run))
    assert "Data sets (Benjamini and Hochberg at level 5%)" in text
    order = sorted(run["data"], key=lambda one: one["log_p_value"])
    places = [text.index(f" {one['name']} 48 ") for one in order]
    assert places == sorted(places)
    table = text.partition("verdict")[2].partition("Order check")[0]
    assert [table.count(word) for word in (" evidence", "no evidence", "withheld")] == [4, 2, 1]
    assert "Data set set 3: the published order does not look random" in text
    assert text.count("Assumptions of the guarantee") == 1
    assert flat(printed(run, shards)).count("Shards of set") == 5


def test_a_sequential_run_and_what_it_saved(sequential):
    text = flat(printed(sequential[0]))
    assert "e_process, a sequential test, until p <= 0.001" in text
    assert "20 of at most 80; stopped when the evidence sufficed" in text
    assert "168 sequences of 648 (3.9 times fewer)" in text
    assert "log10 e-value" in text
    assert "side by side" not in text


def test_nothing_is_cut_off_in_a_narrow_terminal(many):
    text = printed(many[0], many[1], width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_missing_numbers():
    shift = np.array([np.nan, *[0.0] * 7])
    entry = exchange_runs.entry("quiz", shift)
    text = flat(printed(exchange_runs.finish([entry]), exchange_runs.shards([entry], [shift])))
    assert "1 of them left out (NaN)" in text
    assert text.count("left out") >= 3  # the facts, the table, the warning
    lost = entry | {"p_value": np.nan, "log_p_value": np.nan}
    assert "p-value unknown" in flat(printed(exchange_runs.finish([lost])))
    assert "unknown" in flat(printed(exchange_runs.finish([lost, exchange_runs.entry("b", seed=1)])))


def test_names_are_shown_as_they_are():
    name = "[red]a[/] :boom: \x1b[31m$x$"
    entry = exchange_runs.entry(name)
    run, shards = exchange_runs.finish([entry]), exchange_runs.shards([entry], [0.0])
    text = flat(printed(run, shards))
    assert "Shards of [red]a[/] :boom: \\x1b[31m$x$" in text
    assert "\x1b[31m" not in text
    overview = printed(exchange_runs.finish([entry, exchange_runs.entry("b", seed=1)]), width=200)
    assert "│ [red]a[/] :boom: \\x1b[31m$x$" in overview
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a glyph that the font does not have
        exchange_plots.draw(run, shards).figure.draw_without_rendering()


def texts_of(drawn):
    return [text.get_text() for text in drawn.figure.findobj(lambda artist: hasattr(artist, "get_text"))]


def markers(axes):
    """Points by marker: marker -> [(x, y)]."""
    found = {}
    for line in axes.lines:
        if line.get_linestyle() == "None":
            found.setdefault(line.get_marker(), []).extend(zip(*line.get_data()))
    return {marker: sorted(points) for marker, points in found.items()}


def test_shards_and_ranks_are_where_they_belong(one):
    run, shards = one
    drawn = exchange_plots.draw(run, shards)
    above, below = drawn.panels[0][0], drawn.panels[1][0]
    best = shards["rank"] == shards["num_shuffles"]
    points = list(zip(shards["shard"] + 1, shards["statistic"] / shards["sd_shuffled"]))
    for marker, chosen in (("s", best), ("o", ~best)):
        np.testing.assert_allclose(markers(above)[marker], [p for p, is_in in zip(points, chosen) if is_in])
    assert len(markers(below)["s"]) == best.sum()
    assert all(y == 1 for _, y in markers(below)["s"])


def test_a_single_shuffle_is_drawn_in_nats():
    entry = exchange_runs.entry("quiz", 1.0, k=1)
    drawn = exchange_plots.draw(exchange_runs.finish([entry]), exchange_runs.shards([entry], [1.0]))
    assert drawn.panels[0][0].get_ylabel() == "difference, nats"
    assert sum(map(len, markers(drawn.panels[0][0]).values())) == 8


def test_the_path_of_a_sequential_run(sequential):
    run, shards = sequential
    drawn = exchange_plots.draw(run, shards)
    assert len(drawn.panels) == 3
    path = drawn.panels[2][0].lines[0].get_data()
    looks = run["data"][0]["sequential"]["looks"]
    np.testing.assert_allclose(path[0], [look["shuffles"] for look in looks])
    np.testing.assert_allclose(path[1], np.log10([look["p_value"] for look in looks]))
    assert any("stops at p = 0.001" in text for text in texts_of(drawn))


@pytest.mark.parametrize("count", [2, 5, 60])
def test_overview(many, count):
    data = [many[0]["data"][i % 5] | {"name": f"set {i} {'x' * 60}"} for i in range(count)]
    run = exchange_runs.finish(data, control=True)
    drawn = exchange_plots.draw(run, many[1])
    axes = drawn.panels[0][0]
    shown = markers(axes)
    assert len(shown["o"]) + len(shown["D"]) == len(shown["x"]) == count
    assert len(shown["D"]) == count // 5, "data sets whose order is in doubt"
    along = 0 if count <= 40 else 1
    values = sorted(point[along] for point in [*shown["o"], *shown["D"]])
    np.testing.assert_allclose(values, sorted(one["log_p_value"] / np.log(10) for one in run["data"]))
    drawn.figure.draw_without_rendering()
    if count <= 40:
        widest = min(label.get_window_extent().x0 for label in axes.get_yticklabels())
        assert widest >= 0, "names are cut off at the left edge"


def test_the_line_that_decides_is_benjamini_and_hochbergs(many):
    """Of the data sets that take part: four of five, the smallest p-values first."""
    axes = exchange_plots.draw(*many).panels[0][0].collections[0]
    ends = np.array(axes.get_segments())
    np.testing.assert_allclose(10 ** ends[:, :, 0], np.repeat([[0.0125], [0.025], [0.0375], [0.05]], 2, axis=1))
    decided = [place for place, one in enumerate(sorted(many[0]["data"], key=lambda one: one["log_p_value"]))
               if one["structure"]["p_value"] > 0.005]  # fmt: skip
    np.testing.assert_allclose(ends[:, :, 1].mean(axis=1), decided)


def test_ticks_between_powers_of_ten_are_numbers():
    assert [exchange_plots._power(log) for log in (0.0, -2.0, -0.4)] == ["1", "10\u207b\u00b2", "0.4"]


def test_a_data_set_in_doubt_shows_no_other_p_values(one):
    entry = one[0]["data"][0]
    doubted = exchange_runs.finish([entry | {"structure": entry["structure"] | {"p_value": 0.004}}], control=True)
    text = flat(printed(doubted))
    assert "The tests side by side" not in text
    assert "(not valid: a check failed) decision none: a check speaks against the assumptions" in text


def test_shards_of_many_data_sets(many):
    drawn = exchange_plots.draw_shards(*many)
    visible = [axes for line in drawn.panels for axes in line if axes.get_visible()]
    assert len(visible) == 5
    assert all(sum(map(len, markers(axes).values())) == 8 for axes in visible)
