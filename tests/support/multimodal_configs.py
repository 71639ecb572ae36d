"""Small configurations of models that see, in the keys of published config.json files."""

from family_configs import _GEMMA3, _LLAMA, _MISTRAL, _QWEN2, _QWEN3

# fmt: off
_SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "image_size": 8, "patch_size": 4,
}
_CLIP = {**_SIGLIP, "model_type": "clip_vision_model", "projection_dim": 8}
_QWEN_TEXT = {
    **_QWEN2, "num_attention_heads": 2, "num_key_value_heads": 1, "use_sliding_window": False, "sliding_window": 5,
    "max_window_layers": 1, "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]},
}
_QWEN = {
    **_QWEN_TEXT, "model_type": "qwen2_vl", "image_token_id": 40, "video_token_id": 41, "vision_start_token_id": 42,
    "vision_end_token_id": 43, "vision_token_id": 44,
    "vision_config": {"depth": 1, "embed_dim": 8, "hidden_size": 16, "mlp_ratio": 2, "num_heads": 2, "patch_size": 4},
}
_QWEN25 = {
    **_QWEN, "model_type": "qwen2_5_vl", "rope_theta": 100.0,
    "vision_config": {
        "depth": 1, "hidden_size": 8, "intermediate_size": 12, "out_hidden_size": 16, "num_heads": 2, "patch_size": 4,
        "fullatt_block_indexes": [0],
    },
}
_GEMMA = {
    "model_type": "gemma3", "text_config": _GEMMA3, "vision_config": _SIGLIP, "mm_tokens_per_image": 4,
    "image_token_index": 40, "boi_token_index": 41, "eoi_token_index": 42, "eos_token_id": [1, 2],
}
_LLAVA = {
    "model_type": "llava", "text_config": _LLAMA, "vision_config": _CLIP, "image_token_index": 40, "ignore_index": -100,
    "projector_hidden_act": "gelu", "vision_feature_layer": -1, "vision_feature_select_strategy": "default",
}

_LLAVA_NEXT = {
    **_LLAVA, "model_type": "llava_next", "image_grid_pinpoints": [[8, 16], [16, 8]],
    "use_image_newline_parameter": True,
}
_ONEVISION = {
    **_LLAVA, "model_type": "llava_onevision", "text_config": _QWEN2, "vision_config": _SIGLIP,
    "image_grid_pinpoints": [[8, 8]], "video_token_index": 41, "vision_aspect_ratio": "anyres_max_9",
    "vision_feature_select_strategy": "full", "use_image_newline_parameter": True,
}
_QWEN3VL = {
    "model_type": "qwen3_vl", "image_token_id": 40, "video_token_id": 41, "vision_start_token_id": 42,
    "vision_end_token_id": 43, "tie_word_embeddings": False,
    "text_config": {
        **_QWEN3, "model_type": "qwen3_vl_text",
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [1, 1, 1], "rope_type": "default"},
    },
    "vision_config": {
        "model_type": "qwen3_vl", "depth": 1, "hidden_size": 8, "intermediate_size": 12, "out_hidden_size": 16,
        "num_heads": 2, "patch_size": 4, "deepstack_visual_indexes": [0], "num_position_embeddings": 4,
    },
}


def _nested(config):
    """As later files have it: the keys of the decoder in an object of their own, and some of them still beside it."""
    text = {key: value for key, value in config.items() if key in _QWEN_TEXT}
    around = {key: value for key, value in config.items() if key not in _QWEN_TEXT or key == "hidden_size"}
    return {**around, "model_type": config["model_type"], "text_config": {**text, "model_type": "qwen2_vl_text"}}


CONFIGURATIONS = {
    "gemma3": _GEMMA,
    "gemma3, other layers": {
        **_GEMMA, "text_config": {
            **_GEMMA3, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
    },
    "gemma3, untied": {**_GEMMA, "tie_word_embeddings": False},
    "llava": _LLAVA,
    "llava, tied": {**_LLAVA, "tie_word_embeddings": True},
    "llava, mistral": {**_LLAVA, "text_config": {**_MISTRAL, "sliding_window": 5}},
    "llava_next": _LLAVA_NEXT,
    "llava_next, mistral": {**_LLAVA_NEXT, "text_config": {**_MISTRAL, "sliding_window": None}},
    "llava_onevision": _ONEVISION,
    "qwen3_vl": _QWEN3VL,
    "qwen3_vl, tied": {**_QWEN3VL, "tie_word_embeddings": True},
    "qwen2_vl": _QWEN,
    "qwen2_vl, nested": _nested(_QWEN),
    "qwen2_vl, windows, tied": {**_QWEN, "use_sliding_window": True, "tie_word_embeddings": True},
    "qwen2_5_vl": _QWEN25,
    "qwen2_5_vl, other sections": {**_QWEN25, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
    "qwen2_5_vl, windows, tied": {**_QWEN25, "use_sliding_window": True, "tie_word_embeddings": True},
}

PUBLISHED = {
    "gemma-3-4b-it": (
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
            "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
            "mm_tokens_per_image": 256, "model_type": "gemma3", "torch_dtype": "bfloat16",
            "transformers_version": "4.50.0.dev0",
            "text_config": {
                "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
            },
        },
        {
            "vocab_size": 262208, "attention.windows": ((1024,) * 5 + (None,)) * 5 + (1024,) * 4, "tied_head": True,
            "positions.scaling.factor": 8.0, "attention.num_heads": 8,
        },
    ),
    "llava-1.5-7b-hf": (
        {
            "architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": 32000,
            "model_type": "llava", "pad_token_id": 32001, "projector_hidden_act": "gelu",
            "text_config": {
                "_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"],
                "max_position_embeddings": 4096, "model_type": "llama", "rms_norm_eps": 1e-05, "torch_dtype": "float16",
                "vocab_size": 32064,
            },
            "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.36.0.dev0",
            "vision_config": {
                "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "model_type": "clip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768,
                "vocab_size": 32000,
            },
            "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vocab_size": 32064,
        },
        {"vocab_size": 32064, "width": 4096, "max_length": 4096, "tied_head": False},
    ),
    "qwen2-vl-7b-instruct": (
        {
            "architectures": ["Qwen2VLForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653,
            "vision_token_id": 151654, "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu",
            "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
            "max_position_embeddings": 32768, "max_window_layers": 28, "model_type": "qwen2_vl",
            "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
            "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "transformers_version": "4.41.2", "use_cache": True, "use_sliding_window": False,
            "vision_config": {
                "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3, "hidden_size": 3584,
                "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2,
            },
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 152064,
        },
        {"positions.theta": 1e6, "positions.scaling": None, "attention.windows": (None,) * 28, "tied_head": False},
    ),
    "llava-v1.6-mistral-7b-hf": (
        {
            "architectures": ["LlavaNextForConditionalGeneration"], "ignore_index": -100, "image_token_index": 32000,
            "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
            "model_type": "llava_next", "projector_hidden_act": "gelu",
            "text_config": {
                "_name_or_path": "mistralai/Mistral-7B-Instruct-v0.2", "architectures": ["MistralForCausalLM"],
                "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
                "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
                "torch_dtype": "bfloat16", "vocab_size": 32064,
            },
            "torch_dtype": "float16", "transformers_version": "4.39.0.dev0", "use_image_newline_parameter": True,
        },
        {"vocab_size": 32064, "width": 4096, "positions.theta": 1e6, "attention.windows": (None,) * 32},
    ),
    "qwen3-vl-4b-instruct": (
        {
            "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655, "model_type": "qwen3_vl",
            "text_config": {
                "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643, "dtype": "bfloat16",
                "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560,
                "initializer_range": 0.02, "intermediate_size": 9728, "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36,
                "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 5000000,
                "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
                "tie_word_embeddings": True, "use_cache": True, "vocab_size": 151936,
            },
            "tie_word_embeddings": True, "transformers_version": "4.57.0.dev0", "video_token_id": 151656,
        },
        {
            "max_length": 262144, "positions.theta": 5e6, "positions.scaling": None, "attention.num_kv_heads": 8,
            "attention.windows": (None,) * 36, "attention.qk_norm": "head", "tied_head": True,
        },
    ),
    "medgemma-27b-it": (
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
            "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
            "mm_tokens_per_image": 256, "model_type": "gemma3",
            "text_config": {
                "attention_bias": False, "attention_dropout": 0.0, "attn_logit_softcapping": None,
                "final_logit_softcapping": None, "head_dim": 128, "hidden_activation": "gelu_pytorch_tanh",
                "hidden_size": 5376, "initializer_range": 0.02, "intermediate_size": 21504,
                "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10 + ["sliding_attention"] * 2,
                "max_position_embeddings": 131072, "model_type": "gemma3_text", "num_attention_heads": 32,
                "num_hidden_layers": 62, "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
                "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1000000, "sliding_window": 1024,
                "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 262208,
            },
            "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0",
            "vision_config": {
                "attention_dropout": 0.0, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152, "image_size": 896,
                "intermediate_size": 4304, "layer_norm_eps": 1e-06, "model_type": "siglip_vision_model",
                "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 27, "patch_size": 14,
                "torch_dtype": "bfloat16", "vision_use_head": False,
            },
        },
        {"vocab_size": 262208, "width": 5376, "num_layers": 62, "positions.scaling.factor": 8.0},
    ),
    "cosmos-reason2-8b": (
        {
            "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655, "model_type": "qwen3_vl",
            "text_config": {
                "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643, "dtype": "bfloat16",
                "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
                "initializer_range": 0.02, "intermediate_size": 12288, "max_position_embeddings": 262144,
                "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36,
                "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
                "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
                "rope_theta": 5000000, "use_cache": True, "vocab_size": 151936,
            },
            "tie_word_embeddings": False, "transformers_version": "4.57.0.dev0", "video_token_id": 151656,
            "vision_config": {
                "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_act": "gelu_pytorch_tanh",
                "hidden_size": 1152, "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4304,
                "model_type": "qwen3_vl", "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 4096,
                "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
            "vision_end_token_id": 151653, "vision_start_token_id": 151652,
        },
        {"width": 4096, "attention.head_dim": 128, "attention.windows": (None,) * 36, "tied_head": False},
    ),
}
# fmt: on

_OLD, _NEW = ("language_model.model.", "language_model.", ""), ("model.language_model.", "", "model.")
LAYOUTS = {
    **dict.fromkeys(("gemma3", "llava", "llava_next", "llava_onevision"), (_OLD, _NEW)),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), (("model.", "", ""), _NEW)),
    "qwen3_vl": (_NEW, _NEW),
}
"""Beginnings of names of the decoder, of its head, and of the towers, in published and in later files."""
