"""`tdd.score` block by block: the numbers of one block, each row computed once, tokens ready in time."""

import dataclasses
import gc
import logging
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from given_scores import split, with_given
from scored_models import Stopped, assert_same, random_texts, rows_computed, scored_model, stop_after

import tdd
from benchmarks.aot.hlo import Module
from tdd.records import Texts
from tdd.scoring import programs, run, tasks
from tdd.scoring import score as driver
from tdd.scoring.buckets import PRICE, bucket_price, most_buckets, plan
from tdd.scoring.devices import find_devices
from tdd.scoring.inputs import Deferred, Model
from tdd.scoring.token_stats import Tiling
from tdd.validate import InputError

LENGTHS = {"shortest": 22, "longest": 40}  # few buckets, each of which is compiled
TEXTS = [*random_texts(24, **LENGTHS), *random_texts(24, **LENGTHS)[:8], *random_texts(8, seed=1, **LENGTHS)]
"""Eight of them are in two blocks."""

SCORES = ("loss", "zlib", "lowercase", "reference", "min_k_plus_plus", "grad_norm")


@pytest.fixture(scope="module")
def model():
    return scored_model()


@pytest.fixture(scope="module")
def other():
    return scored_model(7)


@pytest.fixture(scope="module")
def plain(model, other):
    return score(model, reference=other)


@pytest.fixture
def blocks(monkeypatch):
    monkeypatch.setattr(run, "_BLOCK", 1000)


@pytest.fixture
def rows(monkeypatch):
    return rows_computed(monkeypatch)


def score(model, texts=TEXTS, scores=SCORES, **options):
    given, options = split(options)
    return tdd.score(model, texts, with_given(scores, **given), **{"token_budget": 256, "progress": False, **options})


def test_blocks_hold_every_text_once_and_are_of_one_size(blocks):
    table = Texts(tuple(map(str, range(40))), tuple(TEXTS))
    found = run.in_blocks(table)
    assert [text for block in found for text in block.texts] == TEXTS
    assert [one for block in found for one in block.ids] == [*table.ids]
    sizes = [sum(map(len, block.texts)) for block in found]
    assert 4 <= len(found) <= -(-sum(sizes) // 1000)
    assert min(sizes) > 0.5 * max(sizes)
    huge = Texts(("a", "b", "c"), ("w1 w2", "w1 " * 5000, "w3 w4"))
    assert [text for block in run.in_blocks(huge) for text in block.texts] == [*huge.texts]
    assert len(run.in_blocks(Texts(("a",), ("",)))) == 1


def test_blocks_change_no_score(blocks, plain, model, other):
    told = []
    found = score(model, reference=other, on_batch=lambda *at: told.append(at))
    assert_same(found, plain, 1e-5)
    assert [done for done, _ in told] == [*range(1, len(told) + 1)]
    assert [done for done, total in told if done >= total] == [len(told)], "the total is reached at the end alone"
    for fact in ("num_windows", "prepends_bos", "texts_sha256"):
        assert found.provenance[fact] == plain.provenance[fact]
    assert len(found.provenance["batch_shapes"]) <= 2 * len(plain.provenance["batch_shapes"])
    assert 0 < found.provenance["padding_share"] < 0.5


def test_reference_losses_have_one_unit_in_all_blocks(blocks, monkeypatch):
    """One text that the tokenizers cut differently makes all losses per byte, in whatever block it is."""
    short, long = scored_model(), scored_model(7, bos=False)

    def other_tokens(texts, add_special_tokens=True):
        ids = long[2](texts, add_special_tokens=add_special_tokens)["input_ids"]
        return {"input_ids": [row[:-1] if text == TEXTS[-1] else row for text, row in zip(texts, ids, strict=True)]}

    other_tokens.decode = long[2].decode
    found = score(short, scores="reference", reference=(*long[:2], other_tokens))
    monkeypatch.undo()
    assert_same(found, score(short, scores="reference", reference=(*long[:2], other_tokens)), 1e-5)


def test_a_store_computes_a_row_once_and_an_interrupted_run_goes_on(blocks, plain, model, other, tmp_path, rows):
    options = {"reference": other, "scores": [name for name in SCORES if name != "grad_norm"]}
    quiet = score(model, store=tmp_path / "quiet", **options)
    once = sum(rows)
    assert_same(quiet, score(model, **options), 1e-5)
    assert once < sum(rows) - once, "without a store, what is in two blocks is computed twice"
    rows.clear()
    score(model, [*dict.fromkeys(TEXTS)], **options)
    assert once == sum(rows)
    for stop in (3, 20):
        with pytest.raises(Stopped):
            score(model, store=tmp_path / "cut", on_batch=stop_after(stop), **options)
    rows.clear()
    found = score(model, store=tmp_path / "cut", **options)
    assert 0 < sum(rows) < once
    assert_same(found, quiet)
    assert dict(found.provenance) == dict(quiet.provenance)


def test_shards_make_the_batches_of_one_call(blocks, model, tmp_path, rows):
    """Rows of earlier blocks are another shard's, and not yet there."""
    names = ("loss", "lowercase")
    alone = score(model, scores=names, store=tmp_path / "alone")
    once = sum(rows)
    rows.clear()
    for shard in ("2/3", "0/3", "1/3"):
        assert score(model, scores=names, store=tmp_path / "shards", shard=shard) is None
    assert sum(rows) == once
    rows.clear()
    assert_same(score(model, scores=names, store=tmp_path / "shards"), alone)
    assert not rows


def test_a_bad_text_of_a_later_block_is_an_error_and_loses_nothing(blocks, model, tmp_path, rows):
    with pytest.raises(InputError, match=r"text '41' has 1 token .*remove the text or lengthen it"):
        score(model, [*TEXTS, "w3"], "loss", store=tmp_path)
    before = sum(rows)
    assert before
    rows.clear()
    score(model, TEXTS, "loss", store=tmp_path)
    assert sum(rows) < before


@pytest.fixture
def loads(monkeypatch, other):
    """What was loaded: "first" and "second", checkpoints of fresh parameters, of which one lives at a time."""
    given, read, alive, find = {"first": other, "second": scored_model(8)}, [], [], tasks.find_reference

    def load(name):
        if any(leaf() is not None for leaf in alive):
            gc.collect()
        assert not any(leaf() is not None for leaf in alive), "parameters of another reference are in memory"
        read.append(name)
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf).copy(), given[name][1])
        alive.append(weakref.ref(jax.tree.leaves(params)[0]))
        return params

    def reference(name, *rest, **more):
        if not isinstance(name, str):
            return find(name, *rest, **more)
        lm, _, known = given[name]
        return Model(lm, Deferred(lambda: load(name)), known, name)

    monkeypatch.setattr(tasks, "find_reference", reference)
    monkeypatch.setattr(driver, "check_references", lambda *_: None)  # these names are no folders
    return read


BESIDE = {"population": [*random_texts(9, seed=2, **LENGTHS), "w4"]}
PREFIX = {"prefix": ["w1 w2 w5 w3"]}


def test_each_checkpoint_is_loaded_once_and_no_bit_changes(blocks, model, other, loads, tmp_path, rows, caplog):
    texts, names, told = [*TEXTS, "w1 w2"], ("loss", "zlib", "lira", "rmia", "recall"), []
    tables = []
    for references in (["first", "second"], [other, scored_model(8)]):
        options = {"reference": references, "store": tmp_path / f"{len(tables)}", **BESIDE, **PREFIX}
        with caplog.at_level(logging.WARNING):
            tables.append(score(model, texts, names, **options))
        told.append(([*map(logging.LogRecord.getMessage, caplog.records)], sum(rows)))
        caplog.clear()
        rows.clear()
    assert loads == ["first", "second"] * 2, "for its place in the store, and to compute"
    assert_same(*tables)
    assert told[0] == told[1]
    assert sum("fewer than two tokens" in line for line in told[0][0]) == 3, "the population under each model"


def test_without_turns_each_block_would_load_every_checkpoint(blocks, model, loads, monkeypatch):
    """The broken twin of the test before."""
    monkeypatch.setattr(
        driver, "in_turns", lambda texts, models: [run.Turn(*block) for block in enumerate(run.in_blocks(texts))]
    )
    score(model, TEXTS[:24], "lira", reference=["first", "second"])
    num_blocks = len(run.in_blocks(Texts(tuple(map(str, range(24))), tuple(TEXTS[:24]))))
    assert len(loads) == 2 * num_blocks > 2


@pytest.mark.slow("long")
def test_turns_go_on_after_an_interruption(blocks, model, loads, tmp_path, rows):
    """Stopped under the audited model and under each checkpoint; in shards; from a store that has everything."""
    options = {"scores": ("lira", "rmia"), "reference": ["first", "second"], **BESIDE}
    told = []
    quiet = score(model, store=tmp_path / "quiet", on_batch=lambda *at: told.append(at), **options)
    assert loads == ["first", "second"] * 2, "for its place in the store, and to compute"
    assert [done for done, _ in told] == [*range(1, len(told) + 1)]
    assert [done for done, total in told if done >= total] == [len(told)]
    once = sum(rows)
    assert once == 3 * (len({*TEXTS}) + 9), "what is in two blocks is computed once under each model"
    in_flight = 3 * 2 * max(rows)
    rows.clear()
    for share in (0.2, 0.5, 0.8):
        stops = iter([False] * round(share * len(told)) + [True])

        def stop(done, total, stops=stops):
            if next(stops):
                raise Stopped

        with pytest.raises(Stopped):
            score(model, store=tmp_path / "cut", on_batch=stop, **options)
    found = score(model, store=tmp_path / "cut", **options)
    assert once <= sum(rows) <= once + in_flight, "only what was in flight is computed again"
    assert_same(found, quiet)
    assert dict(found.provenance) == dict(quiet.provenance)
    rows.clear()
    loads.clear()
    assert_same(score(model, store=tmp_path / "cut", **options), quiet)
    assert not rows
    assert loads == ["first", "second"], "nothing is left to compute"
    for shard in ("1/2", "0/2"):
        assert score(model, store=tmp_path / "shards", shard=shard, **options) is None
    rows.clear()
    assert_same(score(model, store=tmp_path / "shards", **options), quiet, 1e-5)
    assert not rows


def _waiting_device(monkeypatch, seconds):
    """A device that computes the first batch until the second block is tokenised, or for so long; and what it saw."""
    tokenised, seen, fetch = threading.Event(), [], programs.TokenProgram.fetch
    encode, calls = run.encode_pass, []

    def spied(name, *arguments, **options):
        found = encode(name, *arguments, **options)
        calls.append(threading.current_thread() is threading.main_thread())
        if len(calls) == 2:
            tokenised.set()
        return found

    def slow(self, *arguments):
        if not seen:
            seen.append(tokenised.wait(seconds))
        return fetch(self, *arguments)

    monkeypatch.setattr(run, "encode_pass", spied)
    monkeypatch.setattr(programs.TokenProgram, "fetch", slow)
    return seen, calls


def test_the_next_block_is_tokenised_while_a_device_computes(blocks, model, monkeypatch):
    seen, calls = _waiting_device(monkeypatch, 60)
    score(model, scores="loss")
    assert seen == [True]
    assert calls == [True] + [False] * (len(calls) - 1)


def test_tokenising_in_turn_would_not_overlap(blocks, model, monkeypatch):
    """The broken twin of the test before."""

    def in_turn(make, items):
        yield from map(make, items)

    seen, _ = _waiting_device(monkeypatch, 0.1)
    monkeypatch.setattr(driver, "ahead", in_turn)
    score(model, scores="loss")
    assert seen == [False]


def test_an_interruption_ends_the_thread(blocks, model):
    def stop(done, total):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        score(model, scores="loss", on_batch=stop)
    assert threading.active_count() <= before


@pytest.mark.parametrize(("block", "waits"), [(None, 0), (64, 1)])
def test_the_host_waits_in_no_tile_of_the_head(model, block, waits):
    """Loops of the program for accelerators have a length that is compiled in. That for CPU, the twin, has not."""
    where, tile = find_devices(), Tiling(8, block)
    arrays = jnp.zeros((64, 16)), jnp.zeros(64, jnp.int32), jnp.int32(30)
    wanted = ("log_prob", "mu", "sigma")
    lowered = programs._head.lower(model[0], where, model[1], *arrays, tile=tile, wanted=wanted, num_rows=32)
    text = lowered.compile().as_text()
    assert " while(" in text
    assert (Module(text).waits > 0) == bool(waits)
    assert " conditional(" not in text, "the host reads which branch is taken"


def test_the_head_for_accelerators_makes_the_same_numbers(model, monkeypatch):
    """Whole rows of the vocabulary, tiles of a fixed number, and the statistics that are wanted."""
    names, model = ("loss", "min_k_plus_plus"), (dataclasses.replace(model[0], hidden_at=None), *model[1:])
    expected = score(model, TEXTS[:12], names)
    monkeypatch.setattr(run, "tiling", lambda platform: Tiling(16, None))
    computed, head = [], programs._head

    def spy(*arguments, **options):
        computed.append(options["num_rows"])
        return head(*arguments, **options)

    monkeypatch.setattr(programs, "_head", spy)
    assert_same(score(model, TEXTS[:12], names), expected, 1e-5)
    assert set(computed) <= {*range(32, 257, 32)}
    assert len({*computed}) > 1, "a batch that is not full has fewer tiles"


def test_one_block_is_made_ahead_and_no_more():
    made = []
    for place, item in enumerate(run.ahead(lambda x: made.append(x) or x, range(6))):
        assert item == place
        assert len(made) <= place + 2
    assert made == [*range(6)]


def test_a_cpu_has_more_shapes_and_less_padding():
    """Of a run whose padding more than pays for their compilation."""
    rows = {"text": np.random.default_rng(0).integers(2, 400, 4000)}
    found = {}
    for platform in ("cpu", "gpu"):
        batches = plan(rows, token_budget=2048, max_buckets=most_buckets(platform), limit=512)
        padding = 1 - rows["text"].sum() / sum(batch.num_tokens for batch in batches)
        found[platform] = len({batch.shape for batch in batches}), padding
    assert found["gpu"][0] == 8 < found["cpu"][0] <= 24
    assert found["cpu"][1] < found["gpu"][1] / 1.5


def test_a_small_model_has_few_shapes_and_a_large_one_many():
    """A compilation takes a model as long as the more tokens the smaller it is."""
    rows = {"text": np.random.default_rng(0).integers(2, 400, 300)}
    most = most_buckets("cpu")
    shapes = []
    for num_parameters in (0, 10**6, 10**8, 10**10):
        price = bucket_price(num_parameters, "cpu")
        batches = plan(rows, token_budget=2048, max_buckets=most, price=price, limit=512)
        shapes.append(len({batch.shape for batch in batches}))
        assert bucket_price(num_parameters, "gpu") > 1000 * price
    assert shapes == sorted(shapes)
    assert shapes[0] <= 2 < shapes[2] < shapes[3] == most
    assert pytest.approx(bucket_price(130 * 10**6, "cpu"), rel=0.05) == PRICE


def test_a_long_row_has_a_shape_of_its_own_whatever_a_shape_costs():
    rows = {"text": np.array([1000] + [20] * 1000)}
    batches = plan(rows, token_budget=16_384, price=10**9, limit=1024)
    assert sum(batch.num_tokens for batch in batches) < 2 * rows["text"].sum()
    assert len({batch.shape for batch in batches}) == 2


def test_a_block_pays_its_share_of_a_shape(model, blocks, monkeypatch):
    prices = []

    def planned(*given, price, **more):
        prices.append(price)
        return plan(*given, **more)

    monkeypatch.setattr("tdd.scoring.plan.bucket_price", lambda size, platform: 10**6)
    monkeypatch.setattr("tdd.scoring.plan.plan", planned)
    score(model, TEXTS, "loss")
    assert len(prices) > 1
    assert sum(prices) == pytest.approx(10**6, abs=len(prices))


def test_the_price_of_a_shape_is_that_of_the_model(model, monkeypatch):
    """Of one whose parameters are loaded later, too."""
    lm, params, tokenizer = model
    sizes, prices = [], []

    def planned(*given, price, **more):
        prices.append(price)
        return plan(*given, **more)

    monkeypatch.setattr("tdd.scoring.plan.bucket_price", lambda size, platform: sizes.append(size) or 9)
    monkeypatch.setattr("tdd.scoring.plan.plan", planned)
    score(model, TEXTS, "loss")
    assert sizes == [sum(leaf.size for leaf in jax.tree.leaves(params))]
    assert {*prices} == {9}
    later = Model(lm, Deferred(lambda: params, sizes[0]), tokenizer, "later")
    assert later.num_parameters() == later._replace(params=params).num_parameters() == sizes[0]


@pytest.mark.parametrize("compact", [False, True])
def test_later_blocks_take_the_shapes_of_earlier_ones(compact):
    rng = np.random.default_rng(0)
    one, two = ({"text": rng.integers(2, 100, 4000)} for _ in range(2))
    options = {"token_budget": 2048, "limit": 128, "compact": compact}
    first = plan(one, **options)
    shapes = {batch.length: (batch.size, batch.capacity) for batch in first}
    again = plan(two, **options, compiled=shapes)
    assert {(batch.length, (batch.size, batch.capacity)) for batch in again} <= {*shapes.items()}
    assert sorted(np.concatenate([batch.rows for batch in again])) == [*range(4000)]
    assert all(batch.length >= two["text"][batch.rows].max() and len(batch.rows) <= batch.size for batch in again)
    assert compact or sum(len(batch.rows) < batch.size for batch in again) <= 1, "only the last has rows of padding"
    cost = [sum(batch.num_tokens for batch in batches) for batches in (again, plan(two, **options))]
    assert cost[0] <= (1.04 if compact else 1.02) * cost[1]
    longer = plan({"text": np.append(two["text"], 128)}, **options, compiled=shapes)
    assert {batch.length for batch in longer} - {*shapes} == {128}
    short = plan({"text": np.full(4000, 9)}, **options, compiled={96: (21, None)})
    assert {batch.length for batch in short} == {16}, "shapes that waste are not taken"
    small = plan({"text": np.full(4000, 96)}, **options, compiled={96: (2, None)})
    assert {batch.size for batch in small} != {2}, "nor are small ones for many rows"
