"""`tdd.run_exchange` against log-probabilities by hand, its resumption, its decisions, its errors."""

import contextlib
import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scored_models import VOCABULARY, random_texts, scored_model

import tdd
from tdd.exchange import run as run_module
from tdd.exchange.data import Shards, load_examples
from tdd.exchange.passes import SequentialTest, as_double, context_windows
from tdd.exchange.run import _select, run_exchange
from tdd.procedures.exchangeability import TESTS, exchangeability
from tdd.records import LanguageModel
from tdd.scoring import sums
from tdd.scoring.devices import find_devices
from tdd.scoring.inputs import Model
from tdd.scoring.store import ScoreStore
from tdd.scoring.store.namespace import Namespace
from tdd.validate import InputError

TEXTS = random_texts(60, 1, 3, 9)
OPTIONS = {"num_shards": 5, "num_shuffles": 4, "separator": " ", "progress": False, "token_budget": 512}


@pytest.fixture(scope="module")
def model():
    return scored_model(0, positions=128)


@pytest.fixture(scope="module")
def plain(model):
    return run_exchange(model, TEXTS, **OPTIONS)


@functools.partial(jax.jit, static_argnums=0)
def logits_of(lm, params, tokens):
    return lm.logits(params, tokens)


def by_hand(model, order_text, *, room=None, bos=()):
    """Sum of log p over every token but the first, in float64, window by window."""
    lm, params, tokenizer = model
    ids = np.array(tokenizer([order_text], add_special_tokens=False)["input_ids"][0])
    total = 0.0
    for window in context_windows(len(ids), room, None, first=0 if bos else 1):
        tokens = np.concatenate([np.array(bos, int), ids[window.start : window.stop]])
        padded = np.pad(tokens, (0, 128 - len(tokens)))[None]
        table = np.asarray(jax.nn.log_softmax(logits_of(lm, params, padded)[0]), np.float64)
        places = np.arange(window.first_target - window.start, window.stop - window.start) + len(bos)
        total += table[places - 1, tokens[places]].sum()
    return total


def check(exchange, model, **options):
    shards = Shards.cut(load_examples(TEXTS), num_shards=5, suffix=1.0, seed=0)
    canonical, shuffled = exchange.log_probs["data 1"]
    for shard in (0, 4):
        for number in range(3):
            found = canonical[shard] if number == 0 else shuffled[shard, number - 1]
            assert found == pytest.approx(by_hand(model, shards.text(shard, number, " "), **options), rel=2e-6)


def test_log_probabilities(plain, model):
    check(plain, model)


@pytest.mark.slow("long")
def test_long_shards_go_through_in_windows(model):
    found = run_exchange(model, TEXTS, **OPTIONS, max_length=32)
    check(found, model, room=32)
    assert found.run["data"][0]["max_windows"] > 1


@pytest.mark.slow("long")
def test_beginning_of_sequence_token_in_every_window():
    with_bos = scored_model(0, positions=128, bos=True)
    check(run_exchange(with_bos, TEXTS, **OPTIONS, max_length=32), with_bos, room=31, bos=(VOCABULARY - 1,))
    without = run_exchange(with_bos, TEXTS, **OPTIONS, bos="never")
    assert without.log_probs["data 1"][0][0] != pytest.approx(
        run_exchange(with_bos, TEXTS, **OPTIONS).log_probs["data 1"][0][0], rel=1e-4
    )


def test_the_tests_are_those_of_the_log_probabilities(plain):
    (one,) = plain.run["data"]
    canonical, shuffled = plain.log_probs["data 1"]
    key = jax.random.fold_in(jax.random.key(0), 0)
    for name in TESTS:
        wanted = exchangeability(canonical, shuffled, test=name, key=key)
        assert np.float32(one["tests"][name]["p_value"]) == wanted.p_value
    assert one["p_value"] == one["adjusted"] == one["tests"]["combined"]["p_value"] == plain.p_values["data 1"]
    assert one["rejected"] == (one["p_value"] <= 0.05)
    assert one["calls"]["asked"] == 25 >= one["calls"]["sequences"]


def test_a_p_value_that_equals_its_level_rejects():
    assert as_double(np.float32(1) / np.float32(20)) == 0.05
    assert as_double(np.float64(0.1) + 0.2) == 0.1 + 0.2
    assert as_double(jnp.float32(1e-30)) == 1e-30
    assert np.isnan(as_double(jnp.float32(jnp.nan)))


def test_data_sets_in_doubt_do_not_raise_the_level_of_the_others():
    """With the four that are sorted, .03 would pass; among the four others it does not."""

    def finding(p_value, is_sorted):
        return {"p_value": p_value, "control": None, "structure": {"sorted": is_sorted, "p_value": 1.0}}

    findings = [finding(1e-4, "by text")] * 4 + [finding(p, None) for p in (0.03, 0.5, 0.9, math.nan)]
    findings = [dict(one) for one in findings]
    selection = _select(findings, 0.05)
    assert selection["num_rejected"] == 0
    assert [one["rejected"] for one in findings] == [False] * 8
    assert np.isnan([one["adjusted"] for one in findings]).tolist() == [True] * 4 + [False] * 3 + [True]
    assert findings[4]["adjusted"] == pytest.approx(0.09)


def test_a_table_row_for_every_shard(plain):
    canonical, shuffled = plain.log_probs["data 1"]
    assert plain.shards["num_examples"].tolist() == [12] * 5
    assert plain.shards["first_example"].tolist() == [0, 12, 24, 36, 48]
    np.testing.assert_allclose(plain.shards["statistic"], canonical - shuffled.mean(1))
    np.testing.assert_array_equal(plain.shards["rank"], (canonical[:, None] > shuffled).sum(1))


@pytest.mark.slow("long")
def test_shared_beginnings_change_cost_and_not_differences(model):
    alone = (dataclasses.replace(model[0], prefix=None, hidden_after=None), *model[1:])
    with_prefix, without = (run_exchange(one, TEXTS, **OPTIONS, suffix=0.5) for one in (model, alone))
    a, b = (np.column_stack([c, s]) for c, s in (one.log_probs["data 1"] for one in (with_prefix, without)))
    np.testing.assert_allclose(a, b, rtol=2e-6)
    whole = Shards.cut(load_examples(TEXTS), num_shards=5, suffix=0.5, seed=0)
    gap = by_hand(model, whole.text(2, 0, " ")) - by_hand(model, whole.text(2, 1, " "))
    assert a[2, 0] - a[2, 1] == pytest.approx(gap, abs=2e-4)
    calls = with_prefix.run["data"][0]["calls"]
    assert calls["tokens"] < 0.75 * without.run["data"][0]["calls"]["tokens"] == 0.75 * calls["tokens_asked"]


def test_equal_sequences_are_computed_once(model):
    """Shards of two examples have two orders: four shuffles repeat them, and equal log-probabilities are equal."""
    found = run_exchange(model, TEXTS[:10], **OPTIONS)
    canonical, shuffled = found.log_probs["data 1"]
    shards = Shards.cut(load_examples(TEXTS[:10]), num_shards=5, suffix=1.0, seed=0)
    distinct = {(shard, *shards.order(shard, number)) for shard in range(5) for number in range(5)}
    assert found.run["data"][0]["calls"]["sequences"] == len(distinct) <= 10
    for shard in range(5):
        for number in range(1, 5):
            same = (shards.order(shard, number) == shards.order(shard, 0)).all()
            assert (shuffled[shard, number - 1] == canonical[shard]) == same


def test_more_shuffles_leave_those_before_them(plain, model):
    more = run_exchange(model, TEXTS, **OPTIONS | {"num_shuffles": 7})
    np.testing.assert_allclose(more.log_probs["data 1"][1][:, :4], plain.log_probs["data 1"][1], rtol=1e-6)


@pytest.mark.slow("long")
@pytest.mark.parametrize("options", [{"max_length": 32}, {"suffix": 0.5}, {"num_shards": 30}])
def test_progress_ends_at_the_number_of_orders(model, monkeypatch, options):
    """Shards of several windows, of shared beginnings, and of two examples, whose orders repeat."""
    totals, done = [], []

    @contextlib.contextmanager
    def bar(description, total, **rest):
        totals.append(total)
        yield done.append

    monkeypatch.setattr(run_module, "progress_bar", bar)
    run_exchange(model, TEXTS, **OPTIONS | options)
    assert sum(done) == pytest.approx(totals[0])
    assert totals[0] == 5 * options.get("num_shards", 5)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("suffix", [1.0, 0.5])
@pytest.mark.slow("long")
def test_an_interrupted_run_ends_with_the_same_bits(model, tmp_path, monkeypatch, suffix):
    options = {**OPTIONS, "suffix": suffix, "stop": "spending", "control": scored_model(1, positions=128)}
    whole = run_exchange(model, TEXTS, **options, out=tmp_path / "whole")
    append = Namespace.append
    for stop_at in (2, 5):
        count = 0

        def dying(self, *arguments, limit=stop_at):
            nonlocal count
            kept = append(self, *arguments)
            count += 1
            if count == limit:
                raise Interrupted
            return kept

        monkeypatch.setattr(Namespace, "append", dying)
        with pytest.raises(Interrupted):
            run_exchange(model, TEXTS, **options, out=tmp_path / "cut")
        monkeypatch.setattr(Namespace, "append", append)
    assert not (tmp_path / "cut" / "run.json").exists()
    resumed = run_exchange(model, TEXTS, **options, out=tmp_path / "cut")
    for name in ("shards.csv", "log_probs.npz"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    for run in (whole.run, resumed.run):
        assert run["data"] == json.loads((tmp_path / "cut" / "run.json").read_text())["data"]
    saved = np.load(tmp_path / "cut" / "log_probs.npz")
    assert saved["names"].tolist() == ["data 1"]
    np.testing.assert_array_equal(saved["shuffled_0"], whole.log_probs["data 1"][1])
    with pytest.raises(InputError, match="holds a run of other inputs or options"):
        run_exchange(model, TEXTS, **options | {"seed": 1}, out=tmp_path / "cut")


def test_fields_whose_order_is_looked_at_are_part_of_the_run(model, tmp_path):
    rows = [{"text": text, "source": i % 3} for i, text in enumerate(TEXTS)]
    run_exchange(model, rows, **OPTIONS, out=tmp_path / "run")
    with pytest.raises(InputError, match="holds a run of other inputs or options"):
        run_exchange(model, [{**row, "source": i // 20} for i, row in enumerate(rows)], **OPTIONS, out=tmp_path / "run")


def test_a_folder_changes_no_bit(plain, model, tmp_path):
    kept = run_exchange(model, TEXTS, **OPTIONS, out=tmp_path / "run")
    for a, b in zip(kept.log_probs["data 1"], plain.log_probs["data 1"], strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_store_serves_all_runs_and_changes_no_bit_of_them(plain, model, tmp_path, monkeypatch):
    """Another test and another level need the same batches; other models, tokenizers and seeds have their own."""
    store = tmp_path / "store"
    run_exchange(model, TEXTS, **OPTIONS, store=store)
    for other in (scored_model(1, positions=128), scored_model(0, positions=128, bos=True)):
        expected = run_exchange(other, TEXTS, **OPTIONS)
        found = run_exchange(other, TEXTS, **OPTIONS, store=store)
        np.testing.assert_array_equal(found.log_probs["data 1"][1], expected.log_probs["data 1"][1])
    reseeded = run_exchange(model, TEXTS, **OPTIONS | {"seed": 1}, store=store)
    expected = run_exchange(model, TEXTS, **OPTIONS | {"seed": 1})
    np.testing.assert_array_equal(reseeded.log_probs["data 1"][1], expected.log_probs["data 1"][1])
    monkeypatch.setattr(sums, "TokenProgram", None)  # no model is run
    again = run_exchange(model, TEXTS, **OPTIONS | {"test": "rank_sum", "alpha": 0.2}, store=store)
    for a, b in zip(again.log_probs["data 1"], plain.log_probs["data 1"], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_control_that_cannot_take_the_data_is_refused_before_the_model_runs(model, monkeypatch):
    monkeypatch.setattr(sums.LogProbSums, "__call__", lambda *_: pytest.fail("the model was run"))
    short = scored_model(1, positions=32)
    with pytest.raises(InputError, match="control: max_length=64 exceeds the 32 positions"):
        run_exchange(model, TEXTS, **OPTIONS, max_length=64, control=short)


def remembering(model, texts, gain=3.0):
    """A model that finds each token after its predecessor in the given text more likely."""
    lm, params, tokenizer = model
    ids = np.array(tokenizer([" ".join(texts)])["input_ids"][0])
    table = np.zeros((VOCABULARY, VOCABULARY), np.float32)
    table[ids[:-1], ids[1:]] = gain

    def logits(params, tokens):
        return lm.logits(params["own"], tokens) + params["table"][tokens]

    remembers = LanguageModel(spec=("remembering", lm.spec), vocab_size=VOCABULARY, max_length=128, logits=logits)
    return remembers, {"own": params, "table": jnp.asarray(table)}, tokenizer


@pytest.mark.slow("long")
def test_clear_cases_stop_early_and_are_found_among_several(model):
    knows = remembering(model, TEXTS)
    found = run_exchange(
        knows,
        {"seen": TEXTS, "unseen": random_texts(60, 9, 3, 9)},
        **OPTIONS | {"num_shuffles": 40, "num_shards": 10},
        stop="e_process",
        control=model,
    )
    seen, unseen = found.run["data"]
    assert seen["rejected"]
    assert not unseen["rejected"]
    assert found.run["selection"]["num_rejected"] == 1
    assert seen["sequential"]["stopped"] == "evidence"
    assert seen["shuffles_used"] < 10
    assert seen["p_value"] <= 0.025
    assert seen["calls"]["asked"] == 10 * (seen["shuffles_used"] + 1)
    assert unseen["sequential"]["stopped"] == "futility"
    assert seen["tests"] == {}, "tests for a fixed number of shuffles are not valid here"
    assert seen["control"]["p_value"] > 0.01
    assert [look["shuffles"] for look in seen["sequential"]["looks"]][-1] == seen["shuffles_used"]
    fixed = run_exchange(knows, {"seen": TEXTS}, **OPTIONS | {"num_shuffles": 9, "num_shards": 10})
    assert fixed.run["data"][0]["tests"]["rank_sum"]["p_value"] < 1e-6


@pytest.mark.slow("long")
def test_a_shard_whose_log_probability_is_missing_is_left_out_and_counted(model):
    lm, params, tokenizer = model
    victim = 2 * int(TEXTS[0].split()[0][1:]) + (TEXTS[0][0] == "w")

    def logits(params, tokens):
        out = lm.logits(params, tokens)
        return jnp.where((tokens == victim).any(axis=1)[:, None, None], jnp.nan, out)

    broken = LanguageModel(spec=("broken", lm.spec), vocab_size=VOCABULARY, max_length=128, logits=logits)
    found = run_exchange((broken, params, tokenizer), TEXTS, **OPTIONS)
    (one,) = found.run["data"]
    assert 1 <= one["num_masked"] < 5
    assert found.shards["rank"][0] == -1
    assert np.isfinite(one["p_value"])


@pytest.mark.parametrize("stop", ["none", "spending"])
@pytest.mark.slow("long")
def test_a_data_set_without_any_log_probability_spares_the_others(model, stop):
    lm, params, tokenizer = model
    victims = {2 * int(text.split()[0][1:]) + (text[0] == "w") for text in TEXTS[:12:6]}
    known = np.isin(np.arange(VOCABULARY), [*victims])

    def logits(params, tokens):
        return jnp.where(jnp.asarray(known)[tokens].any(axis=1)[:, None, None], -jnp.inf, lm.logits(params, tokens))

    broken = LanguageModel(spec=("broken", stop), vocab_size=VOCABULARY, max_length=128, logits=logits)
    data = {"lost": TEXTS[:12], "kept": [text for text in TEXTS if not set(ids_of(model, text)) & victims]}
    found = run_exchange((broken, params, tokenizer), data, **OPTIONS | {"num_shards": 2}, stop=stop)
    lost, kept = found.run["data"]
    assert lost["p_value"] is None
    assert lost["num_masked"] == 2
    assert not lost["rejected"]
    assert 0 < kept["p_value"] <= 1
    assert any("lost" in text for text in lost["warnings"])


def ids_of(model, text):
    return model[2]([text])["input_ids"][0]


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (TEXTS[:9], {}, "9 examples for num_shards=5: shards of a single example"),
        (TEXTS[:3], {}, "fewer examples than shards"),
        ([*TEXTS[:20], " "], {}, "empty|blank"),
        (["w1 w2"] * 20, {}, "all 20 examples are equal"),
        (sorted(TEXTS), {}, r"is sorted \(by text, ascending\).*allow_sorted"),
        (TEXTS, {"max_length": 3}, "as long as the context of 3 tokens"),
        (TEXTS, {"max_length": 1}, "max_length=1"),
        (TEXTS, {"max_length": 500}, "exceeds the 128 positions"),
        (TEXTS, {"max_length": 32, "stride": 32}, "stride=32 leaves tokens without a window"),
        (TEXTS, {"num_shards": 0}, "num_shards must be a whole number from 1"),
        (TEXTS, {"num_shuffles": True}, "num_shuffles must be a whole number"),
        (TEXTS, {"suffix": 0}, "suffix=0 must be a fraction"),
        (TEXTS, {"suffix": 1.5}, "suffix=1.5"),
        (TEXTS, {"stop": "soon"}, "stop must be one of 'none', 'e_process'"),
        (TEXTS, {"test": "u"}, "test"),
        (TEXTS, {"alpha": 2}, "alpha"),
        (TEXTS, {"target_p": 0}, "target_p=0"),
        (TEXTS, {"target_p": 0.01}, 'stop for evidence, which stop="none" never does'),
        (TEXTS, {"target_p": 0.01, "stop": "besag_clifford"}, 'which stop="besag_clifford" never does'),
        (TEXTS, {"bos": "yes"}, "bos must be one of 'auto'"),
        (TEXTS, {"bos": "always"}, "beginning-of-sequence token, and this one has none"),
        (TEXTS, {"separator": None}, "separator must be a string"),
        (TEXTS, {"token_budget": 0}, "token_budget"),
        (TEXTS, {"long_texts": "truncate"}, "long_texts='truncate': of no use to a test of order; leave it out"),
        (TEXTS, {"run": tdd.Run(on_batch=print, long_texts="error")}, "long_texts='error', on_batch=.* leave them out"),
        (TEXTS, {"run": {"device": "cpu"}}, r"is no tdd.Run; write run="),
        (TEXTS, {"seed": -1}, r"seed must be a whole number from 0 to 2\^32 - 1, got -1"),
    ],
)
def test_errors(model, data, options, words):
    with pytest.raises(InputError, match=words):
        run_exchange(model, data, **OPTIONS | options)


def test_a_sorted_order_can_be_insisted_on(model):
    found = run_exchange(model, sorted(TEXTS), **OPTIONS, allow_sorted=True)
    assert any("sorted" in text for text in found.run["data"][0]["warnings"])


def test_several_sets_share_the_level_of_stopping(model, monkeypatch):
    targets = []

    def recorded(stop, looks, target, *rest):
        targets.append(target)
        return SequentialTest(stop, looks, target, *rest)

    monkeypatch.setattr(run_module, "SequentialTest", recorded)
    run_exchange(model, {"a": TEXTS, "b": TEXTS[::-1]}, **OPTIONS, stop="e_process", alpha=0.04)
    assert targets == [0.02, 0.02]


def test_the_number_of_exceedances_alone_stops_besag_and_clifford():
    """A small p-value on the way is none of its evidence."""
    by_rule = {rule: SequentialTest(rule, (5, 10), 0.5, "rank_sum", None) for rule in ("besag_clifford", "spending")}
    for sequence in by_rule.values():
        sequence.look(np.full(4, 1.0), np.zeros((4, 5)), calls=24)
    assert by_rule["spending"].stopped == "evidence"
    assert by_rule["besag_clifford"].stopped is None


def test_sums_of_batches_of_another_size_are_other_rows(model, tmp_path):
    """Rounding depends on what is computed together."""
    given = ScoreStore(tmp_path), Model(*model, "tiny"), find_devices()
    assert sums.sums_namespace(*given, 512) is sums.sums_namespace(*given, 512)
    assert sums.sums_namespace(*given, 512) is not sums.sums_namespace(*given, 256)


def test_how_to_run_as_a_value_or_as_keywords(model, plain, tmp_path):
    how = tdd.Run(token_budget=512, progress=False, store=tmp_path / "store", job="one")
    options = {name: OPTIONS[name] for name in ("num_shards", "num_shuffles", "separator")}
    found = run_exchange(model, TEXTS, **options, run=how)
    np.testing.assert_array_equal(found.log_probs["data 1"][1], plain.log_probs["data 1"][1])
    assert found.run["options"] == plain.run["options"]
    assert (tmp_path / "store").is_dir()
    shorter = run_exchange(model, TEXTS, **options, run=how, max_length=32)
    assert shorter.run["options"]["max_length"] == 32


def test_an_option_that_does_not_exist(model):
    with pytest.raises(TypeError, match="num_shard"):
        run_exchange(model, TEXTS, num_shard=5)
