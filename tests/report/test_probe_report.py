"""The report and the figure of a probe, from a folder as a probe saves it."""

import csv
import io
import json
import warnings

import numpy as np
import pytest
from rich.console import Console

from tdd.cli import main
from tdd.report import probe, probe_plots
from tdd.report.probe import read_history, read_probe_items
from tdd.report.sections import to_terminal
from tdd.runs.folder import read_run, write_run, write_sealed

GUARANTEES = {
    "set": {
        "controls": "P(an alarm at any look) <= alpha",
        "assumes": ["suspects and references are exchangeable"],
        "kind": "finite-sample",
        "source": "a theorem",
    },
    "items": {
        "controls": "FDR <= alpha",
        "assumes": ["suspects and references are exchangeable", "the score was chosen beforehand"],
        "kind": "finite-sample",
        "source": "another theorem",
    },
}
QUANTILES = ("grad_norm_q0", "grad_norm_q25", "grad_norm_q50", "grad_norm_q75", "grad_norm_q100")


def history_of(looks, *, leak=None, canaries=False, gradients=False, every=500):
    """Columns of history.csv: the evidence grows from look `leak` on."""
    rng, at = np.random.default_rng(0), np.arange(looks)
    since = np.maximum(0, at - (looks if leak is None else leak))
    log10 = -np.minimum(4, 0.9 * since) - 0.4 * rng.random(looks)
    found = {
        "step": at * every,
        "look": at + 1,
        "p_value": 10.0**log10,
        "anytime_p_value": np.minimum(1, np.minimum.accumulate(10 ** (log10 + 0.3))),
        "log_e_value": 0.5 * since,
        "num_flagged": np.minimum(60, 9 * since),
        "proportion": np.minimum(0.6, 0.1 * since),
        "mean_suspect": 4 - 0.05 * at - 0.2 * since,
        "mean_reference": 4 - 0.05 * at,
    }
    if canaries:
        found |= {"canary_exposure_max": np.minimum(10, since), "canary_exposure_median": 0.6 * np.minimum(10, since)}
    if gradients:
        found |= {name: (i + 1) * np.exp(-0.1 * at) for i, name in enumerate(QUANTILES)}
    return found | {
        "num_not_finite": 0 * at,
        "alarm": np.minimum.accumulate(10 ** (log10 + 0.3)) <= 0.05,
        "seconds": np.where(at == 0, 3.0, 0.25),
    }


def save(folder, history, *, name="quiz", flagged=14, warned=(), **changes):
    """A folder as `Probe.save` leaves it."""
    folder.mkdir(exist_ok=True)
    alarms = history["step"][history["alarm"]]
    run = {
        "schema": 2, "kind": "probe", "created": "2026-01-01T00:00:00+00:00", "versions": {}, "seed": 0, "name": name,
        "options": {"alpha": 0.05, "every": 500, "num_steps": 10_000, "score": "loss", "proportion": "storey"},
        "inputs": {role: {"source": "memory", "sha256": "ab" * 32, "texts": 60} for role in ("suspect", "reference")},
        "outcome": "The suspects are in the training data.", "alarm": bool(alarms.size),
        "first_alarm": int(alarms[0]) if alarms.size else None, "guarantees": GUARANTEES,
        "looks": len(history["step"]), "warnings": list(warned), "open_points": ["which texts they are"], **changes,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    table(folder / "history.csv", {key: np.asarray(value, float) for key, value in history.items()})
    p = np.linspace(0.001, 1, 60)
    table(
        folder / "items.csv",
        {
            "id": [f"{role}-{i}" for role in ("s", "r") for i in range(60)],
            "role": ["suspect"] * 60 + ["reference"] * 60,
            "score": np.linspace(1, 4, 120),
            "p_value": [*p, *[""] * 60],
            "adjusted": [*p, *[""] * 60],
            "selected": [int(i < flagged) for i in range(120)],
        },
    )
    seal(folder)
    return folder


def seal(folder, *left_out, **changes):
    """Write run.json with the hashes of everything as it now is."""
    run = {**json.loads((folder / "run.json").read_text()), **changes}
    run = {name: value for name, value in run.items() if name not in ("sha256", "files", *left_out)}
    write_run(folder, run, {path.name: [path.read_bytes()] for path in folder.glob("*.csv")})


def table(path, columns):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def read(folder):
    run = read_run(folder)
    return run, read_history(folder, run), read_probe_items(folder, run)


def printed(folder, width=100):
    text = io.StringIO()
    Console(file=text, width=width, highlight=False).print(to_terminal(probe.probe_report(*read(folder))))
    return text.getvalue()


def flat(text):
    """Without borders and line breaks."""
    return " ".join("".join(" " if c in "│┃┏┓┗┛━┳┻┡┩╇─┌┐└┘┬┴┼├┤╞╡┴\n" else c for c in text).split())


@pytest.fixture(scope="module")
def leak(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe") / "leak"
    return save(folder, history_of(21, leak=8, canaries=True, gradients=True), warned=["step 500: 2 scores were NaN"])


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return save(tmp_path_factory.mktemp("probe") / "clean", history_of(5), flagged=0)


def test_a_leak(leak):
    text, run = flat(printed(leak)), read_run(leak)
    step = run["first_alarm"]
    for words in (
        "Probe in a training loop: quiz", "The suspects are in the training data.", f"first at step {step:,}",
        "guarantee of the alarm P(an alarm at any look) <= alpha, finite-sample (a theorem)",
        "guarantee of flagged suspects FDR <= alpha, finite-sample (another theorem)", "5%, over all looks together",
        "21, every 500 steps, planned for 10,000 steps: step 0 to 10,000; 0.25 s each",
        "flagged so far 60 of 60 suspects", "largest 10.00 bits, median 6.00 bits", "; quartiles ",
        "60 texts given in Python (contents abababababab)", "! Step 500: 2 scores were NaN", "· Which texts they are",
        "· The score was chosen beforehand", "Flagged by step 10,000", "The 10 most extreme of 14.", "s-9 1.227",
    ):  # fmt: skip
        assert words in text, words
    alarm, flagged = text.split("Assumptions of the guarantee of flagged suspects")
    assert "· Suspects and references are exchangeable" in alarm.partition("Assumptions of the guarantee")[2]
    assert flagged.startswith(" · Suspects and references are exchangeable · The score was chosen beforehand")
    assert "s-10" not in text


def test_the_table_shows_first_last_and_alarm(leak):
    run, history, _ = read(leak)
    rows = [line for line in printed(leak).splitlines() if line.startswith("│") and line.count("│") == 8]
    shown = [int(line.split("│")[1].replace(",", "")) for line in rows]
    assert shown[0] == 0
    assert shown[-1] == 10_000
    assert run["first_alarm"] in shown
    assert 12 <= len(shown) <= 13
    assert shown == sorted(set(shown))
    assert f"{21 - len(shown)} looks between these are in history.csv" in flat(printed(leak))
    of_last = rows[-1].split("│")
    assert float(of_last[7]) == history["canary_exposure_max"][-1]
    assert of_last[3].strip().endswith("*")
    assert "*" not in rows[0]


def test_a_clean_run(clean):
    text = flat(printed(clean))
    assert "alarm none" in text
    assert "Warnings" not in text
    assert "Flagged at step" not in text
    assert "exposure" not in text
    assert "history.csv" not in text


def test_a_probe_that_decides_on_no_item(tmp_path):
    """As of the order of a benchmark: p-values are missing, and there is no guarantee of items."""
    nothing = {"controls": "nothing: none is flagged", "assumes": [], "kind": "none", "source": "no law"}
    folder = save(tmp_path / "order", history_of(3), flagged=0, guarantees={**GUARANTEES, "items": nothing})
    items = read_probe_items(folder, read_run(folder))
    table(folder / "items.csv", {name: ["nan" if name == "p_value" else v for v in items[name]] for name in items})
    seal(folder)
    text = flat(printed(folder))
    assert "flagged" not in text
    assert "null hypothesis the training does not depend on the published order" in text
    assert "input: published order 60 shards" in text


def test_before_the_first_look(tmp_path, capsys):
    folder = save(tmp_path / "new", history_of(0), outcome="No look has been taken.")
    for name in ("history.csv", "items.csv"):
        (folder / name).unlink()
    write_sealed(folder / "run.json", {**read_run(folder), "files": {}})
    assert "none yet; every 500 steps" in flat(printed(folder))
    assert main(["report", str(folder), "--plot", str(tmp_path / "a.png")]) == 2
    assert "nothing to draw" in capsys.readouterr().err


def test_nothing_is_cut_off_in_a_narrow_terminal(leak):
    text = printed(leak, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_names_are_shown_as_they_are(tmp_path):
    folder = save(tmp_path / "odd", history_of(6, leak=1), name="[red]a[/] :boom: \x1b[31m$x$")
    text = printed(folder)
    assert "[red]a[/] :boom: \\x1b[31m$x$" in text
    assert "\x1b[31m" not in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe_plots.draw(*read(folder)[:2]).figure.draw_without_rendering()


def test_missing_numbers(tmp_path):
    history = history_of(6, leak=2, gradients=True)
    history = {name: np.asarray(values, float) for name, values in history.items()}
    for name in ("p_value", "mean_suspect", "grad_norm_q50"):
        history[name][3] = np.nan
    folder = save(tmp_path / "nan", history | {"alarm": history["alarm"].astype(bool)})
    assert "unknown" in flat(printed(folder))
    probe_plots.draw(*read(folder)[:2]).figure.draw_without_rendering()


def test_the_figure(leak):
    run, history, _ = read(leak)
    drawn = probe_plots.draw(run, history)
    panels = [row[0] for row in drawn.panels]
    assert [axes.get_ylabel() for axes in panels] == [
        "p-value", "mean score", "flagged", "exposure, bits", "gradient norm",
    ]  # fmt: skip
    lines = {tuple(np.asarray(line.get_ydata(), float)) for axes in panels for line in axes.lines}
    for name in ("mean_suspect", "mean_reference", "num_flagged", "canary_exposure_max", "grad_norm_q50"):
        assert tuple(history[name]) in lines, name
    assert tuple(np.log10(history["anytime_p_value"])) in lines
    for axes in panels:
        assert any(np.all(np.asarray(line.get_xdata()) == run["first_alarm"]) for line in axes.lines)
    assert any(np.all(np.asarray(line.get_ydata()) == np.log10(0.05)) for line in panels[0].lines)
    assert panels[4].get_yscale() == "log"


def test_the_figure_of_a_clean_run_has_no_alarm(clean):
    drawn = probe_plots.draw(*read(clean)[:2])
    assert len(drawn.panels) == 3
    labels = [text.get_text() for text in drawn.figure.legends[0].get_texts()]
    assert "first alarm" not in labels
    assert "canaries, largest" not in labels


@pytest.mark.slow("long")
def test_report_command(leak, tmp_path, capsys):
    places = [tmp_path / f"{i}.png" for i in range(2)]
    for place in places:
        assert main(["report", str(leak), "--plot", str(place)]) == 0
    assert "Probe in a training loop: quiz" in capsys.readouterr().out
    assert places[0].read_bytes() == places[1].read_bytes()
    assert main(["report", str(leak), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "probe"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: seal(f, schema=1), "has schema 1, this version reads 2"),
        (lambda f: seal(f, kind="dream"), "run of kind 'dream'; this version reads audit"),
        (lambda f: seal(f, "guarantees"), "lacks guarantees; save the probe again"),
        (lambda f: seal(f, looks=7), "has 5 looks and run.json beside it counts 7"),
        (lambda f: (f / "history.csv").unlink(), "history.csv cannot be read"),
        (lambda f: (f / "history.csv").write_text("step,look\n0,1\n"), "lacks the columns p_value, anytime_p_value"),
        (lambda f: (f / "history.csv").write_text(""), "lacks the columns step"),
        (lambda f: replace(f / "history.csv", "500.0", "soon"), "is damaged: could not convert"),
        (lambda f: (f / "items.csv").write_text("id,role\n"), "lacks the columns score"),
        (lambda f: replace(f / "items.csv", "r-59", "r-59,more"), "rows of different lengths"),
    ],
)
def test_damaged_folders(tmp_path, capsys, damage, message):
    folder = save(tmp_path / "run", history_of(5))
    damage(folder)
    seal(folder)
    assert main(["report", str(folder)]) == 2
    assert message in capsys.readouterr().err


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(("name", "message"), [("a.pdf", "must end in .png, .svg"), ("no/a.png", "does not exist")])
def test_bad_figure_files(leak, tmp_path, capsys, name, message):
    assert main(["report", str(leak), "--plot", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
