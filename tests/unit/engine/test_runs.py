"""A worker's runs on the memory store: started, kept, ended, given back."""

from __future__ import annotations

import pytest
from tests.support.stepped import PREFIX, QUEUE, HandExecutor, Stepped, Worker, failure

from tickrail.bus.codec import decode_dead_letter
from tickrail.bus.topics import dlq_topic, launch_topic, retry_topic
from tickrail.core.errors import UnavailableError
from tickrail.core.execution import SUCCESS, Outcome
from tickrail.core.ids import LaunchId
from tickrail.core.states import State

NORMAL = launch_topic(PREFIX, QUEUE, "normal")
DLQ = dlq_topic(PREFIX, QUEUE)
RETRY_TOPIC = retry_topic(PREFIX, QUEUE)
RETRY = {"initial": "2s", "multiplier": 2, "max": "60s", "jitter": 0, "max_attempts": 5}


def started(world: Stepped, launch: LaunchId | None = None) -> tuple[Worker, LaunchId]:
    """A launch that runs at w-1."""
    worker = world.worker()
    worker.take()
    launch = launch or world.launch()
    world.relay(2)
    worker.take()
    assert world.row(launch).state is State.RUNNING
    return worker, launch


def test_a_run_gets_what_its_job_says_and_the_names_that_fence_its_effect() -> None:
    world = Stepped()
    job = world.job(overlap="allow", payload={"x": 1}, timeout="7s")
    worker, launch = started(world, world.launch(job))
    (run,) = worker.executor.started
    assert (run.launch_id, run.job_id, run.attempt) == (launch, job, 1)
    assert (run.claim, run.timeout) == (world.row(launch).claim, 7.0)
    assert (run.target, run.payload) == ({"noop": {}}, {"x": 1})


def test_a_payload_of_the_launch_goes_before_the_jobs() -> None:
    world = Stepped()
    job = world.job(overlap="allow", payload={"x": 1})
    worker, _ = started(world, world.launch(job, payload=[2]))
    assert worker.executor.started[0].payload == [2]


def test_a_success_is_recorded_and_its_offset_committed() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.end()
    worker.work()
    assert world.row(launch).state is State.SUCCEEDED
    assert worker.done_offset(NORMAL) == 1
    assert worker.runs.count == 0
    assert worker.metrics.counts[("launches_total", "succeeded")] == 1


def test_d13_retries_come_after_1_2_4_8_and_then_the_dead_letter() -> None:
    world = Stepped()
    job = world.job(overlap="allow", retry={**RETRY, "initial": "1s"})
    worker, launch = started(world, world.launch(job))
    began = world.clock.now()
    at: list[float] = []
    worker.executor.answer = lambda _run: failure()
    worker.executor.end(outcome=failure())
    at.append(0.0)
    for _ in range(40):
        worker.work()
        if len(worker.executor.started) > len(at):
            at.append((world.clock.now() - began).total_seconds())
        world.advance(0.5)
        world.relay(2)
    assert at == [0.0, 1.0, 3.0, 7.0, 15.0]
    row = world.row(launch)
    assert (row.state, row.attempt, row.failures) == (State.DEAD, 5, 5)
    (message,) = world.bus.messages(DLQ)
    letter = decode_dead_letter(message.value)
    assert (letter.launch, letter.attempt, letter.reason) == (launch, 5, "attempts_exhausted")
    assert [a.attempt for a in letter.history] == [1, 2, 3, 4, 5]
    assert not row.dlq_owed


def test_d09_failing_launches_have_exactly_their_attempts() -> None:
    world = Stepped()
    job = world.job(overlap="allow", retry={**RETRY, "max_attempts": 3})
    ids = [world.launch(job) for _ in range(10)]
    worker = world.worker()
    worker.executor.answer = lambda _run: failure()
    worker.take()
    for _ in range(60):
        world.relay(2)
        worker.work()
        world.advance(0.5)
    assert len(worker.executor.started) == 30
    assert {world.row(x).state for x in ids} == {State.DEAD}
    assert len(world.bus.messages(DLQ)) == 10


def test_what_cannot_be_tried_again_is_dead_at_once() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.end(outcome=failure("http_400", retryable=False))
    worker.work()
    assert (world.row(launch).state, world.row(launch).failures) == (State.DEAD, 1)
    (message,) = world.bus.messages(DLQ)
    assert decode_dead_letter(message.value).reason == "not_retryable"


def test_what_the_policy_names_is_never_tried_again_or_is_although_it_usually_is_not() -> None:
    world = Stepped()
    job = world.job(
        overlap="allow",
        retry={"not_on": ["http_5xx", "raised_OSError"], "on": ["http_404", "exit_1-9"]},
    )
    worker = world.worker()
    worker.take()
    for outcome, state in (
        (failure("http_503"), State.DEAD),
        (failure("http_404", retryable=False), State.DUE),
        (failure("exit_7", retryable=False), State.DUE),
        (failure("exit_10", retryable=False), State.DEAD),
        (failure("raised_FileNotFoundError", classes=("raised_OSError",)), State.DEAD),
    ):
        launch = world.launch(job)
        world.relay(2)
        worker.executor.answer = lambda _run, o=outcome: o
        worker.work()
        row = world.row(launch)
        assert row.state is state, outcome
        assert row.result is not None
        assert row.result["retryable"] is (state is State.DUE)
        if state is State.DEAD:
            letter = decode_dead_letter(world.bus.messages(DLQ)[-1].value)
            assert (letter.launch, letter.reason) == (launch, "not_retryable")


def test_a_snooze_is_due_later_under_the_next_attempt_and_counts_no_failure() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.end(outcome=failure("snoozed", snooze=90.0, message="the file is not there"))
    worker.work()
    row = world.row(launch)
    assert (row.state, row.attempt, row.failures) == (State.DUE, 2, 0)
    assert (row.due_at - world.clock.now()).total_seconds() == 90
    assert row.result is not None
    assert (row.result["outcome"], row.result["message"]) == ("snoozed", "the file is not there")
    world.advance(89)
    world.relay(2)
    assert world.messages(RETRY_TOPIC) == []
    world.advance(1)
    world.relay(2)
    worker.executor.answer = lambda _run: SUCCESS
    worker.work()
    assert (world.row(launch).state, world.row(launch).attempt) == (State.SUCCEEDED, 2)


def test_an_uncertain_end_is_tried_again_or_abandoned_as_the_owner_chose() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.end(outcome=failure("timed_out", certain=False))
    worker.work()
    assert (world.row(launch).state, world.row(launch).attempt) == (State.DUE, 2)
    worker, launch = started(world, world.launch(rerun=False))
    worker.executor.end(outcome=failure("timed_out", certain=False))
    worker.work()
    assert (world.row(launch).state, world.row(launch).attempt) == (State.ABANDONED, 1)
    assert decode_dead_letter(world.bus.messages(DLQ)[-1].value).reason == "uncertain"


def test_a_target_that_no_executor_serves_is_tried_again_elsewhere() -> None:
    world = Stepped()
    job = world.job(overlap="allow", target={"webhook": {"url": "https://example.com/"}})
    worker = world.worker()
    worker.take()
    launch = world.launch(job)
    world.relay(2)
    worker.work()
    row = world.row(launch)
    assert (row.state, row.failures, row.result["outcome"]) == (State.DUE, 1, "not_served")
    assert worker.executor.started == []
    assert worker.done_offset(NORMAL) == 1


def test_a_claim_that_ran_out_before_the_start_is_given_back() -> None:
    world = Stepped()
    launch = world.launch(rerun=False)
    worker = world.worker()
    worker.take()
    world.relay(2)
    claim = worker.store.claim

    def slow(*args: object) -> object:
        answer = claim(*args)  # type: ignore[arg-type]
        world.advance(29.5)  # paused after the statement was sent
        return answer

    worker.store.claim = slow  # type: ignore[assignment,method-assign]
    worker.work()
    row = world.row(launch)
    assert worker.executor.started == []
    # Never started, so a launch that may not run twice is due again too.
    assert (row.state, row.attempt, row.failures) == (State.DUE, 2, 0)


def test_a_stale_result_is_counted_and_changes_nothing() -> None:
    world = Stepped()
    worker, launch = started(world)
    world.advance(31)
    world.sweep()
    before = world.row(launch)
    assert (before.state, before.attempt) == (State.DUE, 2)
    worker.executor.end()
    worker.work()
    assert world.row(launch) == before
    assert worker.metrics.counts[("stale_results_total",)] == 1
    assert worker.done_offset(NORMAL) == 1


def test_claims_are_extended_each_third_of_the_visibility() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.heartbeat()
    assert world.db.calls["extend"] == 0
    for _ in range(100):
        world.advance(1)
        worker.heartbeat()
        world.sweep()
    assert world.row(launch).state is State.RUNNING
    assert world.db.calls["extend"] == 10
    worker.executor.end()
    worker.work()
    assert world.row(launch).state is State.SUCCEEDED


def test_d05_a_long_run_is_done_for_kafka_at_its_first_extension() -> None:
    world = Stepped()
    worker, long = started(world)
    job = world.job(overlap="allow")
    worker.executor.answer = lambda _run: SUCCESS
    for _ in range(50):
        world.launch(job)
    world.relay(2)
    worker.work()
    assert worker.done_offset(NORMAL) is None
    world.advance(11)
    worker.heartbeat()
    worker.take()
    assert worker.done_offset(NORMAL) == 51
    assert world.row(long).state is State.RUNNING


def test_a_cancel_is_seen_within_two_looks_and_the_run_ends_cancelled() -> None:
    world = Stepped()
    worker, launch = started(world)
    world.cancel(launch)
    for _ in range(2):
        world.advance(1)
        worker.heartbeat()
    assert worker.executor.cancelled == [(launch, "cancelled")]
    worker.work()
    assert world.row(launch).state is State.CANCELLED
    assert worker.done_offset(NORMAL) == 1


def test_a_run_whose_claim_is_gone_is_stopped() -> None:
    world = Stepped()
    worker, launch = started(world)
    world.advance(31)
    world.sweep()
    worker.heartbeat()
    assert worker.executor.cancelled == [(launch, "claim_lost")]
    worker.work()
    assert worker.metrics.counts[("stale_results_total",)] == 1
    assert world.row(launch).attempt == 2


def test_a_run_that_has_ended_is_not_stopped_while_its_record_waits() -> None:
    world = Stepped()
    worker, _ = started(world)
    worker.executor.end()
    world.advance(29.5)
    worker.runs.watch_once()
    assert worker.executor.cancelled == []
    worker.work()
    assert worker.metrics.counts[("launches_total", "succeeded")] == 1


def test_a_run_is_stopped_before_its_claim_ends_although_the_extension_waits_for_the_database() -> (
    None
):
    world = Stepped()
    worker, launch = started(world)
    world.advance(28.9)
    worker.runs.watch_once()
    assert worker.executor.cancelled == []
    world.advance(0.1)  # the margin; the thread that extends has not come back yet
    worker.runs.watch_once()
    assert worker.executor.cancelled == [(launch, "claim_lost")]
    worker.runs.watch_once()
    assert len(worker.executor.cancelled) == 1


def test_e13_single_failures_are_tried_again_and_the_limit_stops_the_run() -> None:
    world = Stepped()
    worker, launch = started(world)
    world.advance(11)
    world.db.down = True
    with pytest.raises(UnavailableError):
        worker.heartbeat()
    world.db.down = False
    worker.heartbeat()
    assert worker.executor.cancelled == []
    world.db.down = True
    for _ in range(28):
        world.advance(1)
        if worker.runs.count and world.clock.monotonic() >= 1011 + 10:
            with pytest.raises(UnavailableError):
                worker.heartbeat()
    assert worker.executor.cancelled == []
    world.advance(1)  # 29 s after the last extension was sent: the margin
    with pytest.raises(UnavailableError):
        worker.heartbeat()
    assert worker.executor.cancelled == [(launch, "claim_lost")]
    with pytest.raises(UnavailableError):
        worker.finish()
    world.db.down = False
    worker.work()
    # Nobody took it meanwhile: the end counts, as a give back.
    assert (world.row(launch).state, world.row(launch).failures) == (State.DUE, 0)


def test_results_are_kept_while_the_database_is_away() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.end()
    world.db.down = True
    for _ in range(3):
        with pytest.raises(UnavailableError):
            worker.finish()
    world.db.down = False
    assert worker.finish() == 1
    assert world.row(launch).state is State.SUCCEEDED


def test_a_finish_whose_answer_was_lost_is_stale_when_made_again() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.end()
    world.db.lose_reply.add("finish")
    with pytest.raises(UnavailableError):
        worker.finish()
    worker.work()
    assert world.row(launch).state is State.SUCCEEDED
    assert worker.done_offset(NORMAL) == 1


def test_a_worker_that_closes_gives_back_what_it_did_not_finish() -> None:
    world = Stepped()
    worker, again = started(world)
    _, never = started(world, world.launch(rerun=False))
    worker.intake.close_intake()
    worker.runs.close(0.0)
    worker.finish()
    rows = world.row(again), world.row(never)
    assert [(x.state, x.attempt, x.failures) for x in rows] == [
        (State.DUE, 2, 0),
        (State.ABANDONED, 1, 0),
    ]
    worker.intake.finish()
    assert worker.done_offset(NORMAL) == 2


def test_a_later_attempt_here_does_not_hide_the_earlier_one_that_still_runs() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.deaf = True
    (first,) = worker.executor.started
    world.advance(31)  # this worker was frozen: the claim ran out
    world.sweep()
    world.advance(5)
    world.relay(2)
    worker.take()
    second = worker.executor.started[1]
    assert (second.launch_id, second.attempt) == (launch, 2)
    worker.heartbeat()
    assert worker.executor.cancelled == [(launch, "claim_lost")]
    worker.executor.end(first)
    worker.work()
    assert worker.metrics.counts[("stale_results_total",)] == 1
    assert worker.done_offset(NORMAL) == 1
    assert worker.runs.count == 1
    world.advance(11)
    worker.heartbeat()  # the later attempt is kept
    worker.executor.end(second)
    worker.work()
    assert (world.row(launch).state, world.row(launch).attempt) == (State.SUCCEEDED, 2)
    assert worker.runs.count == 0


def test_a_claim_number_that_the_database_gives_twice_loses_no_run() -> None:
    world = Stepped()
    worker, first = started(world)
    lost = world.db.launches.pop(first)  # a failover: the claim and its launch are lost,
    world.db._claims -= 1  # and the number is given to another launch
    second = world.launch()
    world.relay(2)
    worker.take()
    one, other = worker.executor.started
    assert (one.claim, one.launch_id, other.launch_id) == (other.claim, lost.id, second)
    assert worker.runs.count == 2
    worker.executor.end(one)
    worker.executor.end(other)
    worker.work()
    assert world.row(second).state is State.SUCCEEDED
    assert worker.runs.count == 0
    assert worker.done_offset(NORMAL) == 2


def test_dead_letters_that_do_not_arrive_stay_owed() -> None:
    world = Stepped()
    worker, launch = started(world)
    worker.executor.end(outcome=failure(retryable=False))
    world.bus.down = True
    worker.finish()
    assert world.row(launch).dlq_owed
    world.bus.down = False
    worker.take()
    assert worker.done_offset(NORMAL) == 1  # what is owed is in the database
    world.advance(31)
    assert world.letters.run_once(world.owned) == 1
    assert not world.row(launch).dlq_owed


def test_a_definition_that_cannot_be_read_is_dead_and_harms_no_other() -> None:
    world = Stepped()
    bad = world.job(overlap="allow")
    world.db.jobs[bad].definitions[1] = '{"name": "x", "retry": {}}'
    worker = world.worker()
    worker.executor.answer = lambda _run: SUCCESS
    worker.take()
    broken, good = world.launch(bad), world.launch()
    world.relay(2)
    worker.work()
    assert (world.row(broken).state, world.row(good).state) == (State.DEAD, State.SUCCEEDED)


def test_outcomes_of_runs_that_are_not_known_are_ignored() -> None:
    world = Stepped()
    worker, _ = started(world)
    (run,) = worker.executor.started
    done = worker.executor.running[run]
    worker.executor.end()
    worker.work()
    done(run, Outcome(ok=False, outcome="late"))
    assert worker.finish() == 0
    assert HandExecutor().kinds == {"noop"}
