"""Assignments of texts to models: random halves, three blocks, and what each model is trained on."""

import itertools

import numpy as np
import pytest

from tdd import InputError
from tdd.lab.plant import assign_models, three_blocks, training_lists
from tdd.records import Texts


def pool(count, prefix="t"):
    return Texts(ids=tuple(f"{prefix}{i}" for i in range(count)), texts=tuple(f"{prefix} {i}" for i in range(count)))


class TestAssignments:
    """[K, N], rows independent."""

    def test_shares_are_exact_and_the_first_models_do_not_depend_on_the_others(self):
        member = assign_models(pool(41), 3, share=0.5, seed=1)
        assert member.shape == (3, 41)
        assert member.sum(axis=1).tolist() == [21, 21, 21]
        np.testing.assert_array_equal(assign_models(pool(41), 2, share=0.5, seed=1), member[:2])
        one = assign_models(pool(40), 4, share=(0.25, 0, 1, 0.5), seed=1)
        assert one.sum(axis=1).tolist() == [10, 0, 40, 20]

    def test_every_text_is_equally_likely_and_models_are_independent(self):
        drawn = np.stack([assign_models(pool(10), 2, share=0.3, seed=seed) for seed in range(2000)])
        error = 4 * np.sqrt(0.3 * 0.7 / 2000)
        assert np.abs(drawn.mean(axis=0) - 0.3).max() < error
        both = np.mean(drawn[:, 0, 0] & drawn[:, 1, 0])
        assert abs(both - 0.09) < 4 * np.sqrt(0.09 * 0.91 / 2000)

    def test_training_lists_hold_the_assigned_and_the_shared_in_an_order_of_their_own(self):
        texts, background = pool(20), pool(5, "b")
        member = assign_models(texts, 2, seed=1)
        lists = training_lists(texts, member, background=background, seed=1)
        for row, mine in zip(member, lists, strict=True):
            assert sorted(mine.ids) == sorted(
                [t for t, kept in zip(texts.ids, row, strict=True) if kept] + [*background.ids]
            )
            assert list(mine.ids) != sorted(mine.ids)
        assert training_lists(texts, np.zeros((1, 20), bool), seed=0)[0].texts == ()

    @pytest.mark.parametrize(
        ("count", "models", "share", "named"),
        [
            (5, 0, 0.5, "num_models"),
            (5, 2, 1.5, "share"),
            (5, 2, (0.5,), "1 numbers for 2 models"),
            (5, 2, (0.5, -1), r"share\[1\]"),
            (0, 2, 0.5, "texts is empty"),
        ],
    )
    def test_bad_arguments_are_named(self, count, models, share, named):
        with pytest.raises(InputError, match=named):
            assign_models(pool(count), models, share=share, seed=0)


class TestThreeBlocks:
    """Sizes as published, everything said twice the same."""

    @pytest.mark.parametrize(("count", "sizes"), [(10, (3, 1, 6)), (2000, (600, 200, 1200)), (1319, (395, 131, 793))])
    def test_sizes(self, count, sizes):
        blocks = three_blocks(pool(count), num_models=3, seed=0)
        assert (len(blocks.calibration), len(blocks.remainder), len(blocks.clean)) == sizes

    def test_blocks_say_who_was_trained_on_what(self):
        texts, background = pool(100), pool(7, "b")
        blocks = three_blocks(texts, num_models=4, background=background, seed=3)
        index = {name: i for i, name in enumerate(texts.ids)}
        columns = {
            name: [index[i] for i in getattr(blocks, name).ids] for name in ("calibration", "remainder", "clean")
        }
        assert sorted(itertools.chain(*columns.values())) == list(range(100))
        assert blocks.member[:, columns["calibration"]].all()
        assert not blocks.member[:, columns["clean"]].any()
        assert blocks.member[:, columns["remainder"]].sum(axis=1).tolist() == [5, 5, 5, 5]
        assert 0 < len({tuple(row) for row in blocks.member[:, columns["remainder"]].tolist()}) <= 4
        for model, mine in enumerate(blocks.training):
            own = [name for name, kept in zip(texts.ids, blocks.member[model], strict=True) if kept]
            assert sorted(mine.ids) == sorted([*own, *background.ids])
        assert [row["id"] for row in blocks.truth] == list(texts.ids)
        for row in blocks.truth:
            assert row["id"] in getattr(blocks, row["block"]).ids
            assert [row[f"model-{k + 1}"] for k in range(4)] == blocks.member[:, index[row["id"]]].tolist()

    def test_every_text_gets_every_block(self):
        first = [three_blocks(pool(10), num_models=1, seed=seed).truth[0]["block"] for seed in range(400)]
        assert abs(np.mean([block == "calibration" for block in first]) - 0.3) < 4 * np.sqrt(0.21 / 400)
        assert abs(np.mean([block == "remainder" for block in first]) - 0.1) < 4 * np.sqrt(0.09 / 400)

    @pytest.mark.parametrize(
        ("count", "change", "named"),
        [
            (9, {}, "remainder=0.1 of 9 texts is none"),
            (20, {"calibration": 0.0}, "calibration=0 of 20 texts is none"),
            (20, {"calibration": 0.5, "remainder": 0.5}, "no clean text of 20"),
            (20, {"calibration": 1.5}, "calibration"),
            (20, {"num_models": 0}, "num_models"),
        ],
    )
    def test_bad_arguments_are_named(self, count, change, named):
        with pytest.raises(InputError, match=named):
            three_blocks(pool(count), **({"num_models": 2, "seed": 0} | change))
