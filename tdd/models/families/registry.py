"""The families by name, and what the keys of a configuration of any of them may be."""

from __future__ import annotations

import functools
import importlib
import logging
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

from tdd.models.families.family import Family
from tdd.validate import InputError, some

_logger = logging.getLogger("tdd")


class _Families(Mapping[str, Family]):
    """Families by `model_type`, each imported when it is looked up."""

    _MODULES: Mapping[str, tuple[str, ...]] = {
        "gpt": ("gpt2", "gpt_neo", "gpt_neox", "opt", "gpt_bigcode"),
        "gptj": ("gptj",),
        "falcon": ("falcon",),
        "llama": ("llama", "mistral", "qwen2", "qwen3", "smollm3"),
        "gemma": ("gemma", "gemma2", "gemma3_text"),
        "cohere": ("cohere", "cohere2"),
        "deepseek": ("deepseek_v2", "deepseek_v3"),
        "glm": ("glm", "glm4"),
        "granite": ("granite",),
        "stablelm": ("stablelm",),
        "olmo": ("olmo", "olmo2", "olmo3"),
        "phi": ("phi3",),
        "phi1": ("phi",),
        "alibi": ("mpt", "bloom"),
        "gpt_oss": ("gpt_oss",),
        "mixture": ("mixtral", "olmoe", "qwen3_moe"),
    }

    def __getitem__(self, model_type: str) -> Family:
        module = next((name for name, types in self._MODULES.items() if model_type in types), None)
        if module is None:
            raise KeyError(model_type)
        return getattr(importlib.import_module(f"tdd.models.families.{module}"), model_type.upper())

    def __iter__(self) -> Iterator[str]:
        return iter([model_type for types in self._MODULES.values() for model_type in types])

    def __len__(self) -> int:
        return sum(map(len, self._MODULES.values()))


FAMILIES: Mapping[str, Family] = _Families()
"""Supported families by `model_type`."""

MULTIMODAL = ("gemma3", "llava", "llava_next", "llava_onevision", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Types of models that see, of which the text decoder is read (`tdd.models.families.multimodal`)."""

REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "auto_map": (None,),
    "cross_attention_hidden_size": (None,),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
"""Keys of every family that would change the computation, with the values under which they do not."""

_PROVENANCE = """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path _num_labels architectures
    attn_implementation cache_implementation custom_pipelines dtype finetuning_task id2label label2id model_type
    name_or_path problem_type task_specific_params tokenizer_class torch_dtype transformers.js_config
    transformers_version unsloth_fixed unsloth_version
"""
_TRAINING_AND_OTHER_HEADS = """
    activation_dropout attention_dropout attention_probs_dropout_prob attn_pdrop chunk_size_feed_forward
    classifier_dropout dropout embd_pdrop embed_dropout gradient_checkpointing hidden_dropout hidden_dropout_prob
    init_std initializer_range is_decoder layerdrop output_attentions output_hidden_states output_past output_scores
    resid_dropout resid_pdrop return_dict return_dict_in_generate summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj tf_legacy_loss tie_encoder_decoder torchscript use_bfloat16
    use_cache
"""
_GENERATION = """
    bad_words_ids begin_suppress_tokens bos_token_id decoder_start_token_id diversity_penalty do_sample early_stopping
    encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id
    length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
    pad_token_id prefix remove_invalid_values repetition_penalty sep_token_id suppress_tokens temperature top_k top_p
    typical_p
"""
IGNORED = frozenset((_PROVENANCE + _TRAINING_AND_OTHER_HEADS + _GENERATION).split())
"""Keys of every family that never change the logits of a text."""


_OTHER_HEAD = re.compile(
    r"For(?:\w*Classification|QuestionAnswering|MultipleChoice|MaskedLM|RewardModel\w*)$|RewardModel$"
)
_MAKER = re.compile(r"(?:microsoft|deepseek-ai|mosaicml|tiiuae)/[\w.-]+?--(?=\w+\.\w+$)")


def check_keys(
    config: Mapping[str, Any],
    where: str,
    model_type: str,
    *,
    known: frozenset[str],
    required: Mapping[str, tuple[Any, ...]] = types.MappingProxyType({}),
) -> None:
    """Every key of a configuration is known, has one of the values that it must have, or is read by nothing."""
    _check_head(config, where)
    for key, allowed in {**REQUIRED, **required}.items():
        if key in config and (_code_names(config[key]) if key == "auto_map" else config[key]) not in allowed:
            advice = f"supported: {' or '.join(map(repr, allowed))}"
            if key == "auto_map":
                advice = "if the repository only copies the code of transformers, remove auto_map from config.json"
            raise InputError(
                f"{where} has {key}={config[key]!r}, which changes the computation and is not supported; {advice}"
            )
    left = sorted(config.keys() - known - IGNORED - REQUIRED.keys() - required.keys())
    unknown = [key for key in left if _is_read(key, model_type, config)]
    if unknown:
        raise InputError(
            f"{where} has unknown keys {some(unknown)}: whether they change the computation cannot "
            "be told; remove them if they do not"
        )
    if left:
        _warn_once("%s has keys that neither transformers nor tdd reads: %s", where, some(left))


def _check_head(config: Mapping[str, Any], where: str) -> None:
    """The class that was saved gives probabilities of tokens: tied embeddings alone do not tell.

    Raises:
      InputError: a class with a head for something else.
    """
    named = config.get("architectures")
    for name in [name for name in named if isinstance(name, str)] if isinstance(named, list) else []:
        if _OTHER_HEAD.search(name):
            raise InputError(
                f"{where} names {name}, which gives no token probabilities; if the weights are those of a language "
                "model all the same, name the class of the language model in architectures"
            )
        if name.endswith("Model") and "Head" not in name:
            _warn_once(
                "%s names %s, a class without a head: scores are meaningful only if the weights are those of a "
                "language model, not of an embedding model",
                where,
                name,
            )


def _code_names(auto_map: Any) -> Any:
    """An `auto_map` without the repositories of the models' makers, which transformers writes before names of code."""
    if not isinstance(auto_map, Mapping):
        return auto_map
    return {key: _MAKER.sub("", name) if isinstance(name, str) else name for key, name in auto_map.items()}


def unread(config: Mapping[str, Any], model_type: str, known: frozenset[str]) -> list[str]:
    """The keys of a configuration that are neither known nor read by transformers, sorted."""
    left = config.keys() - known - IGNORED - REQUIRED.keys()
    return sorted(key for key in left if not _is_read(key, model_type, config))


def _is_read(key: str, model_type: str, config: Mapping[str, Any]) -> bool:
    """Whether transformers reads a key that this package does not know."""
    from tdd.models.read_keys import is_read

    return is_read(key, model_type, config.get("transformers_version"))


@functools.cache
def _warn_once(message: str, *details: str) -> None:
    _logger.warning(message, *details)
