"""Faults a person could make, one record each: what stands in a file, what would stand there, who should notice."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    """One snippet that occurs once in its file, and what a person might have written instead.

    Attributes:
      name: module and mistake.
      file: relative to the root of the repository.
      old: the snippet.
      new: the faulty one.
      tests: files, folders or path::name of tests that are tried first.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _law(*kernels: str) -> tuple[str, ...]:
    """The comparison of kernels with their references."""
    return tuple(f"tests/contract/test_contract.py::test_reference[{kernel}]" for kernel in kernels)


CONFORMAL = (
    Fault(
        "conformal: + 1 dropped",
        "kernels/conformal.py",
        "jnp.where(count.valid, 1 + extreme, masked),",
        "jnp.where(count.valid, jnp.maximum(extreme, 1), masked),",
        _law("conformal.rank/nonmember", "conformal.rank/member"),
    ),
    Fault(
        "conformal: ties of a member null count for the item",
        "kernels/conformal.py",
        "else count.num_calibration - count.less\n    masked",
        "else count.num_calibration - count.less - count.equal\n    masked",
        _law("conformal.rank/member"),
    ),
    Fault(
        "ranks: -0 is below 0",
        "kernels/ranks.py",
        "jnp.where(scores == 0, 0, scores).astype(wide)",
        "scores.astype(wide)",
        ("tests/kernels/test_conformal.py", *_law("ranks.counts")),
    ),
    Fault(
        "proportion: Storey's tail begins one rank late",
        "kernels/proportion.py",
        "valid & (rank >= n - tail + 1)",
        "valid & (rank > n - tail + 1)",
        ("tests/methods/test_ptdi.py", *_law("proportion.storey")),
    ),
    Fault(
        "proportion: ties at tau are in the region",
        "kernels/proportion.py",
        "own.valid & (own.less >= kept)",
        "own.valid & (own.less + own.equal > kept)",
        _law("proportion.subtraction"),
    ),
    Fault(
        "pooled_ranks: a tie counts whole instead of half",
        "kernels/pooled_ranks.py",
        "2 * extreme + up_to - less + 1",
        "2 * (extreme + up_to - less)",
        _law("pooled_ranks.pool/member,ties", "pooled_ranks.pool/nonmember,ties"),
    ),
    Fault(
        "conditional: DKW below its range of delta",
        "kernels/conditional.py",
        "jnp.log(jnp.minimum(value, 0.5))",
        "jnp.log(value)",
        _law("conditional.dkwm_bounds/delta=0.7"),
    ),
    Fault(
        "weighted: the mass of ties is left out of p",
        "kernels/weighted.py",
        'sums[jnp.searchsorted(ordered, scores, side="right")],',
        'sums[jnp.searchsorted(ordered, scores, side="left")],',
        _law("weighted.p_values/nonmember", "weighted.p_values/member"),
    ),
    Fault(
        "clusters: the median of an even cluster is its upper one",
        "kernels/clusters.py",
        "jnp.minimum(start + (size - 1) // 2, last)",
        "jnp.minimum(start + size // 2, last)",
        _law("clusters.cluster_scores/median"),
    ),
)

STEP_UP = (
    Fault(
        "stepup: Storey's + 1 dropped",
        "kernels/stepup.py",
        "pi0 = (1 + above).astype(values.dtype)",
        "pi0 = jnp.maximum(above, 1).astype(values.dtype)",
        _law("stepup.storey_bh/alpha=0.1,lambda_=0.5,cap=False"),
    ),
    Fault(
        "stepup: masked ranks are counted in the adjusted values",
        "kernels/stepup.py",
        "slots = jnp.where(valid, rank, max_rank + 1)",
        "slots = jnp.minimum(rank, max_rank + 1)",
        (
            *_law("stepup.bh_ranks"),
            "tests/contract/test_contract.py::test_masked_padding_changes_nothing[stepup.bh_ranks]",
        ),
    ),
    Fault(
        "stepup_parts: one hypothesis too many in a step down",
        "kernels/stepup_parts.py",
        "left = jnp.maximum(num_tests - rejected, 1).astype(values.dtype)",
        "left = jnp.maximum(num_tests - rejected + 1, 1).astype(values.dtype)",
        ("tests/kernels/test_family.py", "tests/methods/test_golden_stepup.py"),
    ),
    Fault(
        "lattice: equality is no longer at most",
        "kernels/lattice.py",
        "return less | equal",
        "return less",
        ("tests/kernels/test_lattice.py", *_law("lattice.product_le")),
    ),
    Fault(
        "lattice: nothing is possible becomes the bound is possible",
        "kernels/lattice.py",
        "jnp.where(holds, candidates, bound + 1)",
        "jnp.where(holds, candidates, bound)",
        ("tests/kernels/test_lattice.py", *_law("lattice.ceil_ratio", "stepup.min_rejections")),
    ),
    Fault(
        "hommel: one free hypothesis too few",
        "kernels/hommel.py",
        "jnp.where(simes > critical, place, 0)",
        "jnp.where(simes > critical, place - 1, 0)",
        ("tests/kernels/test_hommel.py", *_law("hommel.hommel/alpha=0.3")),
    ),
    Fault(
        "envelope: a rank at tau is off the line",
        "kernels/envelope.py",
        "on_line = valid & (rank <= anchor.limit)",
        "on_line = valid & (rank < anchor.limit)",
        (*_law("envelope.adaptive_bh/alpha=0.35"), "tests/methods/test_jecs.py"),
    ),
    Fault(
        "joint_cuts: the tail begins one rank late",
        "kernels/joint_cuts.py",
        "at_most[jnp.asarray(num_calibration, jnp.int32) - tail]",
        "at_most[jnp.asarray(num_calibration, jnp.int32) - tail + 1]",
        ("tests/kernels/test_joint_cuts.py",),
    ),
    Fault(
        "resample: Storey's + 1 dropped",
        "kernels/resample.py",
        "(1 + m - jnp.where(some, below, 0),)",
        "(jnp.maximum(m - jnp.where(some, below, 0), 1),)",
        ("tests/kernels/test_resample.py",),
    ),
    Fault(
        "tally: repetitions that are not real enter the sums",
        "kernels/tally.py",
        ".astype(jnp.uint32) * counted for x in (values, values * values)]",
        ".astype(jnp.uint32) for x in (values, values * values)]",
        ("tests/kernels/test_tally.py", "tests/study/test_runner.py"),
    ),
    Fault(
        "local_fdr: masked items are counted in m",
        "kernels/local_fdr.py",
        "total = jnp.maximum(m, 1).astype(dtype)",
        "total = jnp.maximum(jnp.int32(size), 1).astype(dtype)",
        _law("local_fdr.local_fdr/null_proportion=1.0"),
    ),
    Fault(
        "online_state: LOND's + 1 dropped",
        "kernels/online_state.py",
        "(state.num_rejected + 1).astype(level.dtype)",
        "jnp.maximum(state.num_rejected, 1).astype(level.dtype)",
        ("tests/kernels/test_online.py",),
    ),
    Fault(
        "online_state: SAFFRON's clock ticks at lambda",
        "kernels/online_state.py",
        "real & (value > state.lambda_)",
        "real & (value >= state.lambda_)",
        ("tests/kernels/test_online.py", "tests/kernels/test_online_state.py"),
    ),
)

KNOCKOFFS_AND_MERGES = (
    Fault(
        "knockoff: the offset is ignored",
        "kernels/knockoff.py",
        "(offset + along.against, level.denominator), (level.numerator",
        "(along.against, level.denominator), (level.numerator",
        _law("knockoff.select/alpha=0.3,offset=1,k=1,continuous", "knockoff.threshold"),
    ),
    Fault(
        "knockoff_path: the threshold divides a group of ties",
        "kernels/knockoff_path.py",
        "(magnitude > 0) & jnp.concatenate([jnp.ones(min(size, 1), bool), magnitude[1:] != magnitude[:-1]])",
        "magnitude > 0",
        ("tests/kernels/test_knockoff.py",),
    ),
    Fault(
        "knockoff_multi: a tie is the original's",
        "kernels/knockoff_multi.py",
        "original_wins = winner == knockoffs.shape[1]",
        "original_wins = original <= jnp.min(knockoffs, axis=1)",
        _law("knockoff_multi.multi_statistics"),
    ),
    Fault(
        "knockoff_fdp: bounds are sharpened from the wrong end",
        "kernels/knockoff_fdp.py",
        "jax.lax.cummax(members, reverse=True)",
        "jax.lax.cummax(members)",
        _law("knockoff_fdp.fdp_bound"),
    ),
    Fault(
        "evalues: the mask is ignored",
        "kernels/evalues.py",
        "stepup.bh(inverse, alpha, mask=mask)",
        "stepup.bh(inverse, alpha)",
        _law("evalues.e_bh", "evalues.e_bh/alpha=0.4"),
    ),
    Fault(
        "evalues: + 1 of the denominator dropped",
        "kernels/evalues.py",
        "1 + _before(calibration, calibration_mask, null, jnp.minimum(allowed, n + 1), n)",
        "jnp.maximum(1, _before(calibration, calibration_mask, null, jnp.minimum(allowed, n + 1), n))",
        _law("evalues.conformal_e_values/nonmember,alpha=0.3"),
    ),
    Fault(
        "combine: a weight of 0 lets NaN through",
        "kernels/combine.py",
        "jnp.where(fine, w > 0, True), share",
        "jnp.where(fine, w >= 0, True), share",
        ("tests/kernels/test_combine.py",),
    ),
    Fault(
        "merge: the last term of the harmonic number is missing",
        "kernels/merge.py",
        "range(1, p.shape[0] + 1)",
        "range(1, max(p.shape[0], 2))",
        _law("merge.hommel"),
    ),
    Fault(
        "fdp_bounds: the critical draw is the next larger one",
        "kernels/fdp_bounds.py",
        "jnp.sort(least)[jnp.maximum(place - 1, 0)]",
        "jnp.sort(least)[jnp.minimum(place, num_draws - 1)]",
        ("tests/kernels/test_fdp_bounds.py", "tests/statistical/test_bounds.py"),
    ),
    Fault(
        "fdp_bounds: p-values at the cut are not selected",
        "kernels/fdp_bounds.py",
        'jnp.searchsorted(ordered, cuts, side="right")',
        'jnp.searchsorted(ordered, cuts, side="left")',
        _law("fdp_bounds.dkw/interpolate=True"),
    ),
)

ORDER_TESTS = (
    Fault(
        "permutation: > for >=",
        "kernels/permutation.py",
        "real & (permuted >= observed - slack)",
        "real & (permuted > observed - slack)",
        (*_law("permutation.p_value", "permutation.complete_p_value"), "tests/kernels/test_permutation.py"),
    ),
    Fault(
        "randomization: every chunk draws with one key",
        "kernels/randomization.py",
        "jax.random.fold_in(key, i)",
        "key",
        ("tests/kernels/test_permutation.py",),
    ),
    Fault(
        "rank_sum: ties count for the canonical order",
        "kernels/rank_sum.py",
        "canonical[:, None] - shuffled > slack, axis=1",
        "canonical[:, None] - shuffled >= -slack, axis=1",
        ("tests/kernels/test_rank_sum.py", *_law("rank_sum.shard_ranks")),
    ),
    Fault(
        "student: ddof = 0",
        "kernels/student.py",
        "jnp.sqrt(sum_of_squares / jnp.maximum(size - 1, 1))",
        "jnp.sqrt(sum_of_squares / size)",
        _law("student.one_sample"),
    ),
    Fault(
        "sequential: the p-value moves on after the stop",
        "kernels/sequential.py",
        "jnp.where(stopped, last, 1 + counted.total_draws)",
        "jnp.where(stopped, counted.total_draws, 1 + counted.total_draws)",
        _law("sequential.besag_clifford"),
    ),
    Fault(
        "betting: weights of the e-values sum to more than 1",
        "kernels/betting.py",
        "jnp.maximum(by_shards + math.log1p(-_SUM_WEIGHT),",
        "jnp.maximum(by_shards,",
        _law("betting.e_process"),
    ),
    Fault(
        "martingale: the score itself is not among its ties",
        "kernels/martingale.py",
        "(lower + u * (1 + equal))",
        "(lower + u * jnp.maximum(equal, 1))",
        _law("martingale.control_p_value/uniform", "martingale.control_p_value/conservative"),
    ),
    Fault(
        "martingale: NaN enters the account",
        "kernels/martingale.py",
        "account = jnp.where(real, account, state.account)",
        "account = jnp.where(mask, account, state.account)",
        ("tests/methods/test_martingale.py", "tests/kernels/test_martingale.py"),
    ),
    Fault(
        "trajectories: ties with the truth are not counted",
        "kernels/trajectories.py",
        "jnp.sum(statistics >= statistics[0], dtype=jnp.int32)",
        "1 + jnp.sum(statistics > statistics[0], dtype=jnp.int32)",
        ("tests/kernels/test_trajectories.py", "tests/methods/test_anytime.py"),
    ),
    Fault(
        "token_stats: logits are clipped instead of capped",
        "kernels/token_stats.py",
        "soft_cap * jnp.tanh(logits / soft_cap)",
        "jnp.clip(logits, -soft_cap, soft_cap)",
        ("tests/kernels/test_token_stats.py", *_law("token_stats.token_stats")),
    ),
    Fault(
        "grad_norm: squared before the sum over positions",
        "kernels/grad_norm.py",
        "each.sum(0).astype(factor.dtype), _sqnorm(each)",
        "each.sum(0).astype(factor.dtype), _sqnorm((inputs * cotangent).astype(jnp.float32))",
        (*_law("grad_norm.scale"), "tests/kernels/test_grad_norm.py"),
    ),
    Fault(
        "shingle: an equal hash is an equal n-gram",
        "kernels/shingle.py",
        "same &= stored[start + k] == tokens[:, k : k + count]",
        "same &= jnp.asarray(table.hashes)[entry] == hashes",
        ("tests/probe/test_stream.py",),
    ),
)

METHODS = (
    Fault(
        "ptdi: eta is ignored",
        "tdd/methods/ptdi.py",
        "n, max_rank=max_rank, eta=eta)",
        "n, max_rank=max_rank)",
        ("tests/methods/test_ptdi.py",),
    ),
    Fault(
        "ptdi: members and calibration change places",
        "tdd/methods/ptdi.py",
        "_standardised(members, calibration, scores)",
        "_standardised(calibration, members, scores)",
        ("tests/methods/test_ptdi.py",),
    ),
    Fault(
        "td4eval: e-values at the whole level",
        "tdd/methods/td4eval.py",
        '_half(alpha) if combine in ("e_values", "closed_e_values") else None',
        'level_operand(alpha) if combine in ("e_values", "closed_e_values") else None',
        ("tests/methods/test_td4eval.py",),
    ),
    Fault(
        "td4eval: the items that give the weights calibrate too",
        "tdd/methods/td4eval.py",
        "first, second = own_real & split, own_real & ~split",
        "first, second = own_real & split, own_real",
        ("tests/methods/test_td4eval.py",),
    ),
    Fault(
        "ktd: a win of several goes with one loss",
        "tdd/methods/ktd.py",
        "losses = k if several else 1",
        "losses = 1",
        ("tests/methods/test_ktd.py",),
    ),
    Fault(
        "jecs: the smallest p-value of the models",
        "tdd/methods/jecs.py",
        "jnp.max(ranked.rank, axis=0)",
        "jnp.min(ranked.rank, axis=0)",
        ("tests/methods/test_jecs.py",),
    ),
    Fault(
        "exchangeability: two tests, no Bonferroni in the logarithm",
        "tdd/methods/exchangeability.py",
        "jnp.minimum(by_ranks.log_p_value, drawn.log_p_value) + math.log(2), 0)\n        p =",
        "jnp.minimum(by_ranks.log_p_value, drawn.log_p_value), 0)\n        p =",
        ("tests/methods/test_exchangeability.py",),
    ),
    Fault(
        "sequential: every look draws with one key",
        "tdd/methods/sequential.py",
        "None if key is None else jax.random.fold_in(key, look)",
        "None if key is None else key",
        ("tests/methods/test_sequential.py",),
    ),
    Fault(
        "bounds: a cut reads the next rank's bound",
        "tdd/methods/bounds.py",
        "slot = jnp.asarray(rank, jnp.int32) - 1",
        "slot = jnp.asarray(rank, jnp.int32)",
        ("tests/methods/test_bounds.py",),
    ),
    Fault(
        "clusters: the harmonic factor is missing from the resolution",
        "tdd/methods/clusters.py",
        "scale=((step.num_tests, harmonic), (used + 1,))",
        "scale=((step.num_tests,), (used + 1,))",
        ("tests/methods/test_shift.py",),
    ),
    Fault(
        "clusters: calibration and candidates are drawn with one key",
        "tdd/methods/clusters.py",
        "jax.random.split(key), counts",
        "(key, key), counts",
        ("tests/methods/test_shift.py",),
    ),
    Fault(
        "weighted: left-out items have an effective size",
        "tdd/methods/weighted.py",
        "weighted.effective_sample_size(calibration_weights, mask=real)",
        "weighted.effective_sample_size(calibration_weights, mask=calibration_mask)",
        ("tests/methods/test_shift.py",),
    ),
    Fault(
        "conditional: k is ignored",
        "tdd/methods/conditional.py",
        "conditional.simes_bounds(n, delta, max_rank=max_rank, k=k)",
        "conditional.simes_bounds(n, delta, max_rank=max_rank)",
        ("tests/methods/test_shift.py",),
    ),
    Fault(
        "anytime: the horizon is ignored",
        "tdd/methods/anytime.py",
        "trajectories.spending(number, horizon)",
        "trajectories.spending(number)",
        ("tests/methods/test_anytime.py",),
    ),
)

EXCHANGE = (
    Fault(
        "orders: all shards are shuffled alike",
        "tdd/exchange/orders.py",
        "int(self.data.sha256[:16], 16), shard, number]",
        "int(self.data.sha256[:16], 16), number]",
        ("tests/exchange/test_orders.py",),
    ),
    Fault(
        "orders: the share that is permuted is rounded down",
        "tdd/exchange/orders.py",
        "math.ceil(self.suffix * self.size(shard) - 1e-9)",
        "math.floor(self.suffix * self.size(shard) + 1e-9)",
        ("tests/exchange/test_orders.py",),
    ),
    Fault(
        "rows: the first target forgets the beginning-of-sequence token",
        "tdd/exchange/rows.py",
        "Row(tokens, target - window.start + len(bos))",
        "Row(tokens, max(target - window.start, 1))",
        ("tests/exchange/test_rows.py", "tests/exchange/test_run.py"),
    ),
    Fault(
        "data: the hash forgets the order of the examples",
        "tdd/exchange/data.py",
        'hash_texts([""] * len(examples), examples)',
        'hash_texts([""] * len(examples), sorted(examples))',
        ("tests/exchange/test_data.py",),
    ),
    Fault(
        "run: several data sets, each stopped at the whole level",
        "tdd/exchange/run.py",
        "target = alpha / len(sets) if target_p is None else target_p",
        "target = alpha if target_p is None else target_p",
        ("tests/exchange/test_run.py", "tests/cli/test_cli_exchange.py"),
    ),
    Fault(
        "structure: two sides, one charged",
        "tdd/exchange/structure.py",
        "np.minimum(1, 2 * (1 + fewer) / (1 + drawn.shape[-1]))",
        "np.minimum(1, (1 + 2 * fewer) / (1 + drawn.shape[-1]))",
        ("tests/exchange/test_structure.py",),
    ),
    Fault(
        "sequence: Besag and Clifford's rule stops on a small p-value",
        "tdd/exchange/sequence.py",
        'if p <= self.target and self.rule != "besag_clifford":',
        "if p <= self.target:",
        ("tests/exchange/test_run.py", "tests/exchange"),
    ),
    Fault(
        "passes: sums of another layout are taken from the store",
        "tdd/exchange/passes.py",
        "where, token_budget=layout.budget, shares=parts",
        "where, shares=parts",
        ("tests/exchange/test_run.py", "tests/exchange"),
    ),
)

PROBE = (
    Fault(
        "order: the moment of the alarm moves on",
        "tdd/probe/order.py",
        "(crossed < 0) & (now.anytime_p_value <= self.alpha)",
        "now.anytime_p_value <= self.alpha",
        ("tests/probe/test_order.py",),
    ),
    Fault(
        "order: one uniform for the whole stream",
        "tdd/probe/order.py",
        "jax.random.fold_in(state.key, count)",
        "state.key",
        ("tests/probe/test_order.py",),
    ),
    Fault(
        "stream: a copy that was seen in part is none",
        "tdd/probe/stream.py",
        "-(-counts // times)",
        "counts // times",
        ("tests/probe/test_stream.py",),
    ),
    Fault(
        "stream: the last step is not restored",
        "tdd/probe/stream.py",
        'self._last_step = saved["last_step"]',
        "self._last_step = None",
        ("tests/probe/test_stream.py",),
    ),
    Fault(
        "probe: the look at step 0 is not promised",
        "tdd/probe/probe.py",
        "None if steps is None else (steps - 1) // self.every + 1",
        "None if steps is None else max(1, (steps - 1) // self.every)",
        ("tests/probe/test_loop.py",),
    ),
    Fault(
        "probe: the state of another probe is taken",
        "tdd/probe/probe.py",
        'checks.check_same_probe("the state", held["fingerprint"].tobytes().decode(), self.fingerprint)',
        'held.pop("fingerprint")',
        ("tests/probe/test_probe_folder.py",),
    ),
    Fault(
        "evidence: the baseline is the look before",
        "tdd/probe/evidence.py",
        "known = jnp.isfinite(state.baseline) | ~jnp.isfinite(scores)",
        "known = ~jnp.isfinite(scores)",
        ("tests/probe/test_loop.py", "tests/probe/test_contamination.py"),
    ),
    Fault(
        "program: ties and missing references count for a canary",
        "tdd/probe/program.py",
        "~(references[None, :] > scores[:, None]) | ~jnp.isfinite(references)[None, :]",
        "references[None, :] < scores[:, None]",
        ("tests/probe/test_evaluate.py",),
    ),
    Fault(
        "gradients: infinite norms enter the quantiles",
        "tdd/probe/gradients.py",
        "jnp.where(jnp.isfinite(norms), norms, jnp.nan)",
        "norms",
        ("tests/probe/test_gradients.py",),
    ),
    Fault(
        "benchmark_order: centred over shards instead of orders",
        "tdd/probe/benchmark_order.py",
        "scores - jnp.mean(scores, axis=1, keepdims=True)",
        "scores - jnp.mean(scores, axis=0, keepdims=True)",
        ("tests/probe/test_contamination.py", "tests/probe"),
    ),
)

STORE = (
    Fault(
        "address: a row's key forgets its first target",
        "tdd/audit/store/address.py",
        'digest.update(first_target.to_bytes(8, "little"))',
        "pass",
        ("tests/scoring/test_score_store.py",),
    ),
    Fault(
        "address: scores of another matmul precision are taken",
        "tdd/audit/store/address.py",
        '"matmul_precision": str(config.jax_default_matmul_precision),',
        '"matmul_precision": "None",',
        ("tests/scoring/test_score_resume.py",),
    ),
    Fault(
        "finished: a shard's digest is not checked",
        "tdd/audit/store/finished.py",
        'return data if digest(path.parent, data) == path.stem.rpartition("-")[2] else None',
        "return data",
        ("tests/scoring/test_score_store_damage.py",),
    ),
    Fault(
        "manifest: a line's check is not looked at",
        "tdd/audit/store/manifest.py",
        "return entry if zlib.crc32(json.dumps(entry, sort_keys=True).encode()) == check else None",
        "return entry if isinstance(check, int) else None",
        ("tests/scoring/test_score_store_damage.py", "tests/scoring/test_score_store.py"),
    ),
    Fault(
        "plans: who comes second follows its own plan",
        "tdd/audit/store/plans.py",
        "return planned if found is None else found",
        "return planned",
        ("tests/scoring/test_score_store.py",),
    ),
    Fault(
        "space: one field of a row is all of it",
        "tdd/audit/store/space.py",
        "return all(self._place(key, field) is not None for field in fields)",
        "return any(self._place(key, field) is not None for field in fields)",
        ("tests/scoring/test_score_store.py",),
    ),
    Fault(
        "files: a line of the manifest is not synced",
        "tdd/audit/store/files.py",
        "                os.fsync(descriptor)\n            except OSError:",
        "            except OSError:",
        ("tests/scoring/test_score_store_damage.py",),
    ),
)

SHARDS = (
    Fault(
        "shards: the last shard owns nothing",
        "tdd/shards.py",
        "return number % self.count == self.index",
        "return number % (self.count + 1) == self.index",
        ("tests/shards",),
    ),
    Fault(
        "shards: what another run noted is not compared",
        "tdd/shards.py",
        'if found["facts"] != self.facts:',
        'if found["facts"].keys() != self.facts.keys():',
        ("tests/shards",),
    ),
    Fault(
        "shards: one that began counts as finished",
        "tdd/shards.py",
        'if shard.count == count and entry["finished"]}',
        "if shard.count == count}",
        ("tests/shards",),
    ),
    Fault(
        "score: a shard takes what others have begun with",
        "tdd/audit/score_plan.py",
        "return [(number, batch) for number, batch in enumerate(self.batches) if shard.owns(number)]",
        "return [(number, batch) for number, batch in enumerate(self.batches) if number >= shard.index]",
        ("tests/shards/test_score_shards.py",),
    ),
    Fault(
        "score: what the plan depends on is left out of the facts",
        "tdd/audit/score.py",
        "facts |= plan.facts",
        'facts |= {"tokens": plan.facts.get("tokens")}',
        ("tests/shards/test_score_shards.py",),
    ),
    Fault(
        "exchange: a shard computes everything",
        "tdd/exchange/scorer.py",
        "for number, batch in numbered if self.shard.owns(number)]",
        "for number, batch in numbered]",
        ("tests/shards/test_exchange_shards.py",),
    ),
)

AUDIT = (
    Fault(
        "decide: what is to be found changes with the null",
        "tdd/audit/decide.py",
        'findable = member if null == "nonmember" else tested & ~member',
        'findable = member if null == "member" else tested & ~member',
        ("tests/audit/test_run.py", "tests/audit/test_procedures.py"),
    ),
    Fault(
        "decide: the cut is the most extreme score selected",
        "tdd/audit/decide.py",
        'chosen.max() if null == "nonmember" else chosen.min()',
        'chosen.min() if null == "nonmember" else chosen.max()',
        ("tests/audit/test_run.py", "tests/audit/test_procedures.py"),
    ),
    Fault(
        "select: wrong default of eta",
        "tdd/audit/procedures.py",
        '"proportion": "storey", "eta": 0.05, "unit"',
        '"proportion": "storey", "eta": 0.5, "unit"',
        ("tests/audit/test_run.py", "tests/audit/test_procedures.py"),
    ),
    Fault(
        "run: a folder of another seed is continued",
        "tdd/audit/run.py",
        '"inputs": hashes, "seed": seed, **run_options}',
        '"inputs": hashes, **run_options}',
        ("tests/audit/test_run.py",),
    ),
    Fault(
        "duplicates: pairs collide where roles differ in size",
        "tdd/audit/duplicates.py",
        "np.unique(a * max(1, len(right)) + b, return_index=True)",
        "np.unique(a * max(1, len(left)) + b, return_index=True)",
        ("tests/audit/test_honesty_duplicates.py",),
    ),
    Fault(
        "blind_baseline: the observed labelling is not one of the draws",
        "tdd/audit/blind_baseline.py",
        "significant = (1 + num_above) * _LEVEL_INVERSE",
        "significant = num_above * _LEVEL_INVERSE",
        ("tests/audit/test_honesty_baseline.py",),
    ),
    Fault(
        "certificates: ranks are cut off instead of rounded",
        "tdd/audit/certificates.py",
        "np.rint(np.nan_to_num(decision.p_values, nan=1.0) * (n + 1))",
        "np.floor(np.nan_to_num(decision.p_values, nan=1.0) * (n + 1))",
        ("tests/audit/test_procedures.py", "tests/audit/test_run_methods.py"),
    ),
    Fault(
        "score_table: a missing score is written as nan",
        "tdd/audit/score_table.py",
        'writer.writerow(["" if isinstance(x, float) and math.isnan(x) else x for x in row])',
        "writer.writerow(row)",
        ("tests/scoring/test_score_driver.py", "tests/scoring", "tests/cli/test_cli.py"),
    ),
)

MODELS = (
    Fault(
        "lowercase: no floor under the ratio",
        "tdd/scoring/scores/lowercase.py",
        "/ xp.maximum(evidence.lowercase_loss, _FLOOR)",
        "/ evidence.lowercase_loss",
        ("tests/scoring/test_scores.py",),
    ),
    Fault(
        "reference: the tokens of the wrong tokenizer",
        "tdd/scoring/scores/reference.py",
        "evidence.reference_loss * evidence.reference_tokens_per_byte",
        "evidence.reference_loss * evidence.tokens_per_byte",
        ("tests/scoring/test_scores.py",),
    ),
    Fault(
        "max_renyi: wrong default of gamma",
        "tdd/scoring/scores/max_renyi.py",
        'defaults={"gamma": "0.5", "k": "0.2"}',
        'defaults={"gamma": "2", "k": "0.2"}',
        ("tests/scoring/test_scores.py",),
    ),
    Fault(
        "tokenise: a window's first target has no context",
        "tdd/scoring/tokenise.py",
        "stop = min(first_target - 1 + longest, num_tokens)",
        "stop = min(first_target + longest, num_tokens)",
        ("tests/scoring/test_tokenise.py",),
    ),
    Fault(
        "tokenise: a closing token passes for a beginning one",
        "tdd/scoring/tokenise.py",
        "len(special) > len(plain) and special[: len(plain)] != plain",
        "len(special) > len(plain)",
        ("tests/scoring/test_tokenise.py",),
    ),
    Fault(
        "attention: a window of one token more",
        "tdd/models/attention.py",
        "(behind >= 0) & (behind < window)",
        "(behind >= 0) & (behind <= window)",
        ("tests/models/test_families_golden.py", "tests/models/test_decoder.py"),
    ),
    Fault(
        "rotary: YaRN's ramp ends one pair early",
        "tdd/models/rotary.py",
        "first, last = math.floor(first), math.ceil(last)",
        "first, last = math.floor(first), math.floor(last)",
        ("tests/models/test_rotary.py",),
    ),
    Fault(
        "gpt_neo: attention is scaled",
        "tdd/models/families/gpt_neo.py",
        "(1.0,) * num_layers",
        "((width // num_heads) ** -0.5,) * num_layers",
        ("tests/models/test_families_golden.py", "tests/models/test_families_configs.py"),
    ),
    Fault(
        "weights: a file may be one tensor too large",
        "tdd/models/weights.py",
        "if shard and size + tensor.nbytes > max_shard_bytes:",
        "if shard and size > max_shard_bytes:",
        ("tests/models/test_checkpoint_save.py",),
    ),
)

STUDIES = (
    Fault(
        "parts: shards that overlap are counted twice",
        "tdd/study/parts.py",
        "if not overlap((*beside, *whole.ranges), part.ranges):",
        "if part.ranges != whole.ranges:",
        ("tests/study/test_shards.py",),
    ),
    Fault(
        "results: standard errors with ddof = 0",
        "tdd/study/results.py",
        "count * count * (count - 1)",
        "count * count * count",
        ("tests/study/test_results.py",),
    ),
    Fault(
        "blocks: the repetition after the last is counted",
        "tdd/study/blocks.py",
        "one_block(operands, index, index < last, totals)",
        "one_block(operands, index, index <= last, totals)",
        ("tests/study/test_runner.py", "tests/study/test_pool.py"),
    ),
    Fault(
        "store: a copy of a shard that is behind takes back what the other has saved",
        "tdd/study/store.py",
        "there.repetitions > part.repetitions:",
        "there.repetitions < 0:",
        ("tests/study/test_shards.py",),
    ),
    Fault(
        "joint_labels: calibration and candidates share a key",
        "tdd/study/joint_labels.py",
        "jax.random.normal(scores, (num_models, num_tests))",
        "jax.random.normal(calibration, (num_models, num_tests))",
        ("tests/study/test_compositions.py", "tests/study/test_designs.py"),
    ),
    Fault(
        "monte_carlo: the radius of another theorem",
        "tdd/study/monte_carlo.py",
        "math.log(2 / level)",
        "math.log(1 / level)",
        ("tests/study/test_validity.py",),
    ),
    Fault(
        "evalues: a unit counts its own items among the others",
        "kernels/evalues.py",
        "counted, others = known + mine, found - mine",
        "counted, others = known + mine, found",
        ("tests/kernels/test_evalues.py",),
    ),
    Fault(
        "evalues: a unit's own items are no false discoveries",
        "kernels/evalues.py",
        "counted, others = known + mine, found - mine",
        "counted, others = known, found - mine",
        ("tests/kernels/test_evalues.py",),
    ),
    Fault(
        "evalues: closed e-BH asks the largest others",
        "kernels/evalues.py",
        "ascending[jnp.minimum(b, size - 1)] < mean(b)",
        "ascending[jnp.minimum(b, size - 1)] > mean(b)",
        _law("evalues.closed_e_bh/alpha=0.4"),
    ),
    Fault(
        "evalues: items below all calibration scores have no e-value where BH finds nothing",
        "kernels/evalues.py",
        "ranked.valid & (ranked.rank == 1)",
        "ranked.valid & (ranked.rank == 0)",
        _law("evalues.conformal_e_values/nonmember,alpha=0.1"),
    ),
    Fault(
        "probe: every look's e-values have all of the level",
        "tdd/probe/evidence.py",
        "state.item_e_values + share * self.item_e_values(result)",
        "state.item_e_values + self.item_e_values(result)",
        ("tests/probe/test_contamination.py", "tests/statistical/test_guards.py"),
    ),
    Fault(
        "probe: a look that comes late is on schedule",
        "tdd/probe/probe.py",
        "number - self.history[-1].step == self.every",
        "number - self.history[-1].step >= self.every",
        ("tests/probe",),
    ),
    Fault(
        "verdict: a failed baseline is let through",
        "tdd/audit/verdict.py",
        "baseline.p_value <= level",
        "baseline.p_value < level",
        ("tests/audit/test_verdict.py",),
    ),
    Fault(
        "exchange: data sets in doubt raise the level of the others",
        "tdd/exchange/run.py",
        "~np.isnan(p_values) & ~np.array([in_doubt(one) for one in findings], bool)",
        "~np.isnan(p_values)",
        ("tests/exchange/test_run.py",),
    ),
    Fault(
        "evalues: the level has a tolerance that e-BH has not",
        "kernels/evalues.py",
        "passes = closes & (counted <= allowed[others + 1])",
        "passes = closes & (counted <= allowed[others + 1] + 1)",
        ("tests/methods/test_best_score.py",),
    ),
    Fault(
        "cluster sizes: items are decided on though sizes differ",
        "tdd/audit/cluster_sizes.py",
        'p_value = p_differ if unit == "item" else max(p_related, p_differ)',
        "p_value = max(p_related, p_differ)",
        ("tests/audit/test_cluster_sizes.py",),
    ),
    Fault(
        "verdict: the share of either role may be small",
        "tdd/audit/verdict.py",
        "max(shares) > SHARE",
        "min(shares) > SHARE",
        ("tests/audit/test_verdict.py",),
    ),
    Fault(
        "overlap: templates count",
        "tdd/audit/overlap.py",
        "_COMMON, _COMMON_SHARE = 2, 0.05",
        "_COMMON, _COMMON_SHARE = 2_000, 0.05",
        ("tests/audit/test_verdict.py",),
    ),
    Fault(
        "tables: a role in other letters is a candidate",
        "tdd/validate/tables.py",
        "if meant != word:",
        "if False:",
        ("tests/texts/test_score_tables.py",),
    ),
    Fault(
        "store: any name in a manifest is a shard",
        "tdd/audit/store/space.py",
        "if not isinstance(name, str) or not _SHARD.fullmatch(name):",
        "if not isinstance(name, str):",
        ("tests/scoring/test_score_store_damage.py",),
    ),
    Fault(
        "run folder: a table that was changed is read",
        "tdd/audit/run_folder.py",
        'run["files"].get(name) != hashlib.sha256(data).hexdigest()',
        'run["files"].get(name) == hashlib.sha256(data).hexdigest()',
        ("tests/audit/test_verdict.py",),
    ),
    Fault(
        "cli: a dropped interrupt is forgotten",
        "tdd/cli/__init__.py",
        "signal.setitimer(signal.ITIMER_REAL, 0.1)",
        "signal.setitimer(signal.ITIMER_REAL, 0)",
        ("tests/cli/test_cli.py",),
    ),
)

WORDS = (
    Fault(
        "terminal: an identifier is read as markup",
        "tdd/report/terminal.py",
        'plain_text(str(items["id"][i]))',
        'str(items["id"][i])',
        ("tests/cli/test_cli.py",),
    ),
    Fault(
        "tables: a bar in a cell ends it",
        "tdd/report/tables.py",
        'cell.replace("|", "\\\\|")',
        "cell",
        ("tests/report", "tests/packaging/test_readme.py"),
    ),
    Fault(
        "exchange_tables: the name of a data set is read as markup",
        "tdd/report/exchange_tables.py",
        'plain_text(one["name"]),',
        'one["name"],',
        ("tests/report/test_exchange_report.py",),
    ),
    Fault(
        "cli: knockoff columns keep their sign",
        "tdd/cli/audit.py",
        "tuple(dict.fromkeys((*scores, *knockoffs)))",
        "tuple(dict.fromkeys(scores))",
        ("tests/cli/test_cli.py", "tests/audit/test_procedures.py"),
    ),
    Fault(
        "score table: the hash forgets the roles",
        "tdd/tables.py",
        "(table.ids, table.roles.tolist(), table.groups, tuple(table.scores))",
        "(table.ids, table.groups, tuple(table.scores))",
        ("tests/texts/test_score_tables.py",),
    ),
    Fault(
        "files: a byte-order mark is a part of the first field",
        "tdd/texts/files.py",
        'return data.decode("utf-8").removeprefix("\\ufeff")',
        'return data.decode("utf-8")',
        ("tests/texts/test_load_texts.py",),
    ),
    Fault(
        "openai: generated tokens are scored",
        "tdd/logprobs/openai.py",
        "kept = len(values) - count",
        "kept = len(values)",
        ("tests/logprobs/test_readers.py",),
    ),
    Fault(
        "responses: choices are numbered as they come",
        "tdd/logprobs/responses.py",
        'index = value.get("index", position)',
        "index = position",
        ("tests/logprobs/test_readers.py",),
    ),
    Fault(
        "validate: a text of spaces is a text",
        "tdd/validate/texts.py",
        "if not value or value.isspace():",
        "if not value:",
        ("tests/texts/test_load_texts.py",),
    ),
)

FAULTS = (
    *CONFORMAL,
    *STEP_UP,
    *KNOCKOFFS_AND_MERGES,
    *ORDER_TESTS,
    *METHODS,
    *EXCHANGE,
    *PROBE,
    *STORE,
    *SHARDS,
    *AUDIT,
    *MODELS,
    *STUDIES,
    *WORDS,
)
