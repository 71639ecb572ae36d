"""What backs each sentence that can be printed (`printed_sentences`), and each row of the table of guarantees.

A backing is "claim NAME" of `tdd study validity`, "test FILE::NAME" below tests/, or "row": the sentence repeats the
guarantee of the procedure that it names. All other sentences state counts, facts or limits and have no error rate.
"""

FACTS = """
report/audit.py: _SUBJECTS 1, _LEVELS 2, _NULLS 2, audit_report 1, _title 2, _demonstration 1, _decided 7, _terms 1,
  _of_the_list 1, _origin 3, _pictures 6, _rankings 2, _checks 1, _reach 2, _FINDINGS 9, _count 1, _examples 1,
  _how_to_read 11, _COMPARED 2, _BY_KNOCKOFFS 1, _CANDIDATES 1, _GLOSSARY 4, _ADJUSTED 2, _FDR 2, _GCR 1, _proportion
  1, _OF_MODELS 1, _BY_THRESHOLD 1, _RULES 18, _OF_UNITS 1, _ESTIMATES 5, _scores 1
report/audit_plots.py: bounds 1, scores 1, p_values 1
report/exchange.py: _BOS 1, _STOPPED 2, _TERMS 5, exchange_report 3, log_probs_report 9, _facts 4, _setting_rows 1,
  _rule 1, _masked 1, _shuffles 1, _calls 1, _copies 1, _overview 3, _test_table 2, _shard_table 1,
  _decision 1, _TESTS 5, _how_to_read 8, _JOINT 1
report/exchange_plots.py: draw 3, draw_shards 3, _overview 2, _shard_legend 2, _looks 1
report/lab.py: lab_report 1, next_command 4
report/owner.py: _NULLS 2, _TERMS 4, owner_report 2, _facts 8, _drawn 3, _how_to_read 4, _check 2, _TITLES 2,
  _COMPARED 2, _OF_SETS 2
report/paraphrase.py: next_command 1, paraphrase_report 2, _facts 2, _GUIDE 3
report/power.py: _CRITERIA 1, _INTERVAL 1, power_plan_report 2, exchange_plan_report 3, _found 3, _smallest 1,
  _cheapest 3, _caption 1, _expected_first 1, _GUIDE 3, _TERMS 6, _TERMS_OF_ORDER 6
report/probe.py: probe_report 5, _facts 5, _schedule 2, _last_look 4, _looks 5, _flagged 1, _TERMS 3, _LEVEL 1,
  _FDR 1, _GUARANTEED 1, _EXPOSURE 1, _how_to_read 7
report/probe_plots.py: _legend 1, draw 3
report/sections.py: caveats 1, Table 1, to_repeat 2, _SYMBOLS 6
report/study.py: _VERDICTS 1, study_report 2, list_report 1, time_line 1, _verdict 8, _GUIDE 3, _TERMS 6
report/tables.py: validity_report 1, _report 1
audit/assemble.py: assemble 1, failures 1, warnings_of 6, _outcome 2, _of_set 1, _of_items 4, _open_points
  16
audit/blind_baseline.py: blind_baseline 1, _note 1, _long_texts 1
audit/checks.py: resolution 8, repeated_value 1, effective_calibration_size 5, knockoff_texts 3, cut_texts 1, _some_of
  1
audit/decide.py: simultaneous_bounds 1
audit/duplicates.py: _warning 7
audit/excerpts.py: _of_clusters 1
audit/flagged.py: _ALIKE 1, _APART 1, _ASSERTED 1
audit/image_checks.py: _of_file 1, image_marks 1, view 1
audit/logprobs.py: _WHOLE_VOCABULARY 1, _check_sufficient 1, _missing 11
audit/overlap.py: _warning 1
audit/owner.py: _outcome 4, Start 1, _open_beside 1, nothing_can_be_found 1, few_for_t 1
audit/owner_dataset.py: _DATASET 5, _dataset_warnings 3, _copies 1
audit/owner_versions.py: _VERSIONS 4, _version_warnings 2, _FEATURES 1, _told_apart 1
audit/paraphrase.py: SERVICE_PROMPT 1, _EXCHANGEABLE 1, _NEAR 1, paraphrase 2, _record 5
audit/pictures.py: ImageItems 1
audit/preparation.py: preparation 1, _warning 1, _counts 1, _FIRST 1, _LAST 2, _CATEGORIES 7, _CHARACTERS 2, _PATTERNS
  4, _first_class 1, _last_class 2, _PHRASES 2, _OF_LENGTH 2, _COPIES 1
audit/samples.py: SampleItems 1
exchange/data.py: Shards 2
exchange/run.py: run_exchange 1
exchange/structure.py: sortedness 1
exchange/summary.py: _SEEN 4, _FIELD 1, outcome 5, run_warnings 4, open_points 9, _outcome_of_one 5, _of_copies 2,
  _of_test 3, _of_reach 5, _of_tokens 1, _of_control 1
probe/benchmark.py: Leak 1
probe/folder.py: _ALWAYS 2, read_state 1, _outcome 10, _open_points 5, _OF_ORDER 2
probe/gradients.py: _check_example_loss 1
probe/inputs.py: _read_role 1, _check_distinct 5
probe/probe.py: Probe 3
probe/program.py: _check_logits 1
probe/shards.py: _bounds 1
procedures/bounds.py: _check_ranks 1
procedures/calls.py: checked_scores 1, ordered_panels 1
procedures/conditional.py: ConditionalBH 2
procedures/exchangeability.py: as_shards 1, _check_axes 2
procedures/jecs.py: JECS 3
procedures/knockoff_symmetry.py: knockoff_symmetry 1
procedures/ktd.py: ktd 2, KTD 1
procedures/martingale.py: _log_p 1, _check_uniforms 1
procedures/online.py: _check_step 2
procedures/procedure.py: Procedure 1
procedures/several_scores.py: BestScore 1, weights_of_detectors 1, CombinedScore 1
procedures/td4eval.py: _check_split 2, TD4Eval 2
procedures/values.py: PTDI 4
procedures/weighted.py: _as_item_weights 1, Weighted 1
"""
"""File: function or constant, and how many of its sentences state facts."""

BACKED = """
claim storey/plus-one
  report/audit.py:_of_the_list | If the assumptions hold,
  report/audit.py:_selected | The last column is
  report/audit.py:_demonstration | Each row is one score
  audit/assemble.py:warnings_of | some selected candidates have p-values
test statistical/test_bounds.py::test_bounds_hold_for_all_cuts_together
  report/audit.py:_pictures | Upper bound on the false discovery
  report/audit.py:_bounds | Bounds that hold for
  report/audit.py:_bounds | , and at least {} of
  report/audit.py:_bounds | If the assumptions hold, then
  report/audit_plots.py:bounds | upper bound of the
  audit/assemble.py:_of_set | If the assumptions hold, at least
test statistical/test_knockoffs.py::test_symmetry_is_rarely_refuted_where_it_holds
  report/audit.py:_FINDINGS | p = {p_value:.3g} on {num_items} known
  audit/assemble.py:failures | the model tells known
  audit/checks.py:symmetry | {} (symmetry test,
  audit/checks.py:symmetry | the averaged statistic
  audit/checks.py:symmetry | the scores of known
test audit/test_sharing.py::test_level_where_texts_quote_and_repeat
  report/audit.py:_FINDINGS | {num_shared}, against about
  audit/assemble.py:failures | {} of {} calibration items
test audit/test_direction.py::test_chance_and_members_are_seldom_named
  report/audit.py:_FINDINGS | {share:.0%} of pairs on the other side
  audit/checks.py:direction | by {} candidates look
test audit/test_copied_scores.py::test_sound_data_are_not_named
  report/audit.py:_FINDINGS | {count} of {total} {role} repeat
  audit/checks.py:copied_scores | {} of {} {} have one of
test audit/test_preparation.py::test_all_marks_have_the_level_together
  report/audit.py:_FINDINGS | marks of whole items compared
  audit/preparation.py:_UNLIKE | {} and {} were not
test audit/test_cluster_sizes.py::test_level_where_clusters_are_exchangeable
  report/audit.py:_FINDINGS | {mean_calibration:.3g}
  audit/checks.py:cluster_sizes | clusters of calibration items hold
test audit/test_blind_baseline.py::test_false_alarms_are_rare
  report/audit.py:_FINDINGS | AUC {auc:.3f}
  audit/assemble.py:_RULE | A verdict is withheld
  audit/assemble.py:failures | calibration items and candidates can
  audit/blind_baseline.py:_warning | {} and {} differ
  audit/blind_baseline.py:_OF_AN_AUDIT | . If the candidates
  audit/owner_dataset.py:_DATASET | suspect and held-out texts can
  audit/owner_dataset.py:_DATASET | A verdict is withheld
claim order/combined-skewed-10
  report/exchange.py:log_probs_report | Evidence at level {}
  report/exchange_plots.py:draw | Test of published order:
test exchange/test_structure.py::test_p_values_are_super_uniform_on_exchangeable_data
  report/exchange.py:_structure | {} ({}; one by one
  report/exchange.py:_structure | p = {}, {} the level
  report/exchange.py:_how_to_read | A verdict is withheld
claim order/bets
  report/exchange_plots.py:draw | The p-values hold at every
test statistical/test_error_control.py::test_independent_p_values
  report/exchange_plots.py:_overview | {} rejected by Benjamini
  exchange/summary.py:outcome | Evidence at level {}
  report/exchange.py:_OF_SEVERAL | the smallest level at which
claim probe/flagged-at-the-alarm
  report/probe.py:_flagged | {}If the assumptions hold, the false
  probe/folder.py:_outcome |  If the assumptions {}, the false
test statistical/test_anytime.py::test_no_level_is_crossed_too_often_at_any_look
  report/probe_plots.py:draw | {} looks. The anytime
  report/probe.py:_TERMS | the probability of scores
  report/probe.py:_TERMS | a number whose mean
  probe/folder.py:_outcome | Evidence at level {} that {}: alarm
claim clusters/cluster
  report/audit.py:_of_the_list |  A cluster is false if
claim clusters/ignored
  audit/assemble.py:warnings_of | the {} items come from
row
  audit/assemble.py:_of_items | {} What is known
  audit/assemble.py:_of_items | {} If the assumptions hold, the {}, which is the expected fraction of {} over
  audit/owner.py:_outcome | Evidence at level {} that
  exchange/summary.py:_outcome_of_one | Evidence at level {}
  exchange/summary.py:_of_control | the negative control depends
claim one-sample/monte_carlo
  report/audit.py:_of_the_list | for a given calibration sample,
  audit/assemble.py:_of_items | {} If the assumptions hold, the {}, which is the expected fraction of {}, is
claim knockoffs/conformal-20
  audit/assemble.py:_open_points | That the model treats
claim knockoffs/averaged-20
  audit/checks.py:symmetry | ; rule="{}" is not valid
claim flagged/apart
  audit/flagged.py:_WARNING | the rule that flagged
test statistical/test_exchangeability.py::test_the_check_of_the_draw
  audit/owner_versions.py:_VERSIONS | the published versions can
  audit/owner_versions.py:_VERSIONS | A verdict is withheld
test exchange/test_structure.py::test_the_whole_call_holds_its_level
  exchange/summary.py:_of_order | the published order does not
  exchange/summary.py:_of_order | the published order is sorted
claim order/t-skewed-50
  exchange/summary.py:_of_test | the shard statistics have
claim order/t-skewed-10
  exchange/summary.py:_of_test | the t-test relies on
  audit/owner.py:few_for_t | {}: its level may not hold
test statistical/test_guards.py::test_the_order_of_a_benchmark_raises_no_alarm_by_itself
  probe/benchmark.py:Leak | Evidence at level {}%
test statistical/test_guards.py::test_the_bounds_of_a_leak_hold_at_all_looks_together
  probe/benchmark.py:Leak | If the assumptions hold, at
  probe/benchmark.py:Leak | {} item{} named;
claim probe/one-look-fixed
  probe/folder.py:_outcome | ; if the assumptions hold, the
claim probe/looks-on-schedule
  probe/folder.py:_open_points | {} look{} off
claim joint/jecs-100
  procedures/jecs.py:_warn_if_few | jecs controls the contamination
claim subtraction/actual-size
  procedures/values.py:PTDI | {} calibration scores tie
claim knockoffs/whole-ties
  procedures/ktd.py:KTD | {} candidates have the same
"""
"""Backing, then the sentences: file:function or file:constant, and the first words."""

GUARANTEES = """
test statistical/test_error_control.py::test_conservative_p_values_are_super_uniform
  tdd.conformal_p_values conservative, tdd.Probe canary
test statistical/test_error_control.py::test_randomized_p_values_are_uniform
  tdd.conformal_p_values randomized
test statistical/test_error_control.py::test_a_shared_random_order_is_exact_on_the_lattice
  tdd.conformal_p_values shared
test statistical/test_shift.py::test_hierarchical_p_values
  tdd.hierarchical_p_values
test statistical/test_shift.py::test_group_p_values
  tdd.mondrian_p_values
test statistical/test_shift.py::test_tables_hold_for_the_sample
  tdd.calibration_conditional_p_values, tdd.select
claim one-sample/simes
  tdd.select simes
test statistical/test_error_control.py::test_bh_fdr_is_exactly_alpha_m0_over_m_on_the_lattice
  tdd.bh, tdd.td4eval random
claim storey/uniform
  tdd.storey_bh cap=False
claim storey/capped-uniform
  tdd.storey_bh cap=True
test statistical/test_error_control.py::test_independent_p_values
  tdd.by, tdd.hochberg, tdd.rejections
test statistical/test_error_control.py::test_family_wise_error_under_any_dependence
  tdd.holm, tdd.bonferroni
test statistical/test_bounds.py::test_hommel_controls_the_family_wise_error
  tdd.hommel
test statistical/test_family.py::test_sidak_is_exact_for_independent_uniforms
  tdd.sidak
test statistical/test_family.py::test_family_wise_error
  tdd.holm_sidak
test statistical/test_family.py::test_two_stage_false_discovery_rate
  tdd.two_stage_bh
claim margin/local-fdr
  tdd.local_fdr
test statistical/test_error_control.py::test_ptdi_none_is_exact
  tdd.ptdi none
claim storey/plus-one
  tdd.ptdi storey
claim subtraction/actual-size
  tdd.ptdi subtraction
claim moment/unguarded
  tdd.ptdi moment_paper
claim moment/or-storey
  tdd.ptdi moment
claim knockoffs/multi-20
  tdd.ktd multi
claim knockoffs/derandomized-5
  tdd.ktd derandomized
claim combination/closed-e-values-one-good
  tdd.td4eval closed_e_values, tdd.closed_e_bh
claim knockoffs/conformal-20
  tdd.ktd conformal
claim knockoffs/averaged-1
  tdd.ktd one
claim knockoffs/averaged-20
  tdd.ktd averaged
test statistical/test_knockoffs.py::test_symmetry_is_rarely_refuted_where_it_holds
  tdd.knockoff_symmetry
claim combination/pooled-rank-members-5
  tdd.td4eval pooled_rank
claim combination/split-weights-members-5
  tdd.td4eval split_weights
claim combination/e-values-members-5
  tdd.td4eval e_values
claim combination/best-score-members-5
  tdd.td4eval best_score, tdd.best_score
claim combination/hommel-members-5
  tdd.td4eval hommel
claim combination/cauchy-members-5
  tdd.td4eval cauchy
claim combination/size-average
  tdd.td4eval average
claim combination/bh-max-members-5
  tdd.td4eval bh_max, tdd.td4eval bh_average
claim combination/max-members-5
  tdd.td4eval max
test statistical/test_combination.py::test_merges_and_e_values
  tdd.td4eval
test statistical/test_combination.py::test_the_cauchy_combination_of_correlated_p_values_is_caught
  tdd.combine_p_values cauchy
test statistical/test_combination.py::test_combinations_of_independent_p_values_are_exact
  tdd.combine_p_values simes, tdd.combine_p_values fisher, tdd.combine_p_values stouffer, tdd.combine_p_values
  pearson, tdd.combine_p_values tippett
test statistical/test_combination.py::test_merges_hold_under_any_dependence
  tdd.combine_p_values
claim joint/storey-100
  tdd.jmcs storey
claim joint/by-dependent
  tdd.jmcs by
test statistical/test_joint.py::test_jmcs_with_independent_models
  tdd.jmcs
claim joint/jecs-neighbours
  tdd.jecs neighbours
test statistical/test_joint.py::test_the_excess_of_jecs_shrinks_with_the_sizes
  tdd.jecs
claim order/combined-skewed-10
  tdd.exchangeability combined, tdd.run_exchange each
claim order/rank-sum-skewed-10
  tdd.exchangeability rank_sum
claim order/exact-skewed-10
  tdd.exchangeability exact
test statistical/test_exchangeability.py::test_permutation
  tdd.exchangeability permutation
claim order/t-ddof-1
  tdd.exchangeability
test exchange/test_structure.py::test_the_whole_call_holds_its_level
  tdd.run_exchange structure
claim order/bets
  tdd.exchangeability_sequence e_process
claim order/looks-spent
  tdd.exchangeability_sequence spending
test statistical/test_sequential.py::test_besag_clifford_at_a_horizon_fixed_beforehand
  tdd.exchangeability_sequence
test statistical/test_exchangeability.py::test_versions
  tdd.version_test
claim sets/permutation
  tdd.dataset_inference
test statistical/test_anytime.py::test_no_level_is_crossed_too_often_at_any_look
  tdd.trajectory_test, tdd.Probe alarm, tdd.probe.contamination, tdd.probe.over_checkpoints alarm
test statistical/test_knockoffs.py::test_e_bh
  tdd.e_bh
test statistical/test_knockoffs.py::test_the_mean_of_conformal_e_values
  tdd.conformal_e_values
claim combination/combined-score
  tdd.combined_score
claim shift/p-value-weighted
  tdd.weighted_conformal_p_values
test statistical/test_shift.py::test_weighted_selection
  tdd.weighted_conformal_selection
claim clusters/cluster
  tdd.cluster_ptdi cluster
claim clusters/drawn
  tdd.cluster_ptdi drawn
claim clusters/item
  tdd.cluster_ptdi uninformative, tdd.cluster_ptdi item
test statistical/test_bounds.py::test_bounds_hold_for_all_cuts_together
  tdd.fdp_bounds, tdd.fdp_bounds_of_ranks
test statistical/test_bounds.py::test_closed_form_bound
  tdd.dkw_fdp_bounds
test statistical/test_knockoffs.py::test_no_cut_beats_the_bound
  tdd.knockoff_fdp_bounds
test statistical/test_online.py::test_false_discovery_rate
  tdd.lond, tdd.e_lond, tdd.lord_plus_plus, tdd.saffron, tdd.online_test
test statistical/test_martingale.py::test_ville
  tdd.online_conformal_p_values, tdd.conformal_martingale
test statistical/test_martingale.py::test_false_alarms_are_rare
  tdd.shiryaev_roberts
claim probe/flagged-at-the-alarm
  tdd.Probe flagged, tdd.probe.over_checkpoints flagged
test statistical/test_guards.py::test_the_order_of_a_benchmark_raises_no_alarm_by_itself
  tdd.probe.contamination without
test statistical/test_guards.py::test_the_bounds_of_a_leak_hold_at_all_looks_together
  tdd.probe.Leak
test statistical/test_guards.py::test_the_order_guard_stays_silent_on_shuffled_streams
  tdd.probe.OrderGuard
test audit/test_blind_baseline.py::test_false_alarms_are_rare
  tdd.run_audit blind, tdd.run_dataset_inference
claim flagged/alike
  tdd.run_audit flagged
test audit/test_preparation.py::test_all_marks_have_the_level_together
  tdd.run_audit preparation
test audit/test_sharing.py::test_level_where_texts_quote_and_repeat
  tdd.audit.overlap.sharing
test statistical/test_exchangeability.py::test_the_check_of_the_draw
  tdd.run_version_test
claim validation/threshold-50
  tdd.study.baselines.threshold
"""
"""Backing, then calls with a word of the option where it decides; a call alone stands for its other options."""
