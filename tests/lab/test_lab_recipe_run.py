"""A recipe carried out: files, truth, resumption to the same bytes, refusals."""

import csv
import dataclasses
import json

import pytest

from tdd import InputError, load_texts
from tdd.lab.plan import make_plan
from tdd.lab.recipe_file import parse_recipe, recipe_toml
from tdd.lab.recipe_run import load_lab_run, run_recipe
from tdd.models import checkpoint
from tdd.report.lab import next_command

SMALL = {
    "tokenizer": {"vocab_size": 280, "texts": 50},
    "model": {"width": 8, "layers": 1, "heads": 2, "max_length": 48},
    "training": {"epochs": 2, "batch_size": 4, "num_buckets": 1, "save_every": 2, "max_length": 48},
}
PLANTS = {
    "canaries": {"design": "canaries", "examples": 8, "copies": [0, 3], "background": 6, "separator": "\n"},
    "members": {
        "design": "members", "members": 4, "nonmembers": 3, "calibration": 5, "background": 2, "duplication": [1, 3],
    },
    "assignments": {
        "design": "assignments", "models": 2, "items": 8, "share": [0.5, 0.25], "calibration": 3, "known_members": 2,
        "background": 2,
    },
    "blocks": {"design": "blocks", "models": 2, "items": 20, "background": 2},
}  # fmt: skip


def recipe_of(design, **change):
    return parse_recipe({**SMALL, "corpus": {"generator": "examples"}, "seed": 5, "plant": PLANTS[design]} | change)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Design -> a finished run."""
    return {design: run_recipe(recipe_of(design), tmp_path_factory.mktemp(design) / "out") for design in PLANTS}


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestFiles:
    """What lies in the folder says the same everywhere."""

    def test_canaries(self, runs):
        run = runs["canaries"]
        assert [dict(row) for row in run.truth] == [
            {"set": "x0", "num_examples": 8, "copies": 0, "file": "canaries/x0.jsonl"},
            {"set": "x3", "num_examples": 8, "copies": 3, "file": "canaries/x3.jsonl"},
        ]
        assert [(row["part"], row["copies"]) for row in run.parts] == [("x0", 0), ("x3", 3), ("background", 1)]
        assert run.summary["models"][0]["num_documents"] == 6 + 3
        assert len(load_texts(run.audited["x3"])) == 8

    def test_members(self, runs):
        run = runs["members"]
        candidates = load_texts(run.audited["candidates"], label_field="label")
        truth = {row["id"]: row for row in run.truth}
        assert [truth[name]["label"] for name in candidates.ids] == list(candidates.labels)
        assert sorted(truth[name]["copies"] for name in candidates.ids) == [0, 0, 0, 1, 1, 3, 3]
        assert set(load_texts(run.audited["calibration"], label_field="label").labels) == {0}
        assert run.summary["models"][0]["num_documents"] == sum(row["copies"] for row in run.truth)
        assert [row["num_texts"] for row in run.parts] == [5, 3, 2, 2, 2]

    def test_assignments(self, runs):
        run = runs["assignments"]
        rows = read(run.audited["candidates"])
        assert [sum(row[f"model-{k}"] for row in rows) for k in (1, 2)] == [4, 2]
        assert all(row["label"] == max(row["model-1"], row["model-2"]) for row in rows)
        assert {row["label"] for row in read(run.audited["calibration"])} == {0}
        assert {row["label"] for row in read(run.audited["known_members"])} == {1}
        truth = {row["id"]: (row["model-1"], row["model-2"]) for row in run.truth}
        assert all(truth[row["id"]] == (row["model-1"], row["model-2"]) for row in rows)
        assert [model["num_documents"] for model in run.summary["models"]] == [4 + 4, 2 + 4]

    def test_blocks(self, runs):
        run = runs["blocks"]
        blocks = {row["id"]: row["block"] for row in run.truth}
        assert sorted(blocks.values()).count("calibration") == 6
        assert all(row["label"] == max(row["model-1"], row["model-2"]) for row in run.truth)
        assert {blocks[row["id"]] for row in read(run.audited["candidates"])} == {"remainder", "clean"}
        assert {blocks[row["id"]] for row in read(run.audited["calibration"])} == {"calibration"}
        assert [model["num_documents"] for model in run.summary["models"]] == [6 + 1 + 2] * 2

    def test_models_load_and_begin_differently(self, runs):
        for run in runs.values():
            assert len(run.checkpoints) == getattr(run.recipe.plant, "models", 1)
            for place in run.checkpoints:
                assert checkpoint.load(place)[0].vocab_size == 280
        first, second = (place / "model.safetensors" for place in runs["blocks"].checkpoints)
        assert first.read_bytes() != second.read_bytes()

    def test_recipe_and_table(self, runs):
        for run in runs.values():
            assert (run.folder / "recipe.toml").read_text() == recipe_toml(run.recipe)
            with open(run.folder / "truth.csv", newline="") as file:
                assert len(list(csv.DictReader(file))) == len(run.truth)
            assert load_lab_run(run.folder) == run

    def test_the_command_to_go_on_with(self, runs):
        words = {design: next_command(run) for design, run in runs.items()}
        folder = runs["canaries"].folder
        assert words["canaries"] == (
            f"tdd exchange {folder}/checkpoint {folder}/canaries/x0.jsonl {folder}/canaries/x3.jsonl "
            r"--separator '\n' --shards 2"
        )
        assert words["members"].endswith("calibration.jsonl --label-field label")
        assert words["blocks"].endswith("--label-field label --method jecs")
        assert words["blocks"].count("/checkpoint") == 2
        assert words["assignments"].endswith("--label-field model-1")
        run = runs["assignments"]
        for known, end in ((2, "--method td4eval --score loss,min_k"), (0, "/model-1/scores.csv")):
            plant = dataclasses.replace(run.recipe.plant, calibration=0, known_members=known)
            bare = dataclasses.replace(run, recipe=dataclasses.replace(run.recipe, plant=plant))
            assert next_command(bare).endswith(end)
        assert next_command(bare).startswith(f"tdd score {run.folder}/model-1/checkpoint {run.folder}/candidates.jsonl")


class TestGoingOn:
    """An interrupted run ends with the same bytes; another one is refused."""

    @pytest.mark.parametrize(("design", "stop"), [("canaries", (1, 3)), ("blocks", (2, 2))])
    def test_same_bytes(self, runs, tmp_path, design, stop):
        def interrupt(model, step, params):
            if (model, step) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_recipe(recipe_of(design), tmp_path, on_step=interrupt)
        assert not (tmp_path / "lab.json").exists()
        seen = []
        run_recipe(recipe_of(design), tmp_path, on_step=lambda model, step, _: seen.append((model, step)))
        assert seen[0] in ((stop[0], 3), (stop[0], 1))
        assert {model for model, _ in seen} == {stop[0]}
        assert contents(tmp_path) == contents(runs[design].folder)

    def test_a_finished_run_is_read(self, runs):
        before = contents(runs["members"].folder)
        again = run_recipe(
            recipe_of("members"), runs["members"].folder, on_step=lambda *_: pytest.fail("trained again")
        )
        assert again == runs["members"]
        assert contents(runs["members"].folder) == before

    def test_the_seed_changes_everything_random(self, runs, tmp_path):
        other = contents(run_recipe(recipe_of("canaries", seed=6), tmp_path).folder)
        mine = contents(runs["canaries"].folder)
        same = {name for name in mine if mine[name] == other[name]}
        assert same == {"truth.csv", "checkpoint/config.json", "checkpoint/tokenizer_config.json"}

    def test_another_recipe_or_changed_texts(self, runs, tmp_path):
        with pytest.raises(InputError, match="another recipe"):
            run_recipe(recipe_of("members", seed=6), runs["members"].folder)
        pool = tmp_path / "pool.jsonl"
        lines = [json.dumps({"text": f"text number {index} of the pool, " * 8}) + "\n" for index in range(14)]
        pool.write_text("".join(lines))
        recipe = recipe_of("members", corpus={"file": str(pool)})
        run = run_recipe(recipe, tmp_path / "out")
        assert [row["id"] for row in run.truth] == [str(number) for number in range(1, 15)]
        pool.write_text("".join([*lines[1:], lines[0]]))
        with pytest.raises(InputError, match=r"differs from what this recipe makes now"):
            run_recipe(recipe, tmp_path / "out")
        pool.write_text("".join(lines[:13]))
        with pytest.raises(InputError, match=r"needs 14 texts, but corpus\.file holds 13"):
            run_recipe(recipe, tmp_path / "other")

    def test_questions_and_answers_in_the_form_of_td4eval(self, tmp_path):
        """What is planted and audited has the form of the paper's table 6; sets may have a form of their own."""
        pool = tmp_path / "pool.jsonl"
        pairs = [{"id": f"q{i}", "question": f"What is {i} and {i}?", "answer": 2 * i} for i in range(15)]
        pool.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
        corpus = {"file": str(pool), "template": "td4eval"}
        written = {f"q{i}": f"### Question:\nWhat is {i} and {i}?\n### Answer:\n{2 * i}" for i in range(15)}
        plan = make_plan(recipe_of("assignments", corpus=corpus))
        audited = [row for rows in plan.audited.values() for row in rows]
        assert len(audited) == 13
        assert all(written[row["id"]] == row["text"] for row in audited)
        assert all({*texts} <= {*written.values()} and texts for texts in plan.training)
        plant = {"design": "canaries", "sets": {"mine": {"file": str(pool), "copies": 2, "template": "{answer}"}}}
        rows = make_plan(recipe_of("canaries", corpus={}, plant=plant)).audited["canaries/mine.jsonl"]
        assert [row["text"] for row in rows] == [str(2 * i) for i in range(15)]
        with pytest.raises(
            InputError, match=r"asks for \{q\}, which is not the plain name of a field of .*pool\.jsonl"
        ):
            make_plan(recipe_of("assignments", corpus=corpus | {"template": "{q}"}))

    @pytest.mark.parametrize("design", ["members", "assignments", "blocks"])
    def test_a_text_that_is_there_twice_has_no_truth(self, design, tmp_path):
        texts = [f"text number {i}" for i in range(200)]
        texts[5] = texts[2]
        pool = tmp_path / "pool.jsonl"
        pool.write_text("".join(json.dumps({"id": f"t{i}", "text": text}) + "\n" for i, text in enumerate(texts)))
        recipe = recipe_of(design, corpus={"file": str(pool)})
        with pytest.raises(InputError, match=r"'t2' and 't5' are the same text"):
            run_recipe(recipe, tmp_path / "out")
        assert not (tmp_path / "out").exists()  # free for the corrected recipe

    def test_folders_without_a_run(self, tmp_path):
        with pytest.raises(InputError, match="no finished laboratory run"):
            load_lab_run(tmp_path)
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="is a file"):
            run_recipe(recipe_of("members"), tmp_path / "file")


@pytest.mark.slow("long")
def test_from_a_checkpoint_with_lora_and_sets_from_files(runs, tmp_path):
    """The base of one run is the start of another; paths are relative to the recipe's folder."""
    base = runs["members"].checkpoints[0]
    (tmp_path / "mine.txt").write_text("first line here\nsecond line here\nthird line here\n")
    plant = {"design": "canaries", "sets": {"mine": {"file": "mine.txt", "copies": 2}}}
    training = {**SMALL["training"], "lora": {"rank": 2, "leaves": ["qkv"]}}
    (tmp_path / "recipe.toml").write_text(
        recipe_toml(
            parse_recipe({"model": {"checkpoint": str(base)}, "plant": plant, "training": training}, folder=tmp_path)
        )
    )
    run = run_recipe(tmp_path / "recipe.toml", tmp_path / "out")
    assert (run.folder / "recipe.toml").read_bytes() == (tmp_path / "recipe.toml").read_bytes()
    assert [dict(row) for row in run.truth] == [
        {"set": "mine", "num_examples": 3, "copies": 2, "file": "canaries/mine.jsonl"}
    ]
    before, after = checkpoint.load(base)[1], checkpoint.load(run.checkpoints[0])[1]
    assert (before["layers"]["mlp_in"]["kernel"] == after["layers"]["mlp_in"]["kernel"]).all()
    assert (before["layers"]["qkv"]["kernel"] != after["layers"]["qkv"]["kernel"]).any()
    (tmp_path / "mine.txt").unlink()
    assert load_lab_run(tmp_path / "out").recipe == run.recipe


@pytest.mark.parametrize("size", ["width", "layers", "max_length"])
def test_a_model_beyond_the_memory_is_refused_before_anything_is_made(tmp_path, size):
    recipe = parse_recipe({"plant": {"design": "canaries", "copies": [1]}, "model": {size: 2**32 - 4}})
    with pytest.raises(InputError, match=r"\[model\] has [\d,]+ parameters, [\d,]+ GB in float32.* choose a smaller"):
        run_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("summary", ["", "{", "[1]", "{}", '{"recipe": 3}'])
def test_a_damaged_run(tmp_path, summary):
    (tmp_path / "lab.json").write_text(summary)
    (tmp_path / "truth.csv").write_text("id,label\na,1\n")
    with pytest.raises(InputError, match="does not hold a whole laboratory run; remove the folder and run the recipe"):
        load_lab_run(tmp_path)
