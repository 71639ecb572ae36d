"""`tdd info` and completions for shells."""

import json
import os
import subprocess

import gguf_files
import gpt2_files
import jax
import pytest
from safetensors.numpy import load_file, save_file

import tdd
from tdd.cli import main
from tdd.demo.data import demo_files


def test_info_names_versions_devices_and_caches(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TDD_CACHE_DIR", str(tmp_path))
    (tmp_path / "xla").mkdir()
    (tmp_path / "xla" / "program").write_bytes(b"x" * 2**20)
    assert main(["info", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["versions"]["jax"] == jax.__version__
    assert len(shown["devices"]) == jax.device_count()
    assert shown["compilation_cache"] == {"folder": str(tmp_path / "xla"), "programs": 1, "bytes": 2**20}
    assert main(["info"]) == 0
    assert "1.0 MiB in 1 files" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_models_of_the_hub_cache_are_listed(capsys, tmp_path, monkeypatch):
    from huggingface_hub import constants

    folder = tmp_path / "models--some--model"
    (folder / "blobs").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "blobs" / "abc").write_bytes(b"x" * 100)
    snapshot = folder / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == [
        {"name": "some/model", "bytes": 100, "revisions": ["0" * 40]}
    ]


@pytest.fixture
def model_folder(tmp_path):
    """A LLaMA of 7 billion parameters: its configuration alone."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def test_what_a_model_needs_of_a_device(capsys, model_folder):
    assert main(["info", "--model", model_folder, "--device", "h200", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["num_params"], found["dtype"], found["fits"]) == (6_738_415_616, "bfloat16", True)
    assert (found["batch"], found["length"]) == (8, 2048)
    assert main(["info", "--model", model_folder, "--device", "v5e", "--dtype", "float32", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["fits"]
    assert main(["info", "--model", model_folder, "--device", "v5e"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "6,738,415,616 in bfloat16, 12.6 GiB" in shown
    assert "Estimate, not a measurement" in shown


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--device", "h300"], "--device 'h300' is neither one of"),
        (["--device", "v5e", "--length", "5000"], "--length 5000 must be at least 1 and at most the model's 4096"),
    ],
)
def test_a_budget_that_cannot_be_made_is_one_line(options, complaint, capsys, model_folder):
    assert main(["info", "--model", model_folder, *options]) == 2
    assert complaint in capsys.readouterr().err


def test_what_a_checkpoint_lacks(capsys, model_folder, tmp_path):
    """On this machine, whose memory a CPU shares: what is read is said, and what is not there."""
    assert main(["info", "--model", model_folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["family"], found["files"], found["device"]) == ("llama", 0, "this machine's processors")
    assert 2**28 < found["available"] <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    weights, tokenizer = found["missing"]
    assert weights.startswith(f"no weights in {model_folder}: need model.safetensors")
    assert tokenizer.startswith(f"no tokenizer in {model_folder}: need tokenizer.json")
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert main(["info", "--model", model_folder]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "names the shard 'model-00001-of-00001.safetensors', which is missing" in shown
    assert main(["info", "--model", str(demo_files().checkpoint)]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "safetensors, 1 file" in shown
    assert "missing nothing" in shown


@pytest.mark.parametrize("change", ["name", "shape"])
def test_tensors_of_another_model_are_missing(tmp_path, capsys, change):
    """A folder that cannot be loaded has something missing, though every file of it can be opened."""
    folder = gpt2_files.write(tmp_path / "model")[0]
    held = load_file(folder / "model.safetensors")
    name = next(name for name in held if name.endswith("wpe.weight"))
    value = held.pop(name)
    held["x" if change == "name" else name] = value[:-1]
    save_file(held, folder / "model.safetensors")
    assert main(["info", "--model", str(folder), "--json"]) == 0
    (fault,) = json.loads(capsys.readouterr().out)["missing"]
    with pytest.raises(tdd.InputError) as refused:
        tdd.load(folder)
    assert fault == str(refused.value)
    assert "wpe.weight" in fault


def test_options_of_a_budget_need_a_model(capsys):
    assert main(["info", "--device", "h200"]) == 2
    assert "add --model PATH" in capsys.readouterr().err


def test_completions_know_commands_and_options(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", "bash"])
    assert end.value.code == 0
    script = capsys.readouterr().out
    assert "--alpha" in script
    assert "exchange" in script
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_help_shows_the_usual_options_and_help_all_every_option(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    usual = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["audit", "--help-all"])
    whole = capsys.readouterr().out
    assert "--candidates" in usual
    assert "--token-budget" not in usual
    assert "jax.distributed" not in usual
    assert "tdd audit --help-all" in usual
    assert "--candidates" in whole
    assert "--token-budget" in whole
    assert "--coordinator" in whole


def test_what_a_gguf_file_is_and_needs(capsys, tmp_path):
    file = gguf_files.write_family(tmp_path / "model.gguf", "llama", kind="F16")
    arguments = ["info", "--model", str(file), "--device", "16GB"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["family"], found["dtype"], found["fits"]) == ("llama", "float16", True)
    assert found["gguf_types"] == {"F16": 16, "F32": 5}
    assert found["missing"] == []
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "GGUF, tensors stored as 16 F16, 5 F32" in shown


def test_a_checkpoint_with_tokens_without_a_row_lacks_nothing(capsys, caplog, tmp_path):
    """As Llama 2's padding token, which `tdd.score` takes too."""
    folder, *_ = gpt2_files.write(tmp_path / "model", tokenizer_size=50)
    assert main(["info", "--model", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["missing"] == []
    assert "2 tokens have no row" in caplog.text
