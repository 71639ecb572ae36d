"""Which families a text names, and that the record's counts are those of its sources."""

import json

import pytest

from benchmarks import field, harness


@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("prompt-7b, option-350, graphi-2, dphi-2, llama.cpp, and a phi-2.7", []),
        ("mosaicml/mpt-7b-chat facebook/opt-66b microsoft/phi-1_5 LLaMA-13B", ["llama", "mpt", "opt", "phi"]),
        ("state-spaces/mamba-1.4b-hf, state-spaces/mamba2-130m", ["mamba", "mamba2"]),
        ("phi-4 and microsoft/Phi-3-mini", ["phi3"]),
        ("Qwen/Qwen-7B Qwen/Qwen1.5-7B Qwen/Qwen3-8B Qwen/Qwen3-30B-A3B", ["qwen", "qwen2", "qwen3", "qwen3_moe"]),
        ("tiiuae/falcon-7b", ["falcon"]),
        ("tiiuae/falcon-rw-1b", ["falcon, alibi"]),
        ("bigcode/starcoder2-3b", ["starcoder2"]),
        ("a Pythia, GPT-NeoX-20B, gpt-j-6B and GPT-Neo-125M", ["gpt_neo", "gpt_neox", "gptj"]),
    ],
)
def test_named(text, families):
    assert field.named(text) == families


def test_the_record_counts_its_sources():
    record = json.loads((harness.RESULTS / "field.json").read_text("utf-8"))
    for family, count in record["counts"].items():
        assert count == sum(family in source["families"] for source in record["sources"]), family
    listed = {source["name"] for source in record["sources"] if source["kind"] != "paper"}
    assert listed == {*field.SOURCES, *field.LEADERBOARDS}
