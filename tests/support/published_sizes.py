"""Published checkpoints as facts: repository -> (number of parameters, the keys of its config.json that decide shapes).

Numbers are those of the published tensors, a tied readout counted once. Keys on which no shape, position or factor
depends are left out.
"""

from published_configs import PUBLISHED

# fmt: off


def _config(model_type, vocabulary, width, layers, heads, mlp, positions, **rest):
    return {
        "model_type": model_type, "vocab_size": vocabulary, "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "intermediate_size": mlp, "max_position_embeddings": positions, **rest,
    }


def _gpt2(width, layers, heads):
    return {
        "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": width, "n_layer": layers,
        "n_head": heads,
    }


_GPTJ = {
    "model_type": "gptj", "vocab_size": 50400, "n_positions": 2048, "rotary_dim": 64, "tie_word_embeddings": False,
}


_BLOOM = {"model_type": "bloom", "vocab_size": 250880, "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16}


def _gpt_neo(width, layers, heads):
    return {
        "model_type": "gpt_neo", "vocab_size": 50257, "max_position_embeddings": 2048, "hidden_size": width,
        "num_layers": layers, "num_heads": heads, "attention_types": [[["global", "local"], layers // 2]],
    }


def _pythia(vocabulary, width, layers, heads):
    return _config("gpt_neox", vocabulary, width, layers, heads, 4 * width, 2048, rotary_pct=0.25)


def _phi(width, layers, heads):
    return _config("phi", 51200, width, layers, heads, 4 * width, 2048, tie_word_embeddings=False)


def _opt(width, layers, heads, **rest):
    return {
        "model_type": "opt", "vocab_size": 50272, "max_position_embeddings": 2048, "hidden_size": width,
        "num_hidden_layers": layers, "num_attention_heads": heads, "ffn_dim": 4 * width, "word_embed_proj_dim": width,
        **rest,
    }


def _of(model_type, **common):
    """Rows of a family: vocabulary, width, layers, heads, heads of keys, width of the perceptron, positions."""
    def row(vocabulary, width, layers, heads, kv_heads, mlp, positions, **rest):
        keys = {"num_key_value_heads": kv_heads, **common, **rest}
        return _config(model_type, vocabulary, width, layers, heads, mlp, positions, **keys)
    return row


def _gpt_oss(layers, experts):
    return _config(
        "gpt_oss", 201088, 2880, layers, 64, 2880, 131072, num_key_value_heads=8, head_dim=64, attention_bias=True,
        num_local_experts=experts, num_experts_per_tok=4, sliding_window=128, rope_theta=150000,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2), tie_word_embeddings=False,
        rope_scaling={
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
            "rope_type": "yarn", "truncate": False,
        },
    )


_llama, _mistral, _qwen2 = _of("llama"), _of("mistral", rope_theta=1e6), _of("qwen2", rope_theta=1e6)
_mixtral = _of("mixtral", rope_theta=1e6, num_local_experts=8, num_experts_per_tok=2)
_qwen3 = _of("qwen3", rope_theta=1000000, head_dim=128)
_qwen3_moe = _of("qwen3_moe", rope_theta=1e6, head_dim=128, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True)
_gemma, _gemma2 = _of("gemma", head_dim=256, hidden_act="gelu"), _of("gemma2", head_dim=256, sliding_window=4096)
_gemma3 = _of("gemma3_text", head_dim=256, sliding_window=512, rope_theta=1000000, sliding_window_pattern=6)
_cohere, _cohere2 = _of("cohere", logit_scale=0.0625), _of("cohere2", logit_scale=0.25, sliding_window=4096)
_deepseek2 = _of(
    "deepseek_v2", first_k_dense_replace=1, n_shared_experts=2, num_experts_per_tok=6, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, rope_theta=10000,
    rope_scaling={
        "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096, "type": "yarn",
    },
)
_deepseek3 = _of(
    "deepseek_v3", kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, norm_topk_prob=True,
    scoring_func="sigmoid", topk_method="noaux_tc",
)
_glm = _of("glm", head_dim=128, partial_rotary_factor=0.5, attention_bias=True)
_glm4 = _of("glm4", head_dim=128, partial_rotary_factor=0.5, attention_bias=True)
_granite = _of("granite", embedding_multiplier=12.0, residual_multiplier=0.22, tie_word_embeddings=True)
_stablelm = _of("stablelm", partial_rotary_factor=0.25)
_olmo, _olmo2 = _of("olmo", clip_qkv=None), _of("olmo2", rope_theta=500000)
_olmo3 = _of("olmo3", rope_theta=500000, sliding_window=4096)
_phi3 = _of("phi3", pad_token_id=0)
_LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
_LONG = {"long_factor": [4.0] * 48, "short_factor": [1.0] * 48, "type": "longrope"}

SIZES = {
    "distilbert/distilgpt2": (81_912_576, _gpt2(768, 6, 12)),
    "openai-community/gpt2": (124_439_808, _gpt2(768, 12, 12)),
    "openai-community/gpt2-medium": (354_823_168, _gpt2(1024, 24, 16)),
    "openai-community/gpt2-large": (774_030_080, _gpt2(1280, 36, 20)),
    "openai-community/gpt2-xl": (1_557_611_200, _gpt2(1600, 48, 25)),
    "bigcode/gpt_bigcode-santacoder": (1_124_886_528, PUBLISHED["santacoder"][0]),
    "bigcode/starcoder": (
        15_517_456_384,
        {**_gpt2(6144, 40, 48), "model_type": "gpt_bigcode", "vocab_size": 49152, "n_positions": 8192},
    ),
    "EleutherAI/gpt-neo-125m": (125_198_592, _gpt_neo(768, 12, 12)),
    "EleutherAI/gpt-neo-1.3B": (1_315_575_808, _gpt_neo(2048, 24, 16)),
    "EleutherAI/gpt-neo-2.7B": (2_651_307_520, _gpt_neo(2560, 32, 20)),
    "EleutherAI/pythia-70m": (70_426_624, _pythia(50304, 512, 6, 8)),
    "EleutherAI/pythia-160m": (162_322_944, _pythia(50304, 768, 12, 12)),
    "EleutherAI/pythia-410m": (405_334_016, _pythia(50304, 1024, 24, 16)),
    "EleutherAI/pythia-1b": (1_011_781_632, _pythia(50304, 2048, 16, 8)),
    "EleutherAI/pythia-1.4b": (1_414_647_808, _pythia(50304, 2048, 24, 16)),
    "EleutherAI/pythia-2.8b": (2_775_208_960, _pythia(50304, 2560, 32, 32)),
    "EleutherAI/pythia-6.9b": (6_857_302_016, _pythia(50432, 4096, 32, 32)),
    "EleutherAI/pythia-12b": (11_846_072_320, _pythia(50688, 5120, 36, 40)),
    "EleutherAI/gpt-neox-20b": (20_554_567_680, _pythia(50432, 6144, 44, 64)),
    "EleutherAI/gpt-j-6b": (6_050_882_784, {**_gpt2(4096, 28, 16), **_GPTJ}),
    "tiiuae/falcon-7b": (
        6_921_720_704,
        {
            "model_type": "falcon", "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32,
            "num_attention_heads": 71, "bias": False, "multi_query": True, "new_decoder_architecture": False,
            "parallel_attn": True,
        },
    ),
    "mosaicml/mpt-7b-instruct": (6_649_286_656, PUBLISHED["mpt-7b-instruct"][0]),
    "bigscience/bloom-560m": (559_214_592, PUBLISHED["bloom-560m"][0]),
    "bigscience/bloom-1b1": (1_065_314_304, {**_BLOOM, "n_embed": 1536}),
    "bigscience/bloom-1b7": (1_722_408_960, {**_BLOOM, "n_embed": 2048}),
    "bigscience/bloom-3b": (3_002_557_440, {**_BLOOM, "n_embed": 2560, "n_layer": 30, "num_attention_heads": 32}),
    "bigscience/bloom-7b1": (7_069_016_064, {**_BLOOM, "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32}),
    "bigscience/bloom": (176_247_271_424, {**_BLOOM, "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112}),
    "facebook/opt-125m": (125_239_296, _opt(768, 12, 12)),
    "facebook/opt-350m": (331_196_416, _opt(1024, 24, 16, do_layer_norm_before=False, word_embed_proj_dim=512)),
    "facebook/opt-1.3b": (1_315_758_080, _opt(2048, 24, 32)),
    "facebook/opt-2.7b": (2_651_596_800, _opt(2560, 32, 32)),
    "facebook/opt-6.7b": (6_658_473_984, _opt(4096, 32, 32)),
    "facebook/opt-13b": (12_853_473_280, _opt(5120, 40, 40)),
    "facebook/opt-30b": (29_974_540_288, _opt(7168, 48, 56)),
    "huggyllama/llama-7b": (6_738_415_616, _llama(32000, 4096, 32, 32, 32, 11008, 2048)),
    "huggyllama/llama-13b": (13_015_864_320, _llama(32000, 5120, 40, 40, 40, 13824, 2048)),
    "huggyllama/llama-30b": (32_528_943_616, _llama(32000, 6656, 60, 52, 52, 17920, 2048)),
    "huggyllama/llama-65b": (65_285_660_672, _llama(32000, 8192, 80, 64, 64, 22016, 2048)),
    "meta-llama/Llama-2-70b-hf": (68_976_648_192, _llama(32000, 8192, 80, 64, 8, 28672, 4096)),
    "meta-llama/Meta-Llama-3-8B": (8_030_261_248, _llama(128256, 4096, 32, 32, 8, 14336, 8192, rope_theta=500000.0)),
    "meta-llama/Llama-3.1-405B": (
        405_853_388_800,
        _llama(128256, 16384, 126, 128, 8, 53248, 131072, rope_theta=500000.0, rope_scaling=_LLAMA3),
    ),
    "meta-llama/Llama-3.2-1B": (
        1_235_814_400,
        _llama(
            128256, 2048, 16, 32, 8, 8192, 131072, rope_theta=500000.0, rope_scaling={**_LLAMA3, "factor": 32.0},
            head_dim=64, tie_word_embeddings=True,
        ),
    ),
    "meta-llama/Llama-3.2-3B": (
        3_212_749_824,
        _llama(
            128256, 3072, 28, 24, 8, 8192, 131072, rope_theta=500000.0, rope_scaling={**_LLAMA3, "factor": 32.0},
            head_dim=128, tie_word_embeddings=True,
        ),
    ),
    "codellama/CodeLlama-7b-hf": (6_738_546_688, _llama(32016, 4096, 32, 32, 32, 11008, 16384, rope_theta=1000000)),
    "codellama/CodeLlama-34b-hf": (33_743_970_304, _llama(32000, 8192, 48, 64, 8, 22016, 16384, rope_theta=1000000)),
    "TinyLlama/TinyLlama_v1.1": (1_100_048_384, _llama(32000, 2048, 22, 32, 4, 5632, 2048)),
    "openlm-research/open_llama_3b": (3_426_473_600, _llama(32000, 3200, 26, 32, 32, 8640, 2048)),
    "HuggingFaceTB/SmolLM2-135M": (
        134_515_008, _llama(49152, 576, 30, 9, 3, 1536, 8192, rope_theta=100000, tie_word_embeddings=True),
    ),
    "HuggingFaceTB/SmolLM2-360M": (
        361_821_120, _llama(49152, 960, 32, 15, 5, 2560, 8192, rope_theta=100000, tie_word_embeddings=True),
    ),
    "HuggingFaceTB/SmolLM2-1.7B": (
        1_711_376_384, _llama(49152, 2048, 24, 32, 32, 8192, 8192, rope_theta=130000, tie_word_embeddings=True),
    ),
    "01-ai/Yi-6B": (6_061_035_520, _llama(64000, 4096, 32, 32, 4, 11008, 4096, rope_theta=5000000.0)),
    "01-ai/Yi-34B": (34_388_917_248, _llama(64000, 7168, 60, 56, 8, 20480, 4096, rope_theta=5000000.0)),
    "deepseek-ai/deepseek-llm-7b-base": (6_910_365_696, _llama(102400, 4096, 30, 32, 32, 11008, 4096)),
    "deepseek-ai/deepseek-coder-1.3b-base": (
        1_346_471_936,
        _llama(
            32256, 2048, 24, 16, 16, 5504, 16384, rope_theta=100000, rope_scaling={"type": "linear", "factor": 4.0},
        ),
    ),
    "deepseek-ai/deepseek-coder-33b-base": (
        33_342_991_360,
        _llama(
            32256, 7168, 62, 56, 8, 19200, 16384, rope_theta=100000, rope_scaling={"type": "linear", "factor": 4.0},
        ),
    ),
    "tiiuae/Falcon3-7B-Base": (
        7_455_550_464, _llama(131072, 3072, 28, 12, 4, 23040, 32768, rope_theta=1000042, head_dim=256),
    ),
    "mistralai/Mistral-7B-v0.1": (
        7_241_732_096, _mistral(32000, 4096, 32, 32, 8, 14336, 32768, rope_theta=10000.0, sliding_window=4096),
    ),
    "mistralai/Mistral-7B-v0.3": (7_248_023_552, _mistral(32768, 4096, 32, 32, 8, 14336, 32768, sliding_window=None)),
    "mistralai/Mistral-Nemo-Base-2407": (
        12_247_782_400, _mistral(131072, 5120, 40, 32, 8, 14336, 128000, head_dim=128, sliding_window=None),
    ),
    "mistralai/Ministral-8B-Instruct-2410": (
        8_019_808_256,
        _mistral(131072, 4096, 36, 32, 8, 12288, 32768, head_dim=128, sliding_window=32768, rope_theta=1e8),
    ),
    "mistralai/Mistral-Small-24B-Base-2501": (
        23_572_403_200,
        _mistral(131072, 5120, 40, 32, 8, 32768, 32768, head_dim=128, sliding_window=None, rope_theta=1e8),
    ),
    "mistralai/Codestral-22B-v0.1": (
        22_247_282_688, _mistral(32768, 6144, 56, 48, 8, 16384, 32768, sliding_window=None),
    ),
    "mistralai/Mistral-Large-Instruct-2407": (
        122_610_069_504, _mistral(32768, 12288, 88, 96, 8, 28672, 131072, sliding_window=None),
    ),
    "mistralai/Mixtral-8x7B-v0.1": (46_702_792_704, _mixtral(32000, 4096, 32, 32, 8, 14336, 32768)),
    "mistralai/Mixtral-8x22B-v0.1": (140_620_634_112, _mixtral(32000, 6144, 56, 48, 8, 16384, 65536)),
    "Qwen/Qwen1.5-4B": (3_950_369_280, _qwen2(151936, 2560, 40, 20, 20, 6912, 32768, rope_theta=5000000.0)),
    "Qwen/Qwen1.5-7B": (7_721_324_544, _qwen2(151936, 4096, 32, 32, 32, 11008, 32768)),
    "Qwen/Qwen1.5-14B": (14_167_290_880, _qwen2(152064, 5120, 40, 40, 40, 13696, 32768)),
    "Qwen/Qwen1.5-32B": (32_512_218_112, _qwen2(152064, 5120, 64, 40, 8, 27392, 32768)),
    "Qwen/Qwen1.5-72B": (72_287_920_128, _qwen2(152064, 8192, 80, 64, 64, 24576, 32768)),
    "Qwen/Qwen2.5-0.5B": (494_032_768, _qwen2(151936, 896, 24, 14, 2, 4864, 32768, tie_word_embeddings=True)),
    "Qwen/Qwen2.5-1.5B": (1_543_714_304, _qwen2(151936, 1536, 28, 12, 2, 8960, 131072, tie_word_embeddings=True)),
    "Qwen/Qwen2.5-3B": (3_085_938_688, _qwen2(151936, 2048, 36, 16, 2, 11008, 32768, tie_word_embeddings=True)),
    "Qwen/Qwen2.5-7B": (7_615_616_512, _qwen2(152064, 3584, 28, 28, 4, 18944, 131072)),
    "Qwen/Qwen2.5-14B": (14_770_033_664, _qwen2(152064, 5120, 48, 40, 8, 13824, 131072)),
    "Qwen/Qwen2.5-32B": (32_763_876_352, _qwen2(152064, 5120, 64, 40, 8, 27648, 131072)),
    "Qwen/Qwen2.5-72B": (72_706_203_648, _qwen2(152064, 8192, 80, 64, 8, 29568, 131072)),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": (
        1_777_088_000, _qwen2(151936, 1536, 28, 12, 2, 8960, 131072, rope_theta=10000),
    ),
    "Qwen/Qwen3-0.6B": (596_049_920, _qwen3(151936, 1024, 28, 16, 8, 3072, 40960, tie_word_embeddings=True)),
    "Qwen/Qwen3-1.7B": (1_720_574_976, _qwen3(151936, 2048, 28, 16, 8, 6144, 40960, tie_word_embeddings=True)),
    "Qwen/Qwen3-4B": (4_022_468_096, _qwen3(151936, 2560, 36, 32, 8, 9728, 40960, tie_word_embeddings=True)),
    "Qwen/Qwen3-8B": (8_190_735_360, _qwen3(151936, 4096, 36, 32, 8, 12288, 40960)),
    "Qwen/Qwen3-14B": (14_768_307_200, _qwen3(151936, 5120, 40, 40, 8, 17408, 40960)),
    "Qwen/Qwen3-32B": (32_762_123_264, _qwen3(151936, 5120, 64, 64, 8, 25600, 40960)),
    "Qwen/Qwen3-30B-A3B": (
        30_532_122_624, _qwen3_moe(151936, 2048, 48, 32, 4, 6144, 40960, moe_intermediate_size=768),
    ),
    "Qwen/Qwen3-235B-A22B": (
        235_093_634_560, _qwen3_moe(151936, 4096, 94, 64, 4, 12288, 40960, moe_intermediate_size=1536),
    ),
    "google/gemma-2b": (2_506_172_416, _gemma(256000, 2048, 18, 8, 1, 16384, 8192)),
    "google/gemma-7b": (8_537_680_896, _gemma(256000, 3072, 28, 16, 16, 24576, 8192)),
    "google/gemma-2-2b": (2_614_341_888, _gemma2(256000, 2304, 26, 8, 4, 9216, 8192)),
    "google/gemma-2-9b": (9_241_705_984, _gemma2(256000, 3584, 42, 16, 8, 14336, 8192)),
    "google/gemma-2-27b": (
        27_227_128_320, _gemma2(256000, 4608, 46, 32, 16, 36864, 8192, head_dim=128, query_pre_attn_scalar=144),
    ),
    "google/gemma-3-270m": (268_098_176, _gemma3(262144, 640, 18, 4, 1, 2048, 32768)),
    "google/gemma-3-1b-pt": (999_885_952, _gemma3(262144, 1152, 26, 4, 1, 6912, 32768)),
    "CohereLabs/c4ai-command-r-v01": (
        34_980_831_232, _cohere(256000, 8192, 40, 64, 64, 22528, 131072, rope_theta=8000000.0),
    ),
    "CohereLabs/c4ai-command-r-plus": (
        103_810_674_688,
        _cohere(
            256000, 12288, 64, 96, 8, 33792, 131072, rope_theta=75000000.0, logit_scale=0.8333333333333334,
            use_qk_norm=True,
        ),
    ),
    "CohereLabs/c4ai-command-r-08-2024": (
        32_296_476_672, _cohere(256000, 8192, 40, 64, 8, 24576, 131072, rope_theta=4000000.0),
    ),
    "CohereLabs/aya-23-8B": (
        8_028_033_024, _cohere(256000, 4096, 32, 32, 8, 14336, 8192, rope_theta=10000.0),
    ),
    "CohereLabs/c4ai-command-r7b-12-2024": (
        8_028_033_024, _cohere2(256000, 4096, 32, 32, 8, 14336, 132096, rope_theta=50000.0),
    ),
    "CohereLabs/c4ai-command-a-03-2025": (
        111_057_580_032, _cohere2(256000, 12288, 64, 96, 8, 36864, 131072, rope_theta=50000.0),
    ),
    "deepseek-ai/DeepSeek-V2-Lite": (
        15_706_484_224,
        _deepseek2(
            102400, 2048, 27, 16, 16, 10944, 163840, moe_intermediate_size=1408, n_routed_experts=64,
            q_lora_rank=None, topk_method="greedy", n_group=1, topk_group=1,
        ),
    ),
    "deepseek-ai/DeepSeek-V2": (
        235_741_434_880,
        _deepseek2(
            102400, 5120, 60, 128, 128, 12288, 163840, moe_intermediate_size=1536, n_routed_experts=160,
            q_lora_rank=1536, topk_method="group_limited_greedy", n_group=8, topk_group=3, routed_scaling_factor=16.0,
        ),
    ),
    # in bfloat16, without the layer that predicts further tokens; its own files are float8, which is refused
    "deepseek-ai/DeepSeek-V3": (
        671_026_419_200,
        _deepseek3(
            129280, 7168, 61, 128, 128, 18432, 163840, moe_intermediate_size=2048, n_routed_experts=256,
            n_shared_experts=1, num_experts_per_tok=8, q_lora_rank=1536, routed_scaling_factor=2.5, rope_theta=10000,
            n_group=8, topk_group=4, num_nextn_predict_layers=1, first_k_dense_replace=3,
            rope_scaling={
                "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 4096, "type": "yarn",
            },
        ),
    ),
    "zai-org/glm-4-9b-hf": (9_399_951_360, _glm(151552, 4096, 40, 32, 2, 13696, 8192)),
    "zai-org/GLM-4-9B-0414": (9_400_279_040, _glm4(151552, 4096, 40, 32, 2, 13696, 32768)),
    "ibm-granite/granite-3.1-2b-base": (
        2_533_531_648,
        _granite(
            49155, 2048, 40, 32, 8, 8192, 131072, attention_multiplier=0.015625, logits_scaling=8.0, rope_theta=5e6,
        ),
    ),
    "ibm-granite/granite-3.1-8b-base": (
        8_170_848_256,
        _granite(
            49155, 4096, 40, 32, 8, 12800, 131072, attention_multiplier=0.0078125, logits_scaling=16.0, rope_theta=1e7,
        ),
    ),
    "stabilityai/stablelm-3b-4e1t": (2_795_443_200, _stablelm(50304, 2560, 32, 32, 32, 6912, 4096)),
    "stabilityai/stablelm-2-1_6b": (
        1_644_515_328, _stablelm(100352, 2048, 24, 32, 32, 5632, 4096, use_qkv_bias=True),
    ),
    "stabilityai/stablelm-2-12b": (
        12_143_185_920,
        _stablelm(100352, 5120, 40, 32, 8, 13824, 4096, qk_layernorm=True, use_parallel_residual=True),
    ),
    "microsoft/phi-1_5": (1_418_270_720, _phi(2048, 24, 32)),
    "microsoft/phi-2": (2_779_683_840, PUBLISHED["phi-2"][0]),
    "allenai/OLMo-1B-hf": (1_176_764_416, _olmo(50304, 2048, 16, 16, 16, 8192, 2048, tie_word_embeddings=True)),
    "allenai/OLMo-7B-hf": (6_888_095_744, _olmo(50304, 4096, 32, 32, 32, 11008, 2048)),
    "allenai/OLMo-2-0425-1B": (1_484_916_736, _olmo2(100352, 2048, 16, 16, 16, 8192, 4096)),
    "allenai/OLMo-2-1124-7B": (7_298_617_344, _olmo2(100352, 4096, 32, 32, 32, 11008, 4096)),
    "allenai/OLMo-2-1124-13B": (13_716_198_400, _olmo2(100352, 5120, 40, 40, 40, 13824, 4096)),
    "allenai/OLMo-2-0325-32B": (32_234_279_936, _olmo2(100352, 5120, 64, 40, 8, 27648, 4096)),
    "allenai/Olmo-3-1025-7B": (7_298_011_136, _olmo3(100278, 4096, 32, 32, 32, 11008, 65536)),
    "allenai/Olmo-3-1125-32B": (32_233_522_176, _olmo3(100278, 5120, 64, 40, 8, 27648, 65536)),
    "allenai/OLMoE-1B-7B-0924": (
        6_919_161_856,
        _of("olmoe")(50304, 2048, 16, 16, 16, 1024, 4096, num_experts=64, num_experts_per_tok=8, norm_topk_prob=False),
    ),
    "microsoft/Phi-3-mini-4k-instruct": (
        3_821_079_552, _phi3(32064, 3072, 32, 32, 32, 8192, 4096, sliding_window=2047),
    ),
    "microsoft/Phi-3.5-mini-instruct": (
        3_821_079_552,
        _phi3(
            32064, 3072, 32, 32, 32, 8192, 131072, sliding_window=262144, original_max_position_embeddings=4096,
            rope_scaling=_LONG,
        ),
    ),
    "microsoft/Phi-3-medium-4k-instruct": (
        13_960_238_080, _phi3(32064, 5120, 40, 40, 10, 17920, 4096, sliding_window=2047),
    ),
    "microsoft/phi-4": (14_659_507_200, _phi3(100352, 5120, 40, 40, 10, 17920, 16384, rope_theta=250000)),
    "microsoft/Phi-4-mini-instruct": (
        3_836_021_760,
        _phi3(
            200064, 3072, 32, 24, 8, 8192, 131072, original_max_position_embeddings=4096, rope_scaling=_LONG,
            partial_rotary_factor=0.75, tie_word_embeddings=True,
        ),
    ),
    "openai/gpt-oss-20b": (20_914_757_184, _gpt_oss(24, 32)),
    "openai/gpt-oss-120b": (116_829_156_672, _gpt_oss(36, 128)),
    "HuggingFaceTB/SmolLM3-3B": (
        3_075_098_624,
        _of("smollm3")(
            128256, 2048, 36, 16, 4, 11008, 65536, rope_theta=5000000.0, no_rope_layers=[1, 1, 1, 0] * 9,
            tie_word_embeddings=True,
        ),
    ),
    "deepcogito/cogito-v1-preview-qwen-14B": (14_765_947_904, PUBLISHED["cogito-v1-preview-qwen-14b"][0]),
    "microsoft/WizardLM-2-8x22B": (140_620_634_112, PUBLISHED["wizardlm-2-8x22b"][0]),
}
# fmt: on
