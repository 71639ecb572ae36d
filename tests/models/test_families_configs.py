"""What a configuration says: every key of the real classes and of published files is read, refused or harmless."""

import contextlib
import functools
import json
import operator

import numpy as np
import pytest
from family_configs import ALL, CONFIGURATIONS, LENGTH, VOCABULARY
from published_configs import PUBLISHED

from tdd.models.configuration import read_spec
from tdd.models.families import FAMILIES, family_of_spec, unread_keys
from tdd.models.rotary import RotaryPositions
from tdd.models.spec import Attention, DecoderSpec, Experts, LayerNorm, Mlp
from tdd.validate import InputError

OF_FAMILY = {config["model_type"]: config for config in reversed(CONFIGURATIONS.values())}


def spec_of(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    return read_spec(folder)[1]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(tmp_path, name):
    config, expected = PUBLISHED[name]
    spec = spec_of(tmp_path, config)
    for path, value in expected.items():
        assert operator.attrgetter(path)(spec) == value, path
    assert spec.num_layers == config.get("num_hidden_layers", spec.num_layers)
    family, written = family_of_spec(spec)
    assert family.to_spec(written) == spec


STORED_AS = {  # nothing tells the two apart
    "gpt_bigcode, all heads of keys, inner width": "gpt2",
    "phi3, all turns": "llama",
    "qwen3_moe, no experts": "qwen3",
    "falcon, sequential, biases, all heads of keys": "gpt_neox",
}


@pytest.mark.parametrize("name", ALL)
def test_written_configurations_lead_back(tmp_path, name):
    """Through the family's own keys and through transformers' reading of them."""
    spec = spec_of(tmp_path, ALL[name])
    family, written = family_of_spec(spec)
    assert family.names == FAMILIES[STORED_AS.get(name, ALL[name]["model_type"])].names
    assert spec_of(tmp_path, written) == spec


@pytest.mark.parametrize("name", ALL)
def test_every_key_that_transformers_writes(tmp_path, name):
    from transformers import AutoConfig

    spec = spec_of(tmp_path, ALL[name])
    AutoConfig.from_pretrained(tmp_path).to_json_file(tmp_path / "config.json", use_diff=False)
    assert read_spec(tmp_path)[1] == spec


def test_each_key_in_one_list():
    from tdd.models.families import IGNORED, REQUIRED

    assert not IGNORED & REQUIRED.keys()
    for family in FAMILIES.values():
        assert not family.used & (family.ignored | IGNORED | REQUIRED.keys() | family.required.keys())
        assert not family.ignored & (IGNORED | REQUIRED.keys() | family.required.keys())


@functools.cache
def _defaults(model_type):
    from transformers import AutoConfig

    return AutoConfig.for_model(model_type).to_dict()


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_key_that_decides_is_used(model_type):
    """No key of the class that its modelling code reads hides among those that are ignored."""
    harmless = {"dropout", "layerdrop", "pdrop", "range", "std", "cache", "id", "tp", "summary", "classes", "label"}
    harmless |= {"reorder", "output", "dtype", "architectures", "type", "path", "decoder", "dict", "version", "chunk"}
    harmless |= {"router_aux_loss", "router_jitter", "output_router", "device"}
    for key in _defaults(model_type).keys() - FAMILIES[model_type].used - FAMILIES[model_type].required.keys():
        assert any(word in key for word in (*harmless, "add_cross_attention")), key


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_chunk_size": 4}, "unknown keys attention_chunk_size: whether they change the computation cannot"),
        ({"alibi_slopes": True, "transformers_version": "999.1.0"}, "unknown keys alibi_slopes"),
        ({"quantization_config": {"bits": 4}}, "quantization_config of quant_method None, which is not dequantised"),
        ({"add_cross_attention": True}, "add_cross_attention=True, which changes"),
    ],
)
def test_unknown_keys(tmp_path, model_type, changes, message):
    with pytest.raises(InputError, match=message):
        spec_of(tmp_path, {**OF_FAMILY[model_type], **changes})


@pytest.mark.parametrize("model_type", FAMILIES)
def test_keys_that_nothing_reads(tmp_path, model_type, caplog):
    """They cannot change the computation: the spec is the same, and they are named once."""
    config = OF_FAMILY[model_type]
    more = {"_model_name_or_path": "x", "unk_token_id": 0, "neftune_noise_alpha": 5.0, "alibi_slopes": True}
    assert spec_of(tmp_path, {**config, **more}) == spec_of(tmp_path, config)
    assert unread_keys({**config, **more}) == sorted(more)
    spec_of(tmp_path, {**config, **more})
    assert caplog.text.count("has keys that neither transformers nor tdd reads: _model_name_or_path, alibi") == 1


def test_the_class_that_was_saved_has_a_head_for_tokens(tmp_path, caplog):
    config = OF_FAMILY["llama"]
    assert spec_of(tmp_path, {**config, "architectures": ["LlamaForCausalLM"]}) == spec_of(tmp_path, config)
    spec_of(tmp_path, {**OF_FAMILY["gpt2"], "architectures": ["GPT2LMHeadModel"]})
    assert "without a head" not in caplog.text
    for _ in range(2):
        assert spec_of(tmp_path, {**config, "architectures": ["LlamaModel"]}) == spec_of(tmp_path, config)
    assert caplog.text.count("names LlamaModel, a class without a head: scores are meaningful only if") == 1
    for name in ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "RewardModel"):
        with pytest.raises(InputError, match=f"names Llama{name}, which gives no token probabilities; if the"):
            spec_of(tmp_path, {**config, "architectures": [f"Llama{name}"]})


REFUSED = {
    "activation": ("llama", {"hidden_act": "mish"}, "hidden_act='mish' is not supported; supported: gelu_new"),
    "gemma second activation": ("gemma", {"hidden_activation": "relu"}, "hidden_activation='relu', which changes"),
    "gemma2 activation": ("gemma2", {"hidden_act": "gelu"}, "hidden_act='gelu', which changes the computation"),
    "gemma2 both ways": ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True, which"),
    "gemma2 windows": ("gemma2", {"sliding_window_size": 7}, "sliding_window_size=7, but sliding_window=5"),
    "gemma2 no window": ("gemma2", {"sliding_window": None}, "layers of type sliding_attention, but no window"),
    "gemma2 scalar": ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be a positive number, got 0"),
    "gemma3 attention cap": ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0, which"),
    "gemma3 local base": (
        "gemma3_text",
        {
            "rope_parameters": {
                "sliding_attention": {"rope_theta": 7.0, "rope_type": "default"},
                "full_attention": {"rope_theta": 1000.0, "rope_type": "default"},
            },
            "rope_scaling": None,
        },
        "rope_local_base_freq=50.0, but rope_parameters.sliding_attention=7.0",
    ),
    "cohere scale": ("cohere", {"logit_scale": 0.0}, "logit_scale must be a positive number, got 0.0"),
    "cohere2 blocks": ("cohere2", {"use_parallel_block": False}, "use_parallel_block=False, which changes"),
    "deepseek_v2 choice": ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method='noaux_tc' is not supported"),
    "deepseek_v2 scores": ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func='sigmoid', which changes"),
    "deepseek_v2 sums": ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob=True, which changes"),
    "deepseek_v2 experts": ("deepseek_v2", {"first_k_dense_replace": 3}, "leaves none of 3 layers with experts"),
    "deepseek_v2 keys": ("deepseek_v2", {"num_key_value_heads": 2}, "latent needs num_kv_heads equal to num_heads"),
    "deepseek_v3 scores": ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func='softmax', which changes"),
    "deepseek_v3 rotary width": ("deepseek_v3", {"head_dim": 8}, "head_dim=8, but qk_rope_head_dim=4"),
    "granite scaling": ("granite", {"logits_scaling": 0}, "logits_scaling must be a positive number, got 0"),
    "olmo clip": ("olmo", {"clip_qkv": -1.0}, "qkv_clip must be a positive number, got -1.0"),
    "phi3 factors": (
        "phi3",
        {
            "rope_scaling": {**CONFIGURATIONS["phi3, longrope"]["rope_scaling"], "short_factor": [1.0]},
            "partial_rotary_factor": 1.0,
        },
        "short_factor|short must hold 2 factors",
    ),
    "smollm3 layers": ("smollm3", {"no_rope_layers": [1, 0, 2]}, "no_rope_layers must hold a 1 or a 0"),
    "smollm3 window without use": (
        "smollm3",
        {"layer_types": ["sliding_attention"] * 3, "sliding_window": 5},
        "layers of type sliding_attention, but no window for them",
    ),
    "olmo3 rotary of one type": (
        "olmo3",
        {"rope_parameters": {"rope_theta": 5.0, "rope_type": "default"}},
        "rope_parameters must have an entry for each|transformers accepts",
    ),
    "layer types": ("qwen2", {"layer_types": ["chunked_attention"] * 3}, r"chunked_attention.* not supported"),
    "too few layer types": ("qwen3", {"layer_types": ["full_attention"]}, "`layer_types` .1.|one type of attention"),
    "window without use": (
        "qwen2",
        {"layer_types": ["sliding_attention"] * 3, "use_sliding_window": False},
        "layers of type sliding_attention, but no window for them; set sliding_window",
    ),
    "mrope": ("qwen2", {"use_mrope": True}, "use_mrope=True, which changes the computation"),
    "mistral layer types": ("mistral", {"layer_types": ["full_attention"] * 2}, "unknown keys layer_types"),
    "experts in no layer": ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step must be a positive number"),
    "clip of olmoe": ("olmoe", {"clip_qkv": 0.0}, "qkv_clip must be a positive number, got 0.0"),
    "heads of olmoe": ("olmoe", {"head_dim": 8}, "unknown keys head_dim"),
    "gpt_oss activation": ("gpt_oss", {"hidden_act": "gelu"}, "hidden_act='gelu' is not supported; supported: silu"),
    "gpt_oss gate": ("gpt_oss", {"swiglu_limit": 0.0}, "limit must be a positive number, got 0.0"),
    "gpt_oss experts of a token": (
        "gpt_oss",
        {"experts_per_token": 4},
        "experts_per_token=4, but num_experts_per_tok=2",
    ),
    "gpt_oss window": ("gpt_oss", {"sliding_window": None}, "layers of type sliding_attention, but no window for them"),
    "more experts a token than there are": ("mixtral", {"num_experts_per_tok": 4}, "top_k=4 exceeds num_experts=3"),
    "no experts": ("qwen3_moe", {"num_experts": 0}, "num_experts must be a positive number, got 0"),
    "heads": ("llama", {"num_key_value_heads": 3}, "num_heads=4 must be a multiple of num_kv_heads=3"),
    "heads of neox": ("gpt_neox", {"num_attention_heads": 5}, "transformers accepts|multiple of num_attention_heads=5"),
    "attention types": ("gpt_neo", {"attention_types": [[["global"], 2]]}, "transformers accepts|one type"),
    "attention type": ("gpt_neo", {"attention_types": [[["global", "far", "local"], 1]]}, "type far is not supported"),
    "gptj tied": ("gptj", {"tie_word_embeddings": True}, "head_bias=True needs tied_head=False"),
    "gptj without rotation": ("gptj", {"rotary": False}, "rotary=False, which changes the computation"),
    "gptj none turns": ("gptj", {"rotary_dim": 0}, "rotary_dim must be a positive number, got 0"),
    "gptj more turn than there are": (
        "gptj",
        {"rotary_dim": 10},
        "dim=10 coordinates cannot turn in a head of width 8",
    ),
    "falcon alibi": ("falcon", {"alibi": True}, "alibi=True, which changes the computation and is not supported"),
    "falcon residual": (
        "falcon",
        {"apply_residual_connection_post_layernorm": True},
        "apply_residual_connection_post_layernorm=True, which changes",
    ),
    "falcon norms": ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn=2 needs new_decoder"),
    "falcon number of norms": (
        "falcon",
        {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 3},
        "num_ln_in_parallel_attn must be 1 or 2, got 3",
    ),
    "falcon sequential": (
        "falcon",
        {"new_decoder_architecture": True, "parallel_attn": False},
        "parallel_attn=False needs new_decoder_architecture=False",
    ),
    "gpt_bigcode across": ("gpt_bigcode", {"add_cross_attention": True}, "add_cross_attention=True, which changes"),
    "mpt positions": ("mpt", {"attn_config": {"alibi": False}}, "attn_config has alibi=False, which changes"),
    "mpt slopes": ("mpt", {"attn_config": {"alibi_bias_max": 16}}, "attn_config has alibi_bias_max=16, which changes"),
    "mpt norms": ("mpt", {"attn_config": {"qk_ln": True}}, "attn_config has qk_ln=True, which changes"),
    "mpt prefix": ("mpt", {"attn_config": {"prefix_lm": True}}, "attn_config has prefix_lm=True, which changes"),
    "mpt attention key": (
        "mpt",
        {"attn_config": {"attention_chunk_size": 4}},
        "attn_config has unknown keys attention_chunk_size",
    ),
    "mpt biases": ("mpt", {"no_bias": False}, "no_bias=False, which changes"),
    "mpt perceptron": ("mpt", {"expansion_ratio": 2}, "expansion_ratio=2, which changes"),
    "bloom residual": (
        "bloom",
        {"apply_residual_connection_post_layernorm": True},
        "apply_residual_connection_post_layernorm=True, which changes",
    ),
    "bloom sums": ("bloom", {"slow_but_exact": True}, "slow_but_exact=True, which changes"),
    "phi tied": ("phi", {"tie_word_embeddings": True}, "head_bias=True needs tied_head=False"),
    "opt scale": ("opt", {"scale_embeddings": True}, "scale_embeddings=True, which changes"),
    "rope type": ("llama", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
    "mrope section": (
        "qwen2",
        {"rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
        "rope_parameters have unknown keys mrope_section for rope_type='default'",
    ),
    "rope key": (
        "llama",
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 3}},
        "unknown keys beta_fast for rope_type='linear'",
    ),
    "rope type missing key": ("llama", {"rope_scaling": {"rope_type": "linear"}}, "factor"),
    "rope types disagree": (
        "llama",
        {"rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 2.0}},
        "type='dynamic', but rope_type='linear'",
    ),
    "rope theta twice": (
        "llama",
        {"rope_theta": 5.0, "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}},
        r"rope_theta=5.0, but rope_parameters.rope_theta=7.0; remove the wrong one",
    ),
    "rotary share twice": ("gpt_neox", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5, but .*0.25"),
    "partial rotary": ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported in this"),
    "odd rotary": ("gpt_neox", {"rotary_pct": 0.2}, "dim must be even, got 3"),
    "rotary by layer type": (
        "qwen3",
        {"rope_parameters": {"full_attention": {"rope_theta": 5.0, "rope_type": "default"}}},
        "rope_parameters must be an object with rope_theta",
    ),
    "llama3 factors": (
        "llama",
        {
            "rope_scaling": {
                **CONFIGURATIONS["llama, llama3 rotary"]["rope_scaling"],
                "high_freq_factor": 1.0,
            }
        },
        "high_freq_factor=1.0 must exceed low_freq_factor=1.0",
    ),
}


def test_longrope_is_read_within_the_original_context(tmp_path):
    """Longer texts would turn all texts of their batch by other factors in transformers."""
    spec = spec_of(tmp_path, CONFIGURATIONS["phi3, longrope"])
    assert spec.max_length == 32
    np.testing.assert_allclose(spec.positions.frequencies(), [1.0, 0.1 / 1.3], rtol=1e-12)
    assert spec.positions.scaling.amplitude == pytest.approx((1 + np.log(3) / np.log(32)) ** 0.5)
    written = family_of_spec(spec)[1]
    assert (written["max_position_embeddings"], written["original_max_position_embeddings"]) == (96, 32)


@pytest.mark.parametrize(
    ("name", "maker"), [("deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite"), ("mpt-7b-instruct", "mosaicml/mpt-7b")]
)
def test_code_of_the_maker_by_its_repository(tmp_path, name, maker):
    """As transformers writes it for a model of the hub that is saved again; another repository's code is refused."""
    config = PUBLISHED[name][0]
    for owner, words in ((maker, None), ("someone/else", "has auto_map=")):
        code = {key: f"{owner}--{name}" for key, name in config["auto_map"].items()}
        with pytest.raises(InputError, match=words) if words else contextlib.nullcontext():
            assert spec_of(tmp_path, {**config, "auto_map": code}) == spec_of(tmp_path, config)


def test_layers_without_experts(tmp_path):
    """Experts in every second layer, counted from 1, but for those that are named, counted from 0."""
    spec = spec_of(tmp_path, ALL["qwen3_moe, experts in one layer"])
    experts, wide = Experts(4, 2, 20, "silu"), Mlp(40, "silu", gated=True, bias=False)
    assert (spec.mlp, spec.layer_mlps) == (experts, (wide, wide, wide, experts))
    family, written = family_of_spec(spec)
    assert family.model_type == "qwen3_moe"
    assert (written["mlp_only_layers"], written["intermediate_size"]) == ([0, 1, 2], 40)
    assert not spec_of(tmp_path, ALL["qwen3_moe, plain probabilities"]).mlp.renormalised
    without = spec_of(tmp_path, ALL["qwen3_moe, no experts"])
    assert (without.mlp, without.layer_mlps, family_of_spec(without)[0].model_type) == (wide, (), "qwen3")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    model_type, changes, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        spec_of(tmp_path, {**OF_FAMILY[model_type], **changes})


def test_dynamic_rotary_is_plain_within_the_context(tmp_path):
    """And the context is the limit of what the model accepts, so it never becomes anything else."""
    plain = {key: value for key, value in ALL["llama, dynamic rotary"].items() if key != "rope_scaling"}
    spec = spec_of(tmp_path, ALL["llama, dynamic rotary"])
    assert spec == spec_of(tmp_path, plain)
    assert spec.max_length == plain["max_position_embeddings"]


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].get("rope_scaling")])
def test_stretched_positions_differ_within_the_test_length(tmp_path, name):
    if name == "llama, dynamic rotary":
        return
    positions = spec_of(tmp_path, ALL[name]).positions
    plain = RotaryPositions(positions.max_length, positions.dim, positions.theta)
    assert np.abs((positions.frequencies() - plain.frequencies()) * LENGTH).max() > 0.1


@pytest.mark.parametrize(("head_dim", "turned"), [(44, 30), (90, 52), (64, 16)])
def test_the_share_that_turns_survives_rounding(head_dim, turned):
    """30/44 * 44 is a hair below 30 in float64, of which int() would make 29."""
    spec = DecoderSpec(
        vocab_size=VOCABULARY,
        width=2 * head_dim,
        num_layers=1,
        norm=LayerNorm(),
        positions=RotaryPositions(32, turned),
        attention=Attention(2, head_dim, (head_dim**-0.5,)),
        mlp=Mlp(40, "gelu"),
        tied_head=False,
        layout="parallel",
    )
    family, config = family_of_spec(spec)
    assert family.model_type == "gpt_neox"
    assert int(head_dim * config["rope_parameters"]["partial_rotary_factor"]) == turned
