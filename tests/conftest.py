"""How hard the tests look: a slice for every change, and everything for `make prove` (LIMPET_FULL=1)."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline: on a busy two-core machine a slow example says nothing about the code, nor about how it is drawn.
PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("slice", PATIENT)
settings.register_profile("full", PATIENT, max_examples=1_000)
settings.load_profile("slice")

# The same again from another beginning, where one says enough on an ordinary day.
ANOTHER = (
    "test_plans.py::test_what_a_verb_touches_does_not_grow_with_the_tables[never]",
    "test_plans.py::test_what_a_verb_touches_does_not_grow_with_the_tables[empty]",
    "test_walkers.py::test_many_who_walk_at_once_leave_everything_in_order[everything-1]",
    "test_walkers.py::test_many_who_walk_at_once_leave_everything_in_order[families-0]",
    "test_walkers.py::test_many_who_walk_at_once_leave_everything_in_order[keys-0]",
    "test_old_snapshots.py::test_claims_from_groups_stay_flat",
    "test_old_snapshots.py::test_claims_from_a_lane_that_is_mostly_idle_stay_flat",
    "test_old_snapshots.py::test_claims_from_a_busy_lane_stay_flat[SELECT count(*) FROM pg_class]",
    "test_old_snapshots.py::test_claims_under_a_limit_stay_flat[ways1]",
    "test_enqueue_failures.py::test_one_transaction_for_very_many_tenants[1]",
    "test_crowd.py::test_a_crowd_loses_and_doubles_nothing[1]",
    "test_exactly_once.py::test_effects_happen_once_wherever_the_worker_dies[sqlite-thread]",
    "test_exactly_once.py::test_effects_happen_once_wherever_the_worker_dies[postgres-thread]",
    "test_flat.py::test_jobs_that_cannot_run_cost_a_claim_nothing[blocked]",
    "test_flat.py::test_jobs_that_cannot_run_cost_a_claim_nothing[guarded]",
    "test_flat.py::test_jobs_that_cannot_run_cost_a_claim_nothing[paused]",
    "test_flat.py::test_jobs_that_cannot_run_cost_a_claim_nothing[unserved]",
    "test_wide_joins.py::test_each_of_many_parents_costs_what_each_of_few_does[alone-last to first]",
    "test_wide_joins.py::test_each_of_many_parents_costs_what_each_of_few_does[alone-at random]",
    "test_wide_joins.py::test_each_of_many_parents_costs_what_each_of_few_does[looked back at-first to last]",
    "test_wide_joins.py::test_each_of_many_parents_costs_what_each_of_few_does[looked back at-last to first]",
    "test_wide_joins.py::test_an_enqueue_after_many_costs_each_of_them_the_same[later]",
    "test_wide_joins.py::test_an_enqueue_after_many_costs_each_of_them_the_same[while_they_run]",
    "test_wide_joins.py::test_an_enqueue_after_many_costs_each_of_them_the_same[of_duplicates]",
    "test_agent.py::test_no_recorded_step_runs_twice_wherever_the_worker_dies[redis-]",
    "test_agent.py::test_no_recorded_step_runs_twice_wherever_the_worker_dies[postgres-]",
    "test_agent.py::test_agents_that_are_killed_at_random_pay_for_each_step_once[redis]",
    "test_chaos.py::test_a_poison_job_dies_alone[redis]",
    "test_chaos.py::test_a_worker_whose_loop_is_blocked_keeps_its_lease[redis]",
    "test_chaos.py::test_the_supervisor_beats_for_a_child_that_cannot[redis]",
    "test_chaos.py::test_children_of_a_killed_supervisor_finish_and_end[redis]",
    "test_chaos.py::test_a_second_signal_does_not_wait_for_the_grace[redis]",
    "test_chaos.py::test_a_child_that_has_done_enough_is_replaced_without_loss[redis]",
    "test_chaos.py::test_a_worker_that_cannot_start_says_so_and_ends[redis]",
    "test_flows.py::test_flows_run_to_their_ends_through_kills_of_their_workers[redis]",
    "test_kills.py::test_20_kills_in_20_s_over_2000_jobs_lose_nothing_and_leave_nothing_stuck[redis]",
    "test_flows.py::test_flows_run_to_their_ends_through_kills_of_their_workers[sqlite]",
    "test_limits.py::test_rates_and_budgets_hold_through_an_hour_of_kills[sqlite]",
    "test_limits.py::test_rates_and_budgets_hold_through_an_hour_of_kills[redis]",
    "test_limits.py::test_one_at_a_time_never_sees_two[sqlite]",
    "test_limits.py::test_one_at_a_time_never_sees_two[postgres]",
    "test_kills.py::test_20_kills_in_20_s_over_2000_jobs_lose_nothing_and_leave_nothing_stuck[sqlite]",
    "test_agent.py::test_agents_that_are_killed_at_random_pay_for_each_step_once[sqlite]",
    "test_models.py::test_eight_workers_use_what_a_provider_allows_and_are_hardly_ever_refused[redis]",
    "test_models.py::test_eight_workers_use_what_a_provider_allows_and_are_hardly_ever_refused[postgres]",
    "test_outage.py::test_workers_outlive_a_kill_of_the_store_and_resume_within_two_seconds[redis-7.0-5000]",
    "test_outbox.py::test_a_relay_killed_at_any_moment[sqlite]",
    "test_schedules.py::test_every_second_fires_once_while_workers_are_killed_and_frozen[redis]",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a slice leaves out, always the same."""
    if os.environ.get("LIMPET_FULL"):
        return
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    return item.nodeid.endswith(ANOTHER)
