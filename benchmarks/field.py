"""In how many sources of this field a model of each family is named: repositories, papers and lists of leaderboards.

A family is a `model_type`. A source names it if the family's pattern, of ids of the hub and names of models, matches
its text once, without regard to case. Repositories are read in the files of `KINDS`, leaderboards in the list of their
models. Encoders, T5 and models behind an API are not counted.

    git clone --bare https://github.com/OWNER/NAME CLONES/OWNER+NAME  # for each of SOURCES
    python -m benchmarks.field CLONES PAPERS  # PAPERS: a folder with the five papers as NAME.txt
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
import subprocess
from collections.abc import Mapping
from typing import Any

from benchmarks import harness
from tdd.models.families import FAMILIES
from tdd.report.page import markdown_table

_NAMES = """
    amazon-science/controlling-llm-memorization anuk909/code-llm-contamination
    AriSpiesberger/Soft-Contamination-Prevelance avduarte333/DE-COP_Method
    computationalprivacy/document-level-membership-inference EleutherAI/semantic-memorization
    felixbmuller/llms-memorization-copyright ftramer/LM_Memorization GAIR-NLP/benbench gyuwankim/em-mia
    hitz-zentroa/lm-contamination iamgroot42/mimir JaydencoolCC/infilling-score liyucheng09/Contamination_Detector
    llm-jp/llm-jp-data-contamination llm-jp/llm-jp-membership-inference llm-jp/memorization-analysis
    lm-sys/llm-decontaminator locuslab/open-unlearning meaoww/gap-k mhaghifam/mia-llm
    mireshghallah/neighborhood-curvature-mia mynlp/memorizationstudy nailashfrni/mcq-leakage-detection-code
    nlp-titech/samia ntunlp/LLMSanitize orailix/predict_llm_memorization parameterlab/mia-scaling
    pratyushmaini/llm_dataset_inference privacytrustlab/ml_privacy_meter ruoyuxie/recall ryuryukke/mint
    safr-ai-lab/pandora-llm Sela-Omer/Contamination-Detection-Small-LM shahriargolchin/time-travel-in-llms
    shallinan1/membership-inference STAIR-BUPT/VeilProbe swj0419/detect-pretrain-code
    swj0419/detect-pretrain-code-contamination tatsu-lab/test_set_contamination velvinnn/LLM_MIA
    vsamuel2003/data-contamination WangCheng0116/CON-RECALL wjfu99/MIA-LLMs XINHAO-ZHANG/books-memorization
    YihongDong/CDD-TED4LLMs zhang-wei-chao/DC-PDD zjysteven/mimir zjysteven/mink-plus-plus
"""
SOURCES = tuple(_NAMES.split())
LEADERBOARDS = {
    "dsdanielpark/open-llm-leaderboard-report": "assets/*.csv",  # Open LLM Leaderboard
    "lm-sys/FastChat": "fastchat/model/model_registry.py",  # Chatbot Arena
    "stanford-crfm/helm": "src/helm/config/model_metadata.yaml",  # HELM
}
KINDS = ("cfg", "ipynb", "md", "py", "rst", "sh", "toml", "yaml", "yml")

_SIZE = r"\d+(?:[._]\d+)?b(?![a-z])"  # of a model, in billions of parameters
PATTERNS = {
    "baichuan": r"baichuan2?-\d",
    "bloom": rf"\bbloomz?-(?:{_SIZE}|\db\d|\d+m\b)|bigscience/bloom",
    "chatglm": r"chatglm[23]?-\d",
    "codegen": rf"\bcodegen-?(?:{_SIZE}|350m)",
    "cohere": r"command-r\b|aya-(?:23|expanse)",
    "deepseek_v2": r"deepseek-?(?:coder-)?v2",
    "deepseek_v3": r"deepseek-?v3|deepseek-r1(?!-distill)",
    "exaone": r"exaone-\d",
    "falcon": rf"\bfalcon-?{_SIZE}",
    "falcon, alibi": r"\bfalcon-rw",
    "falcon_mamba": r"falcon-?mamba",
    "gemma": rf"\bgemma-{_SIZE}|\bgemma-1\.1",
    "gemma2": rf"\bgemma-?2-{_SIZE}",
    "gemma3_text": rf"\bgemma-?3-(?:{_SIZE}|270m|1b)",
    "glm4": r"\bglm-?4",
    "gpt2": r"\b(?:distil)?gpt-?2(?:-(?:small|medium|large|xl))?\b|cerebras-gpt",
    "gpt_bigcode": r"santacoder|starcoder(?!2)",
    "gpt_neo": rf"gpt-?neo-?(?:{_SIZE}|125)",
    "gpt_neox": r"\bpythia\b|gpt-?neox|\bneox-20b|dolly-v2|redpajama-incite|stablelm-(?:base|tuned)-alpha",
    "gpt_oss": r"gpt-oss-\d",
    "gptj": r"\bgpt-?j\b|gpt4all-j",
    "granite": r"granite-3",
    "internlm2": r"internlm-?[23]",
    "jamba": r"\bjamba\b",
    "llama": rf"\bllama-?[123]?(?:\.\d)?-?{_SIZE}|llama-?[123]\b|open_?llama|tinyllama|vicuna-?{_SIZE}|codellama"
    rf"|\byi-(?:1\.5-)?{_SIZE}|\bllama-3\.\d|deepseek-llm|smollm2?-",
    "mamba": rf"\bmamba-(?:{_SIZE}|\d+m\b)",
    "mamba2": r"\bmamba-?2-\d",
    "minicpm": r"minicpm",
    "mistral": rf"\bmi(?:ni)?stral-(?:nemo|small|v0|{_SIZE})|zephyr-7b",
    "mixtral": r"mixtral-?8x",
    "mpt": rf"\bmpt-{_SIZE}",
    "olmo": rf"\bolmo-{_SIZE}|\bolmo-(?:1\.7|0424|0724)",
    "olmo2": r"\bolmo-?2\b",
    "olmo3": r"\bolmo-?3\b",
    "olmoe": r"\bolmoe\b",
    "opt": rf"\bopt-(?:{_SIZE}|125m|350m|iml)",
    "phi": r"\bphi-?(?:1|1[._]5|2)\b(?![.\d])",
    "phi3": r"\bphi-?(?:3|3\.5|4)\b",
    "qwen": rf"\bqwen-{_SIZE}",
    "qwen2": rf"\bqwen-?(?:1\.5|2|2\.5)-(?:math-|coder-)?{_SIZE}|\bqwq-32b",
    "qwen2_moe": r"qwen1\.5-moe|qwen2-57b-a14b",
    "qwen3": rf"\bqwen-?3-{_SIZE}(?!-a\d)",
    "qwen3_moe": r"qwen-?3-(?:coder-)?\d+b-a\d",
    "rwkv": r"\brwkv",
    "stablelm": r"stablelm-(?:2|3b|zephyr)|stable-code-3b",
    "starcoder2": r"starcoder2",
    "xglm": r"\bxglm-",
}  # fmt: skip


def in_repository(folder: pathlib.Path, paths: list[str]) -> tuple[str, str]:
    """(commit, text) of the files of a repository that match the paths."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, check=False)
        if done.returncode > 1:  # 1: no file matches
            raise SystemExit(f"{folder}: {done.stderr.decode()}")
        return done.stdout.decode(errors="replace")

    return git("rev-parse", "HEAD").strip(), git("grep", "-hI", "-e", "", "HEAD", "--", *paths)


def named(text: str) -> list[str]:
    """The families that a text names."""
    return [family for family, pattern in PATTERNS.items() if re.search(pattern, text, re.IGNORECASE)]


def main() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("clones", type=pathlib.Path)
    parser.add_argument("papers", type=pathlib.Path)
    options = parser.parse_args()
    sources = []
    for name in (*SOURCES, *LEADERBOARDS):
        paths = [LEADERBOARDS[name]] if name in LEADERBOARDS else [f"*.{kind}" for kind in KINDS]
        commit, text = in_repository(options.clones / name.replace("/", "+"), paths)
        kind = "leaderboard" if name in LEADERBOARDS else "repository"
        sources.append({"kind": kind, "name": name, "commit": commit, "families": named(text)})
    for paper in sorted(options.papers.glob("*.txt")):
        name = paper.stem.partition("_")[2] or paper.stem
        sources.append({"kind": "paper", "name": name, "families": named(paper.read_text("utf-8"))})
    counts = {family: sum(family in source["families"] for source in sources) for family in PATTERNS}
    result = {"command": "python -m benchmarks.field CLONES PAPERS", "sources": sources, "counts": counts}
    harness.write("field", {**result, "in_transformers": sorted(CONFIG_MAPPING.keys() & PATTERNS.keys())})
    print(section({**result, "in_transformers": [*CONFIG_MAPPING]}))


def section(result: Mapping[str, Any]) -> str:
    """What the page of the models says."""
    kinds = collections.Counter(source["kind"] for source in result["sources"])
    silent = sum(not source["families"] for source in result["sources"])
    rows = []
    for count in sorted({*result["counts"].values()} - {0}, reverse=True):
        families = sorted(family for family, sources in result["counts"].items() if sources == count)
        known = [family for family in families if family in result["in_transformers"]]
        columns = (
            [family for family in known if family in FAMILIES],
            [family for family in known if family not in FAMILIES],
            [family for family in families if family not in known],
        )
        rows.append((str(count), *(", ".join(f"`{family}`" for family in column) for column in columns)))
    text = (
        f"How often this field names a model of each family: {kinds['repository']} repositories of training-data "
        f"detection, contamination and memorisation, {kinds['paper']} papers and the lists of {kinds['leaderboard']} "
        f"leaderboards ({silent} of the sources name no open decoder). A source counts once, however often it names a "
        "family; `llama` has all models of that `model_type`, Vicuna and Yi among them, `gpt_neox` Pythia. Patterns, "
        f"sources and how to repeat it: `benchmarks/field.py`; commits and the families of each source: "
        "`benchmarks/results/field.json`."
    )
    header = ("sources", "read here", "not read", "not in transformers")
    return f"{text}\n\n{markdown_table(header, rows)}"


if __name__ == "__main__":
    main()
