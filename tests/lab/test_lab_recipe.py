"""Recipes: read with every mistake named, written in full, read back equal."""

import importlib.resources
import tomllib

import pytest

from tdd import InputError
from tdd.lab.lora import Lora
from tdd.lab.recipe import DESIGNS, BlocksDesign, CanariesDesign, MembersDesign, Recipe, TrainConfig, Training
from tdd.lab.recipe_file import load_recipe, parse_recipe, recipe_dict, recipe_toml

EXAMPLES = importlib.resources.files("tdd.lab") / "data" / "recipes"
BLOCKS = {"design": "blocks", "models": 3, "items": 30}
MEMBERS = {"design": "members", "members": 3, "nonmembers": 2, "calibration": 2}


@pytest.mark.parametrize("design", DESIGNS)
def test_examples_are_read_and_name_only_known_keys(tmp_path, design):
    source = (EXAMPLES / f"{design}.toml").read_bytes()
    (tmp_path / "recipe.toml").write_bytes(source)
    recipe = load_recipe(tmp_path / "recipe.toml")
    assert recipe.plant.design == design
    assert recipe.source == source


@pytest.mark.parametrize("design", DESIGNS)
def test_keys_that_an_example_comments_out_are_known_too(tmp_path, design):
    (tmp_path / "mine.jsonl").write_text('{"text": "a"}\n')
    text = (EXAMPLES / f"{design}.toml").read_text("utf-8").replace("# [", "[")
    for line in (
        "rank = 8",
        "alpha = 16.0",
        "leaves = ",
        "examples_per_document",
        'file = "mine.jsonl"',
        "copies = 10",
    ):
        text = text.replace(f"# {line}", line)
    (tmp_path / "recipe.toml").write_text(text)
    assert load_recipe(tmp_path / "recipe.toml").training.lora == Lora(rank=8, alpha=16.0)


@pytest.mark.parametrize(
    "given",
    [
        {"seed": 3, "plant": {"design": "canaries", "copies": [0, 1, 1, 10], "separator": '\t"\\\x7f\n∎𝄞'}},
        {"plant": MEMBERS | {"duplication": [1, 5]}, "corpus": {"generator": "examples"}},
        {"plant": BLOCKS | {"share": [0.5, 0, 1]}, "training": {"lora": {"rank": 2}, "learning_rate": 1, "eps": 1e-12}},
        {"plant": {"design": "assignments", "models": 2, "items": 9}, "model": {"checkpoint": "base"}},
        {"plant": {"design": "canaries", "sets": {"a-b.c": {"file": "base", "copies": 2}}}, "corpus": {"file": "base"}},
        {
            "plant": {"design": "canaries", "sets": {"a": {"file": "base", "copies": 2, "template": "{q} {a}"}}},
            "corpus": {"file": "base", "template": "td4eval"},
        },
    ],
)
def test_the_full_form_is_read_back_equal(tmp_path, given):
    (tmp_path / "base").mkdir()
    recipe = parse_recipe(given, folder=tmp_path)
    text = recipe_toml(recipe)
    assert parse_recipe(tomllib.loads(text), folder=tmp_path) == recipe
    assert parse_recipe(recipe_dict(recipe), must_exist=False) == recipe
    assert recipe_toml(parse_recipe(tomllib.loads(text), folder=tmp_path)) == text


def test_values_arrive_where_they_belong():
    recipe = parse_recipe(
        {"seed": 4, "plant": BLOCKS | {"share": 1}, "training": {"epochs": 7, "evaluate": False, "lora": {"rank": 3}}}
    )
    assert recipe.plant == BlocksDesign(models=3, items=30, share=1.0)
    assert recipe.training == Training(epochs=7, evaluate=False, lora=Lora(rank=3))
    assert recipe.training.config(seed=8) == TrainConfig(epochs=7, seed=8)
    assert parse_recipe({"plant": MEMBERS}) == Recipe(plant=MembersDesign(members=3, nonmembers=2, calibration=2))


def test_generated_sets_are_named_by_their_copies():
    design = CanariesDesign(copies=(0, 0, 1, 10, 10, 10))
    assert design.generated == {"x0-a": 0, "x0-b": 0, "x1": 1, "x10-a": 10, "x10-b": 10, "x10-c": 10}
    assert list(CanariesDesign(copies=(2,) * 28).generated)[25:] == ["x2-z", "x2-aa", "x2-ab"]


def test_seeds_of_parts_differ_and_are_those_of_the_definition():
    names = [
        "corpus",
        "plant",
        "tokenizer",
        *(f"model-{k}/{part}" for k in range(1, 6) for part in ("params", "training")),
    ]
    recipes = [Recipe(plant=CanariesDesign(copies=(1,)), seed=seed) for seed in range(50)]
    seeds = {recipe.seed_of(name) for recipe in recipes for name in names}
    assert len(seeds) == 50 * len(names)
    assert recipes[0].seed_of("corpus") == 0x097A54AF  # printf 0/corpus | sha256sum: af547a09...


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "recipe: plant is missing"),
        ({"plant": {}}, r"plant\.design is missing"),
        ({"plant": {"design": "canary"}}, r"plant\.design = 'canary' is unknown; did you mean 'canaries'"),
        ({"plant": {"design": 3}}, r"plant\.design = 3 is unknown; choose one of canaries, members"),
        ({"plant": {"design": "members", "members": 3}}, r"plant\.nonmembers is missing; it has no default"),
        ({"plant": MEMBERS | {"calibration": 2.0}}, r"plant\.calibration = 2\.0 .*expected `int`, got `float`"),
        ({"plant": MEMBERS | {"calibration": 0}}, r"\[plant\] calibration must be .* at least 1, got 0"),
        ({"plant": MEMBERS | {"items": 3}}, r"plant\.items = 3 is unknown; .*known: members"),
        ({"sed": 3}, "sed = 3 is unknown; did you mean 'seed'"),
        ({"plant": BLOCKS, "training": {"epohcs": 3}}, r"training\.epohcs = 3 is unknown; did you mean 'epochs'"),
        ({"plant": BLOCKS, "training": {"seed": 3}}, r"training\.seed = 3 is unknown"),
        ({"plant": BLOCKS, "training": {"epochs": "3"}}, r"training\.epochs = '3' .*expected `int`, got `str`"),
        ({"plant": BLOCKS, "training": {"epochs": True}}, r"training\.epochs = True .*expected `int`, got `bool`"),
        ({"plant": BLOCKS, "training": {"epochs": 0}}, r"\[training\] epochs must be"),
        ({"plant": BLOCKS, "training": {"compute_dtype": "fp8"}}, r"\[training\] compute_dtype='fp8'"),
        ({"plant": BLOCKS, "training": {"lora": 3}}, r"training\.lora = 3 must be a section"),
        (
            {"plant": BLOCKS, "training": {"lora": {"rnk": 2}}},
            r"training\.lora\.rnk = 2 is unknown; did you mean 'rank'",
        ),
        (
            {"plant": BLOCKS, "training": {"lora": {"leaves": [1]}}},
            r"training\.lora\.leaves\[0\] = 1 .*expected `str`, got `int`",
        ),
        ({"plant": BLOCKS, "training": {"epochs": 10**27}}, r"\[training\] epochs must be .* below 2\^32, got 1000"),
        ({"plant": BLOCKS, "model": {"width": 10**30}}, r"\[model\] width must be .* below 2\^32, got 1000"),
        ({"plant": BLOCKS, "seed": -1}, "seed must be .* at least 0, got -1"),
        ({"plant": BLOCKS, "seed": True}, "seed must be a whole number of at least 0, got True"),
        ({"plant": BLOCKS, "corpus": "x"}, "corpus = 'x' must be a section"),
        ({"plant": BLOCKS, "corpus": {"file": "x.jsonl"}}, r"corpus\.file = 'x\.jsonl': there is no"),
        ({"plant": BLOCKS, "corpus": {"file": "x", "generator": "documents"}}, r"corpus\.file and corpus\.generator"),
        ({"plant": BLOCKS, "corpus": {"generator": "novels"}}, r"\[corpus\] generator='novels'"),
        ({"plant": BLOCKS, "corpus": {"template": "td4eval"}}, r"\[corpus\] template = 'td4eval' .*; give file"),
        (
            {"plant": BLOCKS, "corpus": {"file": "x", "template": "{q}", "text_field": "q"}},
            "template and corpus.text_f",
        ),
        (
            {
                "plant": {
                    "design": "canaries",
                    "sets": {"a": {"file": "x", "copies": 1, "template": "", "text_field": ""}},
                }
            },
            r"plant\.sets\.a\.template and plant\.sets\.a\.text_field exclude each other",
        ),
        ({"plant": BLOCKS, "model": {"width": 30}}, r"\[model\] width=30 is not a multiple of heads=4"),
        ({"plant": BLOCKS, "model": {"checkpoint": "x", "width": 8}}, r"model\.checkpoint and model\.width exclude"),
        (
            {"plant": BLOCKS, "model": {"checkpoint": "x"}, "tokenizer": {"texts": 2}},
            r"remove the section \[tokenizer\]",
        ),
        ({"plant": {"design": "canaries"}}, r"\[plant\] copies is empty"),
        ({"plant": {"design": "canaries", "copies": [1, -1]}}, r"copies\[1\] must be"),
        ({"plant": {"design": "canaries", "sets": {"a": {"file": "x"}}}}, r"plant\.sets\.a\.copies is missing"),
        ({"plant": {"design": "canaries", "sets": {"a": 3}}}, r"plant\.sets\.a = 3 must be a section"),
        ({"plant": {"design": "canaries", "sets": {"../a": {"file": "x", "copies": 1}}}}, r"sets names '\.\./a'"),
        (
            {"plant": {"design": "canaries", "copies": [1], "sets": {"x1": {"file": "x", "copies": 1}}}},
            "'x1', which is the name of a generated set",
        ),
        (
            {"plant": {"design": "canaries", "sets": {"é" * 101: {"file": "x", "copies": 1}}}},
            "longer than 200 bytes",
        ),
        ({"plant": BLOCKS, "corpus": {"file": "~nobody-at-all/x"}}, r"corpus\.file = '~nobody-at-all/x': there is no"),
        (
            {"plant": {"design": "canaries", "copies": [1], "sets": {"X1": {"file": "x", "copies": 1}}}},
            "'X1', which is one file with 'x1' on some systems",
        ),
        (
            {"plant": {"design": "canaries", "sets": {name: {"file": "x", "copies": 1} for name in ("ab", "aB")}}},
            "'aB', which is one file with 'ab'",
        ),
        (
            {"plant": {"design": "assignments", "models": 2, "items": 9, "share": [0.5, 0]}},
            r"\[plant\] model 2 is trained on nothing",
        ),
        ({"plant": BLOCKS | {"share": [0.5]}}, r"\[plant\] share holds 1 numbers for 3 models"),
    ],
)
def test_mistakes_are_named(given, named):
    with pytest.raises(InputError, match=named):
        parse_recipe(given)


def test_files_that_are_no_recipes(tmp_path):
    with pytest.raises(InputError, match=r"there is no recipe .*nothing\.toml.*tdd lab example"):
        load_recipe(tmp_path / "nothing.toml")
    (tmp_path / "recipe.toml").write_text("seed = \n")
    with pytest.raises(InputError, match=r"recipe\.toml is not valid TOML: .*line 1"):
        load_recipe(tmp_path / "recipe.toml")
    (tmp_path / "recipe.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not valid TOML"):
        load_recipe(tmp_path / "recipe.toml")
    (tmp_path / "recipe.toml").write_text(f"seed = {'[' * 50_000}{']' * 50_000}\n")
    with pytest.raises(InputError, match="not valid TOML: it is nested too deeply"):
        load_recipe(tmp_path / "recipe.toml")
    (tmp_path / "recipe.toml").write_text('[plant]\ndesign = "members"\nmembrs = 3\n')
    with pytest.raises(InputError, match=r"recipe\.toml: plant\.membrs = 3 is unknown; did you mean 'members'"):
        load_recipe(tmp_path / "recipe.toml")
