"""Pipelines of published tokenizer.json files: normaliser, pre-tokeniser, post-processor, class and model type.

Vocabularies and merges are small ones made here: byte-level ones are those of the packaged checkpoint, those with
U+2581 for a blank are `blank_model`.
"""

import dataclasses
from typing import Any

_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _BLANKS
"""The expression of cl100k, which Llama 3, OLMo 2 and StableLM 2 use."""
WORDS_1 = WORDS_3.replace(r"\p{N}{1,3}", r"\p{N}")
"""That of Qwen2 and its distillations: single digits."""
BLANK = "\u2581"


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **options}


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def sequence(kind, *parts):
    return {"type": "Sequence", kind: [*parts]}


def pre(*parts):
    return sequence("pretokenizers", *parts)


def after(token, number):
    """A token before each text."""
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


DIGITS = {"type": "Digits", "individual_digits": True}
FIRST = after("<|endoftext|>", 0)
WHOLE = byte_level(use_regex=False)
LLAMA_2 = sequence("normalizers", {"type": "Prepend", "prepend": BLANK}, replace(" ", BLANK))


@dataclasses.dataclass(frozen=True)
class Published:
    """One published pipeline."""

    source: str  # a repository that has it
    kind: str  # `tokenizer_class` of its tokenizer_config.json
    model_type: str  # of its config.json
    normalizer: Any = None
    pre_tokenizer: Any = None
    post_processor: Any = None
    blanks: bool = False  # BPE with byte fall-back and U+2581 for blanks, not byte-level
    ignore_merges: bool = False


PUBLISHED = (
    Published("openai-community/gpt2", "GPT2Tokenizer", "gpt2", None, byte_level(), byte_level(trim_offsets=False)),
    Published("EleutherAI/pythia-160m", "GPTNeoXTokenizer", "gpt_neox", {"type": "NFC"}, byte_level(), byte_level()),
    Published("allenai/OLMo-1B-hf", "GPTNeoXTokenizer", "olmo", {"type": "NFC"}, byte_level(), byte_level()),
    Published("allenai/OLMo-2-1124-7B", "GPT2Tokenizer", "olmo2", None, pre(split(WORDS_3), WHOLE)),
    Published(
        "meta-llama/Meta-Llama-3-8B", "PreTrainedTokenizerFast", "llama", None, pre(split(WORDS_3), WHOLE),
        sequence("processors", byte_level(), FIRST), ignore_merges=True,
    ),
    Published("Qwen/Qwen2.5-7B", "Qwen2Tokenizer", "qwen2", {"type": "NFC"}, pre(split(WORDS_1), WHOLE), WHOLE),
    Published("Qwen/Qwen3-8B", "Qwen2Tokenizer", "qwen3", {"type": "NFC"}, pre(split(WORDS_1), WHOLE), WHOLE),
    Published(
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "LlamaTokenizerFast", "qwen2", None, pre(split(WORDS_1), WHOLE),
        FIRST,
    ),
    Published(
        "deepseek-ai/DeepSeek-V3", "LlamaTokenizerFast", "llama", sequence("normalizers"),
        pre(
            split(r"\p{N}{1,3}"),
            split("[一-龥\u3040-ゟ゠-ヿ]+"),
            split(
                r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                r"| ?[\p{P}\p{S}]+[\r\n]*|" + _BLANKS
            ),
            WHOLE,
        ),
        FIRST,
    ),
    Published("HuggingFaceTB/SmolLM2-135M", "GPT2Tokenizer", "llama", None, pre(DIGITS, byte_level())),
    Published("bigcode/starcoder2-3b", "GPT2Tokenizer", "gpt2", None, pre(DIGITS, byte_level())),
    Published(
        "tiiuae/falcon-7b", "PreTrainedTokenizerFast", "gpt_neox", None,
        pre(
            {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
            {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"),
        ),
    ),
    Published("meta-llama/Llama-2-7b-hf", "LlamaTokenizer", "llama", LLAMA_2, None, after("<s>", 1), blanks=True),
    Published("mistralai/Mistral-7B-v0.1", "LlamaTokenizer", "mistral", LLAMA_2, None, after("<s>", 1), blanks=True),
    Published(
        "mistralai/Mistral-7B-v0.3", "LlamaTokenizer", "mistral", None,
        {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "first", "split": False},
        after("<s>", 1), blanks=True,
    ),
    Published("microsoft/Phi-3-mini-4k-instruct", "LlamaTokenizer", "phi3", LLAMA_2, None, None, blanks=True),
    Published(
        "google/gemma-2-2b", "GemmaTokenizer", "gemma2", replace(" ", BLANK),
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        after("<s>", 1), blanks=True,
    ),
)  # fmt: skip


def blank_model():
    """A BPE with U+2581 for a blank and a token for each byte, and its special tokens."""
    merges = ["t h", "th e", f"{BLANK} the", "i n", f"{BLANK} in", "a n", "an d", f"{BLANK} and", "e r", "2 0", "o n"]
    letters = sorted({*map(chr, range(33, 127)), BLANK, "é", "中", "文"})
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    tokens += [merge.replace(" ", "") for merge in merges]
    model = {
        "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
        "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges,
    }  # fmt: skip
    special = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for number, token in enumerate(tokens[:3])
    ]  # fmt: skip
    return model, special
