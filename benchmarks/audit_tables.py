"""Tables of audits, rules and scores on data whose members are known."""

from __future__ import annotations

from statistics import fmean
from typing import Any

__all__ = [
    "Results",
    "arxivtection",
    "booktection",
    "combined",
    "estimates",
    "exact_null",
    "joint_synthetic",
    "paraphrased",
    "preparation",
    "pretrained",
    "rules",
    "scores",
    "table",
    "training_sets",
    "wikimia",
    "with_error",
]

Results = dict[str, Any]


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table whose first column alone is text."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_error(value: float, error: float) -> str:
    """A value and its standard error."""
    return f"{value:.3f} ± {error:.3f}"


def preparation(result: Results) -> str:
    """What the checks without a model find, and how often they err."""
    machine, valid = result["machine"], result["valid"]
    shares = [name for name in result["changes"][0] if name not in ("change", "size", "all checks")]
    rows = [
        [
            f"{row['change']}, {row['size']} + {row['size']}",
            f"{row['all checks']:.2f}",
            *(f"{row[n]:.2f}" for n in shares),
        ]
        for row in result["changes"]
    ]
    total = sum(row["audits"] for row in valid)
    errors = sum(round(row["all checks"] * row["audits"]) for row in valid)
    worst = max(valid, key=lambda row: row["all checks"])
    text = (
        "**Preparation.** Share of verdicts withheld where the calibration texts alone were changed, synthetic prose, "
        f"{result['divisions']} divisions each: by all checks of an audit together, and by marks of whole texts alone "
        "where the change was made to that share of the calibration texts (`benchmarks/preparation.py`)."
    )
    note = (
        f"Where nothing was changed, {errors} of {total:,} verdicts were withheld (40 + 40 texts of "
        f"{len(valid)} kinds: {', '.join(row['kind'] for row in valid)}; at most {worst['all checks']:.3f}, "
        f"{worst['kind']}). Marks of 10,000 texts take {result['seconds of 10,000 texts']:.1f} s on a core of "
        f"{machine['processor']}. What changes no mark and few words stays unseen."
    )
    header = ["change, texts", "all checks", *(f"marks, {100 * float(name):g}%" for name in shares)]
    return f"{text}\n\n{table(header, rows)}\n\n{note}"


def wikimia(result: Results) -> str:
    """Audits of WikiMIA, calibrated on texts that were not trained on and on its label 0."""
    rows = [
        [*name.split("/"), with_error(cell["fdp"], cell["fdp_se"]), with_error(cell["power"], cell["power_se"])]
        for name, cell in result["summary"].items()
    ]
    parts, shifted = result["parts"], result["calibrated_on_label_0"]
    cells = shifted["results"]
    worst = max(cells, key=lambda name: cells[name]["fdp"])
    text = (
        f"**Audit with known truth.** A model of {result['model']['parameters'] / 1e6:.1f} M parameters fine-tuned on "
        f"a random half of WikiMIA's label-1 texts; {parts['calibration']} held-out texts of the same label calibrate, "
        f"{parts['members']} members and {parts['nonmembers']} held-out texts are the candidates; "
        f"{len(result['seeds'])} seeds at α = {result['alpha']} (`benchmarks/wikimia_audit.py`)."
    )
    warning = (
        f"The same audit calibrated on label-0 texts, as is often done: the blind baseline separates calibration from "
        f"candidates at AUC {shifted['blind_baseline']['auc']:.3f} without any model and warns; the false discovery "
        f"proportion of {worst} rises to {cells[worst]['fdp']:.2f}."
    )
    header = ["score", "proportion", "FDP ± s.e.", "power ± s.e."]
    return f"{text}\n\n{table(header, rows)}\n\n{warning}"


def arxivtection(result: Results) -> str:
    """KTD end to end."""
    cells = {tuple(row[k] for k in ("design", "knockoffs", "rule", "score", "alpha")): row for row in result["summary"]}
    scores, alphas = (list(dict.fromkeys(key[i] for key in cells)) for i in (3, 4))
    rows = []
    for design, k, rule in dict.fromkeys(key[:3] for key in cells):
        if (k, rule) == (1, "multi"):  # with one knockoff it is "ktd"
            continue
        of_rule = [cells[design, k, rule, score, alpha] for score in scores for alpha in alphas]
        promised = [cells[design, k, rule, scores[0], alpha]["promised"] for alpha in alphas]
        bound = "nothing" if promised[0] is None else ", ".join(f"{value:g}" for value in promised)
        shown = [f"{with_error(cell['fdp'], cell['fdp_se'] or 0)} / {cell['power']:.2f}" for cell in of_rule]
        rows.append([design, str(k), "ktd = multi" if (k, rule) == (1, "ktd") else rule, bound, *shown])
    leaning = [
        f"{cells[design, max(key[1] for key in cells), 'multi', score, alphas[0]]['leaning_of_nonmembers']:.1f} "
        f"({score}, {design})"
        for design in dict.fromkeys(key[0] for key in cells)
        for score in scores
    ]
    data, first = result["data"], result["models"][0]["audit"]
    text = (
        f"**KTD end to end.** `tdd {result['command']}` on arXivTection: {data['passages']:,} passages of "
        f"{data['papers_of_the_pool']} papers with three paraphrases each, a random half of them planted in a small "
        f"fine-tuned model; {result['repetitions']} models a design, and of each {result['divisions']} random "
        "divisions of the non-members into calibration items and candidates; half of the candidates are members. FDP ± "
        "s.e. over the models / power (`benchmarks/arxivtection_ktd.py`). In the design `verbatim` the text is the "
        "passage, in `drawn` one of its four versions at random, which makes the versions of a non-member "
        f"exchangeable. The first audit of the command line selected {first['num_selected']} of {first['num_tests']} "
        f"candidates at level {first['alpha']:g}: FDP {first['truth']['fdp']:.3f}, power "
        f"{first['truth']['power']:.3f}."
    )
    why = (
        "Of the non-members, so many times as many as by chance score lower than all three paraphrases: "
        f"{', '.join(leaning)}. A model fine-tuned on verbatim passages can prefer verbatim passages, seen or not. "
        "Rules that take the paraphrases for exchangeable then select them; ranking among known non-members does not."
    )
    header = ["design", "k", "rule", f"promised at {', '.join(f'{alpha:g}' for alpha in alphas)}"]
    header += [f"{score}, α = {alpha:g}" for score in scores for alpha in alphas]
    return f"{text}\n\n{table(header, rows)}\n\n{why}"


def paraphrased(result: Results) -> str:
    """KTD with a T5 that was trained for it."""
    cells = {tuple(row[key] for key in ("decoding", "model", "rule", "k", "alpha")): row for row in result["rows"]}
    alphas = sorted({key[4] for key in cells if key[4] is not None})
    decodings = [one["decoding"] for one in result["written"]]

    def shown(decoding: str, rule: str, k: int, alpha: float | None) -> str:
        row, null = cells[decoding, "trained", rule, k, alpha], cells.get((decoding, "null", rule, k, alpha))
        behind = f" / {row['power']:.2f}" + (f" / {null['fdp']:.2f}" if null else "")
        return with_error(row["fdp"], row["fdp_se"] or 0) + behind

    rows = []
    for decoding, rule, k in dict.fromkeys((key[0], key[2], key[3]) for key in cells):
        levels = [None] if (decoding, "trained", rule, k, None) in cells else alphas
        if k == 0 and decoding != decodings[0]:  # thresholds on a text's own score know no paraphrases
            continue
        values = [shown(decoding, rule, k, alpha) for alpha in levels]
        rows.append([decoding if k else "none", str(k or ""), rule, *(values * (len(alphas) // len(values)))])
    written = [
        [
            one["decoding"],
            *(f"{one[name]:.1%}" for name in ("copies", "cut", "empty")),
            ", ".join(f"{ratio:.2f}" for ratio in one["length_ratio"]),
            *(_refuted(result, one["decoding"], model) for model in ("trained", "null")),
            f"{cells[one['decoding'], 'null', 'ktd', 3, alphas[0]]['leaning']:.2f}",
        ]
        for one in result["written"]
    ]
    sizes, writer = result["sizes"], result["paraphraser"]
    text = (
        f"**KTD with a T5 of its own.** A T5 of {writer['parameters']:,} parameters learns in {sizes['steps']:,} "
        f"steps ({writer['seconds']:.0f} s) from {writer['pairs']:,} pairs of short generated texts and rule-made "
        f"paraphrases (loss {writer['losses'][0]:.2f} at first, {writer['held_out_loss']:.2f} on pairs held out). It "
        f"writes three versions of {sizes['members']} members and {sizes['nonmembers']} non-members, and "
        f"`tdd.run_audit` compares them by `grad_norm` (`{result['command']}`). FDP ± s.e. over {result['seeds']} "
        "seeds / power / FDR at the null, under a model that was trained on none of the candidates; of each model "
        f"{sizes['divisions']} random divisions. Thresholds are chosen on {sizes['labelled']} labelled texts so that "
        "the FDP among these is at most α (KTD, section 5.2); half of these are members, fewer of the candidates. "
        "`W > 0` knows no level."
    )
    header = ["paraphrases", "k", "rule", *(f"α = {alpha:g}" for alpha in alphas)]
    about = ["paraphrases", "copies", "cut", "empty", "length of the text (5%, 50%, 95%)"]
    about += ["symmetry refuted, trained", "symmetry refuted, null", "non-members with W > 0, null (1 = half)"]
    examples = "; ".join(f"{one['decoding']}, “{one['example'][1]}”" for one in result["written"])
    end = (
        "`conformal` is promised at most α whatever the paraphrases are; `ktd` and `multi` only where a non-member and "
        "its paraphrases are exchangeable, and where the symmetry test refutes that the audit withholds its verdict. "
        f"A text, “{result['written'][0]['example'][0]}”, and a paraphrase by each decoding: {examples}."
    )
    return f"{text}\n\n{table(header, rows)}\n\n{table(about, written)}\n\n{end}"


def _refuted(result: Results, decoding: str, model: str) -> str:
    """In how many audits the symmetry test withheld the verdict, and the largest of its p-values."""
    audit = next(one for one in result["audits"] if (one["decoding"], one["model"]) == (decoding, model))
    return f"{audit['withheld']} of {audit['audits']} (p ≤ {max(audit['symmetry_p']):.1g})"


def booktection(result: Results) -> str:
    """PTDI on BookTection's tables of scores."""
    wanted = {(row["score"], row["method"], row["alpha"]): row for row in result["rows"]}
    rows = []
    for name in dict.fromkeys(row["score"] for row in result["rows"]):
        row = [name]
        for alpha in (0.1, 0.2):
            for method in ("none", "subtraction", "storey"):
                cell = wanted[name, method, alpha]
                row.append(f"{cell['fdr']:.3f} / {cell['power']:.3f}")
        rows.append(row)
    header = ["score", *(f"{name}, α = {alpha}" for alpha in (0.1, 0.2) for name in ("vanilla", "scaled", "Storey"))]
    error = max(row["fdr_se"] for row in result["rows"] if row["alpha"] <= 0.2)
    text = (
        f"**Score tables.** FDR / power over {result['repetitions']:,} random half splits of BookTection's "
        f"{result['items']:,} passages ({result['members']:,} labelled as members), all repetitions of a score in one "
        f"compiled call of {min(result['seconds'].values()):.0f} to {max(result['seconds'].values()):.0f} s for 18 "
        f"procedures each; standard errors of the FDR at most {error:.4f} (`benchmarks/booktection_study.py`). "
        "Passages of one book are split apart here, which makes them exchangeable by construction; an audit of new "
        "books has no such luck."
    )
    return f"{text}\n\n{table(header, rows)}"


def estimates(result: Results) -> str:
    """Estimates of the proportion of members on the same tables."""
    cells = {(row["estimate"], row["score"], row["fraction"]): row for row in result["rows"]}
    estimates, scores, fractions = (list(dict.fromkeys(places)) for places in zip(*cells, strict=True))
    rows = [
        [score, estimate]
        + [
            f"{cells[estimate, score, share]['bias']:+.3f} / {cells[estimate, score, share]['mse']:.3f}"
            for share in fractions
        ]
        for score in scores
        for estimate in estimates
    ]
    worst = {name: max(row["fdr"] for row in result["rows"] if row["estimate"] == name) for name in estimates}
    power = {name: fmean(row["power"] for row in result["rows"] if row["estimate"] == name) for name in estimates}
    error = max(row["bias_se"] for row in result["rows"])
    text = (
        f"**Estimates of the fraction π of members** (PTDI, table 4, whose models' scores are not public). Bias / mean "
        f"squared error over {result['repetitions']:,} random draws of {result['calibration']} calibration items and "
        f"{result['candidates']} candidates from BookTection, a fraction π of them members; standard errors of the "
        f"bias at most {error:.3f} (`benchmarks/booktection_study.py --estimates`). A negative bias is conservative. "
        f"The moment estimates are told {result['calibration']} further members. FDR at level "
        f"{result['alpha']:g}, the largest of the {len(result['rows']) // len(estimates)} settings, and mean power: "
        + "; ".join(f"{name} {worst[name]:.3f} and {power[name]:.3f}" for name in estimates)
        + "."
    )
    return f"{text}\n\n{table(['score', 'estimate', *(f'π = {share:g}' for share in fractions)], rows)}"


def combined(result: Results) -> str:
    """Procedures for several scores on the same tables."""
    wanted: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in result["rows"]:
        wanted.setdefault((row["setting"], row["method"]), {})[row["alpha"]] = row
    levels = sorted({row["alpha"] for row in result["rows"]})
    rows = [
        [*name, *(f"{cells[alpha]['fdr']:.3f} / {cells[alpha]['power']:.3f}" for alpha in levels)]
        for name, cells in wanted.items()
    ]
    error = max(row["fdr_se"] for row in result["rows"])
    text = (
        f"**Clean passages from several detectors, or for several models.** FDR (GCR for two models) / power over "
        f"{result['repetitions']:,} random half splits of BookTection, calibrated on its members; standard errors of "
        f"the FDR at most {error:.4f} (`benchmarks/booktection_combined.py`). `bh_average`, `bh_max` and the "
        "thresholds are rules of the paper without a guarantee: a threshold has no level and selects the same at each."
    )
    return f"{text}\n\n{table(['scores', 'procedure', *(f'α = {alpha}' for alpha in levels)], rows)}"


def joint_synthetic(result: Results) -> str:
    """JMCS, JECS and compositions on simulated models."""
    rows = [
        [f"{setting['signal']:g}", f"{setting['calibration']:,}", row["procedure"], f"{row['alpha']:g}"]
        + [with_error(row[name], row[f"{name}_se"]) for name in ("gcr", "power")]
        for setting in result["settings"]
        for row in setting["rows"]
    ]
    one = result["settings"][0]
    text = (
        f"**JMCS, JECS and the invalid compositions.** {one['models']} models, labels {one['labels']}, "
        f"{one['calibration']} calibration items and {one['candidates']:,} candidates, scores N(μ, 1) against N(0, 1); "
        f"{one['repetitions']:,} repetitions (`{result['command']}`). Rows differ in the signal μ: compositions at 2, "
        "joint procedures at 3; rows of other numbers n of calibration items have two models, at signal 4. Union and "
        "intersection are of one Storey-BH a model, unless BH is named: JECS's eq. 5 says BH, and its table 1 has what "
        "Storey-BH gives at signal 2. JECS selects nothing there, and no signal gives the JECS row of that table (GCR "
        ".038, .087, .162). `tdd study jecs-compositions` has all of them at signals 2, 3 and 4."
    )
    return f"{text}\n\n{table(['μ', 'n', 'procedure', 'α', 'GCR ± s.e.', 'power ± s.e.'], rows)}"


def training_sets(result: Results) -> str:
    """KTD's dilution and imbalance under fine-tuned models, and the levels that named studies promise."""
    alpha = max(row["alpha"] for row in result["rows"])
    shown = [row for row in result["rows"] if row["alpha"] == alpha]
    error = max(row["fdr_se"] or 0 for row in shown)
    parts = [
        "**A part of the training set tested, or few members.** "
        f"{result['models']} models of each design, fine-tuned on {result['members']} texts; as many non-members, "
        f"{result['knockoffs']} paraphrases of each text, random halves, {result['repetitions']:,} repetitions "
        f"(`{result['command']}`). `ktd-dilution` tests one in so many candidates, `ktd-imbalance` leaves out members "
        f"beyond the ratio. FDP / power at level {alpha:g}; standard errors of the FDP over models at most "
        f"{error:.3f}. Originals and their paraphrases are not exchangeable, versions of which one is drawn are."
    ]
    for study, words in (("ktd-dilution", "one tested in {:g}"), ("ktd-imbalance", "ratio {:g}")):
        cells: dict[tuple[str, str], dict[str, str]] = {}
        for row in shown:
            if row["study"] == study:
                heading, cell = words.format(row["value"]), f"{row['fdr']:.3f} / {row['power']:.3f}"
                cells.setdefault((row["design"], row["method"]), {})[heading] = cell
        header = ["text", "rule", *next(iter(cells.values()))]
        parts.append(table(header, [[*key, *values.values()] for key, values in cells.items()]))
        parts.append(f"![Versions drawn at random, one model: {study}](results/figures/{study}-model.png)")
    parts.append(
        "Levels that the studies promise for synthetic data: values above their bound by more than three standard "
        "errors, and the highest value, divided by its bound. A study with fewer than 100,000 repetitions has them for "
        "its time: 20,000 of `td4eval-weights` take 540 s of processor time."
    )
    rows = [
        [row["study"], f"{row['repetitions']:,}", str(row["promised"]), str(row["above"]), f"{row['highest']:.3f}"]
        for row in result["levels"]
    ]
    parts.append(table(["study", "repetitions a cell", "promised", "above", "highest"], rows))
    return "\n\n".join(parts)


def rules(result: Results) -> str:
    """Step-up rules on simulated scores."""
    rows = [
        [row["setting"], row["method"], *(with_error(row[name], row[f"{name}_se"]) for name in ("fdr", "power"))]
        for row in result["rows"]
    ]
    text = (
        f"**Rules by e-values beside others.** 200 calibration items, 100 candidates of which 30 are to be found, "
        f"level {result['alpha']:g}; {result['repetitions']:,} repetitions (`{result['command']}`)."
    )
    return f"{text}\n\n{table(['setting', 'rule', 'FDR ± s.e.', 'power ± s.e.'], rows)}"


def scores(result: Results) -> str:
    """All scores under models of known training data, and the owner's test."""

    def cell(row: dict[str, Any], name: str) -> str:
        error = row[f"{name}_se"]
        return f"{row[name]:.3f}" if error is None else with_error(row[name], error)

    rows = [
        [row["score"], ", ".join(row["beside"]), *(cell(row, name) for name in ("auc", "power", "fdr"))]
        for row in sorted(result["rows"], key=lambda row: (len(row["beside"]) > 0, -row["auc"]))
    ]
    owner = [
        [str(row["documents"]), cell(row, "trained"), cell(row, "not trained"), f"{row['trained, median p']:.2g}"]
        for row in result["owner"]
    ]
    blind = [row["score"] for row in result["rows"] if row["auc"] - 2 * (row["auc_se"] or 0) <= 0.5]
    silent = f" Without any signal here: {', '.join(blind)}." if blind else ""
    seeds = f"{result['seeds']} seeds" if result["seeds"] > 1 else "one seed"
    text = (
        f"**All scores.** Tiny models, each trained from scratch for {result['epochs']} epochs on {result['members']} "
        f"generated documents among others; {result['nonmembers']} documents were not trained on, half of which, drawn "
        f"anew {result['draws']} times, calibrate. PTDI at α = {result['alpha']:g}; scores with their default options; "
        f"mean ± s.e. over {seeds} (`{result['command']}`). The models are too small, and trained too often on each "
        f"text, to rank scores for large ones.{silent} LiRA's default, one variance for all texts, orders texts as "
        "`reference` does."
    )
    owners = (
        f"**The owner's test.** `tdd.version_test` (rank sum) on the loss under the same models: of each document one "
        f"of {result['private'] + 1} paraphrases, drawn beforehand, was trained on. Rejections at level .05 over "
        f"{result['draws']} random sets of so many documents, and under a model that saw none of them."
    )
    header = ["score", "needs beside the model", "AUC", f"power at FDR {result['alpha']:g}", "FDR"]
    of_owner = ["documents", "rejected, trained", "rejected, not trained", "median p, trained"]
    return f"{text}\n\n{table(header, rows)}\n\n{owners}\n\n{table(of_owner, owner)}"


def pretrained(result: Results) -> str:
    """Scores, PTDI and the owner's test under a pretrained model in which the truth was planted."""
    untouched, *trained = result["models"]
    counts = [str(count) for count in result["copies"]]
    levels = [level["alpha"] for level in untouched["rows"][0]["levels"]]
    shown = levels[len(levels) // 2]
    few = [row["texts"] for row in untouched["rows"] if not row["levels"]]
    by_score: dict[str, list[str]] = {}
    deciding = []
    for model in result["models"]:
        for row in sorted(model["rows"], key=lambda row: -row["auc"]):
            cells = by_score.setdefault(row["score"], [row["score"]])
            cells.append(with_error(row["auc"], row["auc_se"]))
            if model is not untouched:
                cells.append(_joined(row["by_copies"], counts))
            if row["levels"]:
                rates = [f"{level['fdr']:.3f}" + _power(level) for level in row["levels"]]
                power = [_joined(one.get("power_by_copies"), counts) for one in row["levels"] if one["alpha"] == shown]
                deciding.append([model["model"], row["score"], *rates, *power])
    last = sorted(result["models"][-1]["rows"], key=lambda row: -row["auc"])
    ranking = [by_score[row["score"]] for row in last]
    error = max(level["fdr_se"] for model in result["models"] for row in model["rows"] for level in row["levels"])
    ways = "; ".join(
        f"{model['model']}{_rank(model)}, peak rate {model['learning_rate']:g}, {model['steps']} steps"
        for model in trained
    )
    candidates = result["texts"] - result["calibration"]
    text = (
        f"**Truth planted in a pretrained model.** {result['model']['name']} is trained further in "
        f"{len(trained)} ways, for one epoch on {result['sequences']} short texts in batches of {result['batch']} "
        f"({ways}; `{result['command']}`). Of {result['texts']} generated texts of {result['words']} words at most a "
        f"random {result['members']} are the members of a model, {', '.join(counts)} times each: {result['shared']} of "
        f"them are members of all models, the others drawn apart for each. AUC ± s.e. over the texts, and of the "
        "members of each number of copies against all non-members; under the untouched model the members are those "
        "that the first training is to have." + (f" `grad_norm` has {few[0]} of the texts." if few else "")
    )
    fdr = (
        f"PTDI over {result['divisions']:,} random divisions, {result['calibration']} non-members for calibration and "
        f"{candidates} candidates, of which the {result['members']} members: FDR / power; standard errors of the FDR "
        f"over the divisions at most {error:.4f}. Under the untouched model every selection is false, and any text "
        "calibrates."
    )
    spent, total = result["processor_s"], sum(result["processor_s"].values())
    cost = (
        f"Processor time of the whole command: {total:,.0f} s, that is {total / 120:.0f} minutes on each of two cores "
        f"({', '.join(f'{part} {seconds:,.0f} s' for part, seconds in spent.items())}); memory at most "
        f"{result['peak_bytes'] / 2**30:.1f} GiB."
    )
    times = " · ".join(counts)
    header = ["score", "AUC, untouched"]
    header += [name for model in trained for name in (f"AUC, {model['model']}", f"{times} copies")]
    decided = ["model", "score", *(f"α = {alpha:g}" for alpha in levels), f"power at {shown:g}, {times} copies"]
    return (
        f"{text}\n\n![Truth planted in a pretrained model](results/figures/pretrained.png)\n\n"
        f"{table(header, ranking)}\n\n{fdr}\n\n{table(decided, deciding)}\n\n"
        f"{_owned(result)}\n\n{_other_procedures(result)}\n\n{_ordered(result)}\n\n{cost}"
    )


def _owned(result: Results) -> str:
    """Losses by number of copies, and the owner's test."""
    untouched, counts = result["models"][0], [str(count) for count in result["copies"]]
    learnt = [
        [
            model["model"],
            *(f"{model['losses'][count]:.2f}" for count in ("0", *counts)),
            *(f"{row['p']:.2g}" for row in model["owner"]),
        ]
        for model in result["models"]
    ]
    text = (
        "Mean loss in nats a token by number of copies, 0 for non-members, and p-values of `tdd.version_test` on the "
        f"loss of {untouched['owner'][0]['documents']} members of each number of copies beside {result['private']} "
        "unpublished versions of each."
    )
    about = ["model", *(f"loss, {count}" for count in ("0", *counts))]
    about += [f"p, {row['copies']}" for row in untouched["owner"]]
    return f"{text}\n\n{table(about, learnt)}"


def _other_procedures(result: Results) -> str:
    """Procedures beside PTDI: under each model, and over all that were trained."""
    models = len(result["models"]) - 1
    levels = [level["alpha"] for level in result["joint"][0]["levels"]]
    procedures = [
        [model["model"], row["procedure"], row["rule"]]
        + [f"{level['fdr']:.3f} ± {level['fdr_se']:.3f}" + _power(level) for level in row["levels"]]
        for model in (*result["models"], {"model": "all trained", "procedures": result["joint"]})
        for row in model["procedures"]
    ]
    p_values = "; ".join(
        f"{model['model']} {model['data_set']['members']:.2g} and {model['data_set']['non-members']:.2g}"
        for model in result["models"]
    )
    text = (
        f"The other procedures: FDR ± s.e. over {result['divisions']:,} random divisions / power. KTD looks for "
        f"members by the loss of each text and of {result['knockoffs']} paraphrases; the texts are one of several "
        "versions that were drawn alike, so which one of a non-member was published is drawn anew each time. Its rule "
        "`ktd` on several knockoffs is the paper's, and has no guarantee. TD4Eval looks for clean texts by six scores; "
        "a random half of the members calibrates, and `cauchy` (the paper's) has no guarantee. JMCS and JECS look for "
        f"the {result['pure']} texts that none of the {models} models was trained on, by the losses; a random "
        f"{result['calibrating']} of the {result['shared']} members of all models calibrate. The texts were assigned "
        "to the models once: these rates are those of one assignment. Of the rules there `by` alone has a guarantee: "
        "`bh` and `storey` need models that are independent, and these have one base; `jecs` needs many items, and a "
        "union or an intersection of one Storey-BH a model has none. Under the untouched model every selection is "
        f"false: any text calibrates, and its losses stand for all {models} models. "
        "`tdd.dataset_inference` on the six scores, members and half of the non-members beside the other half: "
        f"p = {p_values}."
    )
    return f"{text}\n\n{table(['model', 'procedure', 'rule', *(f'α = {alpha:g}' for alpha in levels)], procedures)}"


def _ordered(result: Results) -> str:
    """The test of order under each model."""
    text = (
        f"`tdd.run_exchange` on sets of {result['examples']} examples that were drawn independently, so that every "
        "order is equally likely before training: p-values by copies of the set in the training texts, which hold it "
        f"in canonical order, {result['together']} examples in a text; {result['examples'] // result['together']} "
        f"shards, {result['shuffles']} shuffles of each."
    )
    tested = [[model["model"], *(f"{row['p']:.2g}" for row in model["order"])] for model in result["models"]]
    header = ["model", *(f"p, {row['copies']} copies" for row in result["models"][0]["order"])]
    return f"{text}\n\n{table(header, tested)}"


def _rank(model: dict[str, Any]) -> str:
    """The rank of LoRA's factors, unless the name says it."""
    said = f", rank {model['rank']}"
    return "" if model["rank"] is None or said in model["model"] else said


def _power(level: dict[str, Any]) -> str:
    """Power behind an FDR; nothing where there are no members."""
    return f" / {level['power']:.2f}" if "power" in level else ""


def _joined(by_copies: dict[str, float] | None, counts: list[str]) -> str:
    """Figures by number of copies in one cell; nothing where they were not measured."""
    return " · ".join(f"{by_copies[count]:.2f}" for count in counts) if by_copies else ""


def exact_null(result: Results) -> str:
    """Rates under nulls that hold exactly."""
    levels = sorted({row["alpha"] for row in result["rows"]})
    cells = {(row["method"], row["alpha"]): row for row in result["rows"]}
    rows = [
        [name, *(with_error(cells[name, alpha]["rate"], cells[name, alpha]["se"]) for alpha in levels)]
        for name in dict.fromkeys(row["method"] for row in result["rows"])
    ]
    distinct = result["distinct"].values()
    text = (
        f"**An exact null on real scores.** Losses of {result['rows_in_pool']:,} held-out rows under {len(distinct)} "
        f"Pythia sizes, half precision, {min(distinct):,} to {max(distinct):,} distinct values; "
        f"{result['calibration']:,} random rows calibrate and {result['tests']:,} others are "
        f"tested. Nothing is to be found: the share of "
        f"{result['repetitions']:,} repetitions in which anything is selected (`benchmarks/exact_null.py`)."
    )
    return f"{text}\n\n{table(['procedure', *(f'α = {alpha}' for alpha in levels)], rows)}"
