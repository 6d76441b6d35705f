"""The loop against a model of it: any schedule that hypothesis finds, on virtual time, by hand-driven ports.

The machine ends one operation after the other (a rollout, an optimizer step, an update, a checkpoint), in any order
and with any result, lets a few of them end at once, stops the run, loses a part of it, or kills it and resumes from
the last checkpoint. After each move it lets the loop run until nothing can happen any more, and compares with what
must be true then. `Books` is the model: what was started and what became of it, from the outside alone.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from functools import partial

import pytest
from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from molt_core.api.events import EvalFinished, RunFinished, StepFinished, WeightsPublished
from molt_core.api.run_options import RunOptions
from molt_core.errors import Interrupted, RunError
from molt_core.experience import Outcome
from molt_core.loop.controller import Controller
from molt_core.loop.evaluate import eval_tasks
from molt_core.loop.parts import LoopParts, Resumed
from molt_core.loop.ports import RolloutsLost
from molt_core.loop.progress import MAX_SKIPPED_IN_A_ROW
from molt_core.loop.state import LoopState
from molt_core.loop.stop import StopSignal
from molt_core.report.ledger import Ledger
from molt_core.testing import fake_tasks
from molt_core.testing.clock import VirtualTimeLoop
from tests.loop.by_hand import PolicyByHand, SamplerByHand

TOKENS = 2
"""That each rollout samples."""
SOLVED, FAILED = 1.0, 0.0
IN_FLIGHT, READY, TRAINING, TRAINED = "in flight", "ready", "training", "trained"


class Centred:
    def advantages(self, batch):
        return batch.rewards - batch.rewards.mean()


class SomeSolved:
    def keeps(self, rewards):
        return SOLVED in rewards


@define
class GroupBook:
    task: int
    deadline: int
    """Last round that may train on it."""
    ended: dict = field(factory=dict)
    """Summary by rollout id."""
    earlier: list = field(factory=list)
    """Summaries of what had ended before its tokens were lost."""
    fate: str = IN_FLIGHT
    """IN_FLIGHT, READY, TRAINING, TRAINED or why it was dropped."""


@define
class Books:
    """What a run has started and what became of it."""

    options: RunOptions
    min_rollouts: int
    filters: bool
    groups: dict[int, GroupBook] = field(factory=dict)
    round_number: int = 0
    version: int = 0
    skipped_in_a_row: int = 0
    lost_in_a_row: int = 0

    def start(self, group: int, task: int) -> None:
        deadline = self.round_number + self.options.max_staleness
        self.groups.setdefault(group, GroupBook(task, deadline))

    def end(self, summary) -> None:
        book = self.groups[int(summary.group_id)]
        book.ended[summary.rollout_id] = summary
        if len(book.ended) < self.options.group_size:
            return
        trainable = [each for each in book.ended.values() if each.trains]
        if len(trainable) < self.min_rollouts:
            book.fate = "incomplete_group"
            self.lost_in_a_row += 1
            return
        kept = not self.filters or any(each.reward == SOLVED for each in trainable)
        book.fate = READY if kept else "filtered"
        self.lost_in_a_row = 0

    def lose(self, rollout_ids) -> None:
        """Finished groups are to be run again; what else was taken waits."""
        for number in self.having(READY, TRAINING):
            book = self.groups[number]
            book.fate = READY
            if rollout_ids & book.ended.keys():
                book.earlier += book.ended.values()
                book.ended, book.fate = {}, IN_FLIGHT

    def having(self, *fates: str) -> list[int]:
        return [number for number, book in self.groups.items() if book.fate in fates]

    def settle(self, applied: bool) -> None:
        for number in self.having(TRAINING):
            self.groups[number].fate = TRAINED if applied else "non_finite_step"
        self.skipped_in_a_row = 0 if applied else self.skipped_in_a_row + 1

    @property
    def num_claimed(self) -> int:
        """Places that are taken: groups that were not dropped before they could be trained on."""
        return len(self.groups) - len(self.having("incomplete_group", "filtered"))

    def as_of(self, state: LoopState) -> Books:
        """As they were when the state was taken; some groups may have started or ended since."""
        books = copy.deepcopy(self)
        waiting = {group.index for _, group in state.buffer.ready}
        in_flight = {ticket.index for ticket in state.buffer.in_flight}
        for number in range(state.buffer.num_started, len(books.groups)):
            assert books.groups.pop(number).fate == IN_FLIGHT
        # some had started in the instant in which the run failed, and had not come to ask for anything
        for ticket in state.buffer.in_flight:
            books.groups.setdefault(ticket.index, GroupBook(ticket.index, ticket.deadline))
        for number, book in books.groups.items():
            if number in in_flight:
                assert book.fate not in (TRAINING, TRAINED)
                book.ended, book.fate = {}, IN_FLIGHT
            elif number in waiting:
                assert book.fate in (READY, TRAINING), "a trained group is to be trained again"
                book.fate = READY
            else:
                assert book.fate not in (IN_FLIGHT, READY, TRAINING), "a group is lost"
        books.round_number, books.skipped_in_a_row = state.step, state.skipped_in_a_row
        books.version, books.lost_in_a_row = state.version, state.num_lost_groups
        return books

    def ledger(self) -> dict:
        """Prompts, rollouts and tokens, recounted."""
        size = self.options.group_size
        told = {
            unit: {"dispatched": 0, "trained": 0, "dropped": Counter(), "pending": 0}
            for unit in ("prompts", "rollouts", "tokens")
        }

        def book(where: str, prompts: int, rollouts: int, tokens: int) -> None:
            for unit, count in (("prompts", prompts), ("rollouts", rollouts), ("tokens", tokens)):
                told[unit]["dispatched"] += count
                if where in ("trained", "pending"):
                    told[unit][where] += count
                elif count:
                    told[unit]["dropped"][where] += count

        for group in self.groups.values():
            for each in group.earlier:
                book("lost" if each.trains else each.reason, 0, 1, TOKENS)
            if group.fate == IN_FLIGHT:
                # tokens are counted when the whole group is back
                book("pending", 1, size, 0)
                continue
            trainable = sum(each.trains for each in group.ended.values())
            where = {READY: "pending", TRAINING: "pending"}.get(group.fate, group.fate)
            book(where, 1, trainable, TOKENS * trainable)
            for each in group.ended.values():
                if not each.trains:
                    book(each.reason, 0, 1, TOKENS)
        return {unit: counts | {"dropped": dict(counts["dropped"])} for unit, counts in told.items()}


class Schedules(RuleBasedStateMachine):
    @initialize(
        max_staleness=st.integers(0, 3), prompts_per_step=st.integers(1, 3), group_size=st.integers(1, 3),
        steps=st.integers(1, 6), num_tasks=st.none() | st.integers(0, 12), eval_prompts=st.integers(0, 2),
        eval_every=st.integers(0, 2), save_every=st.integers(0, 2), partial=st.booleans(),
        incomplete_groups=st.sampled_from(["keep", "drop"]), needs_groups=st.booleans(), filters=st.booleans(),
        unsound=st.sampled_from([2, 7, 1000]),
    )  # fmt: skip
    def begin(self, num_tasks, needs_groups, filters, unsound, **options) -> None:
        self.options = RunOptions(model="m", **options)
        self.num_tasks = num_tasks
        self.unsound = unsound
        """Of so many steps one is not finite."""
        needs_groups = needs_groups and self.options.group_size > 1
        least = self.options.group_size if self.options.incomplete_groups == "drop" else 1
        self.books = Books(self.options, max(least, 2 if needs_groups else 1), filters)
        self.needs_groups, self.filters = needs_groups, filters
        self.disk = None
        """The last checkpoint that was committed: state, payloads, and the books of then."""
        self.start(None)

    def start(self, resumed) -> None:
        """Begin a process, from nothing or from a checkpoint."""
        self.events = []
        self.complaints = []
        self.expected: set[str] = set()
        """Why the run may end before its last step."""
        self.first_step = self.books.round_number
        self.eval_versions: dict[str, list[int]] = {}
        self.operation = self.saving = None
        self.ends_round = False
        """The update under way, or the next, is that of a step."""
        self.loop = VirtualTimeLoop()
        self.loop.set_exception_handler(lambda loop, context: self.complaints.append(context))
        self.policy = PolicyByHand(drain=not self.options.partial)
        self.sampler = SamplerByHand(self.policy)
        self.num_requests = 0
        self.ledger = Ledger()
        self.stop = StopSignal()
        tasks = fake_tasks(self.num_tasks)
        if resumed is not None:
            again = tasks.restore(resumed.tasks, resumed.tasks_open)
            resumed = Resumed(state=resumed, tasks=again)
        parts = LoopParts(
            sampler=self.sampler, policy=self.policy, estimator=Centred(), needs_groups=self.needs_groups,
            tasks=tasks, eval_tasks=eval_tasks(fake_tasks(), self.options.eval_prompts), eval_name="fake",
            max_tokens=8, ledger=self.ledger, notify=self.events.append, stop=self.stop,
            group_filter=SomeSolved() if self.filters else None, resumed=resumed,
        )  # fmt: skip
        self.run = self.loop.create_task(Controller(self.options, parts).run())
        self.settle()

    # moves

    def can_finish(self) -> bool:
        return bool(self.sampler.running)

    def operates(kind: str):
        return lambda self: self.policy.operation is not None and self.policy.operation.kind == kind

    @precondition(can_finish)
    @rule(
        picks=st.lists(st.integers(0, 99), min_size=1, max_size=6),
        outcome=st.sampled_from([Outcome.FINISHED] * 6 + [Outcome.TRUNCATED, Outcome.FAILED, Outcome.ABSTAINED]),
        reward=st.sampled_from([SOLVED, FAILED]),
    )  # fmt: skip
    def finish_rollouts(self, picks, outcome, reward) -> None:
        """Some end in the same instant."""
        for pick in picks:
            if self.sampler.running:
                self.finish(list(self.sampler.running)[pick % len(self.sampler.running)], outcome, reward)
        self.settle()

    @precondition(can_finish)
    @rule(
        kinds=st.sampled_from(["both", "training", "evaluation"]),
        reward=st.sampled_from([SOLVED, SOLVED, FAILED]),
    )
    def finish_all_rollouts(self, kinds, reward) -> None:
        for rollout_id in list(self.sampler.running):
            if kinds in ("both", "evaluation" if rollout_id.startswith("eval") else "training"):
                self.finish(rollout_id, Outcome.FINISHED, reward)
        self.settle()

    @precondition(operates("step"))
    @rule(applied=st.sampled_from([True] * 5 + [False]), at_once=st.booleans())
    def end_step(self, applied, at_once) -> None:
        self.end_operation(applied=applied)
        if at_once and self.sampler.running:
            self.finish(next(iter(self.sampler.running)), Outcome.FINISHED, SOLVED)
        self.settle()

    @precondition(
        lambda self: self.operation is not None and self.operation.kind != "step" and self.may_end()
    )
    @rule()
    def end_update_or_save(self) -> None:
        self.end_operation()
        self.settle()

    @precondition(lambda self: self.policy.committing is not None)
    @rule()
    def end_commit(self) -> None:
        self.commit()
        self.settle()

    @precondition(lambda self: not self.run.done())
    @rule(picks=st.lists(st.integers(0, 999), min_size=1, max_size=40))
    def go_on(self, picks) -> None:
        """One thing after the other ends well: any rollout, or what the trainer is at."""
        for pick in picks:
            ways = [partial(self.finish, each, Outcome.FINISHED, SOLVED) for each in self.sampler.running]
            if self.operation is not None and self.may_end():
                ways.append(partial(self.end_operation, applied=pick % self.unsound != 0))
            if self.policy.committing is not None:
                ways.append(self.commit)
            if ways:
                ways[pick % len(ways)]()
                self.settle(1e-6 if pick % 5 else 1e5)

    @precondition(lambda self: len(self.events) > 12 and not self.expected)
    @rule()
    def ask_to_stop(self) -> None:
        self.expected.add("interrupted")
        self.stop.request("SIGTERM")
        self.settle()
        assert not self.sampler.running, "rollouts go on"

    @precondition(lambda self: len(self.events) > 12 and not self.expected and self.sampler.running)
    @rule(pick=st.integers(0, 99))
    def lose_an_engine(self, pick) -> None:
        self.expected.add("failed")
        rollout_id = list(self.sampler.running)[pick % len(self.sampler.running)]
        self.sampler.fail(rollout_id, RunError("engine lost", reason="lost"))
        self.settle()
        assert not self.sampler.running, "rollouts go on"

    @precondition(lambda self: len(self.events) > 12 and not self.expected and self.operation is not None)
    @rule()
    def lose_the_trainer(self) -> None:
        self.expected.add("failed")
        self.policy.fail(RunError("trainer lost", reason="lost"))
        self.settle()
        assert not self.sampler.running, "rollouts go on"

    @precondition(
        lambda self: self.policy.operation is not None and self.policy.operation.kind in ("step", "save")
    )
    @rule(picks=st.lists(st.integers(0, 99), min_size=1, max_size=3))
    def lose_tokens(self, picks) -> None:
        """A worker that kept finished rollouts is gone."""
        groups = [self.books.groups[number] for number in self.books.having(READY, TRAINING)]
        rollouts = [each for group in groups for each, it in group.ended.items() if it.trains]
        if rollouts:
            lost = {rollouts[pick % len(rollouts)] for pick in picks}
            self.books.lose(lost)
            self.policy.fail(RolloutsLost(lost))
            self.settle()

    @precondition(lambda self: self.policy.committing is not None and not self.expected)
    @rule()
    def fill_the_disk(self) -> None:
        self.expected.add("failed")
        self.policy.end_commit(RunError("no space left", reason="checkpoint"))
        self.settle()

    @precondition(lambda self: self.run.done())
    @rule()
    def stay_ended(self) -> None:
        self.settle()

    @precondition(lambda self: self.disk is not None and not self.is_done())
    @rule()
    def kill_and_resume(self) -> None:
        """Whatever the process was at is lost, apart from its last checkpoint."""
        state, payloads, self.books = self.disk
        self.disk = state, payloads, copy.deepcopy(self.books)
        self.end_loop()
        self.start(LoopState.from_json(json.loads(state)).resumed(payloads, 0.0))

    def is_done(self) -> bool:
        return self.run.done() and self.run.exception() is None

    def may_end(self) -> bool:
        """An update that drains ends after the rollouts in flight."""
        return self.options.partial or self.operation.kind != "publish" or not self.sampler.running

    def finish(self, rollout_id, outcome, reward) -> None:
        trains = outcome in (Outcome.FINISHED, Outcome.TRUNCATED)
        summary = self.sampler.finish(rollout_id, outcome, reward if trains else None)
        if rollout_id.startswith("eval"):
            label = rollout_id.rsplit("-", 2)[0]
            self.eval_versions.setdefault(label, []).extend((summary.oldest_version, summary.newest_version))
        else:
            self.books.end(summary)
            if self.books.lost_in_a_row >= max(8, 2 * self.options.prompts_per_step):
                self.expected.add("failed")

    def end_operation(self, *, applied: bool = True) -> None:
        kind = self.policy.operation.kind
        if kind == "step":
            self.policy.end_step(applied=applied)
            self.books.settle(applied)
            self.books.round_number += not applied
            self.ends_round = applied
            if self.books.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
                self.expected.add("failed")
        elif kind == "publish":
            self.policy.end_publish()
            assert self.policy.version == self.books.version + self.ends_round
            self.books.version = self.policy.version
            self.books.round_number += self.ends_round
            self.ends_round = False
        else:
            self.policy.end_save()

    def commit(self) -> None:
        self.policy.end_commit()
        self.disk = self.saving

    # what must be true

    def settle(self, seconds: float = 1e-6) -> None:
        """Let the loop run until nothing more can happen, then look."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        for request in self.sampler.requests[self.num_requests :]:
            self.check_request(request)
        self.num_requests = len(self.sampler.requests)
        if self.policy.operation is not self.operation:
            self.operation = self.policy.operation
            if self.operation is not None and self.operation.kind == "step":
                self.check_step(self.operation.argument)
            elif self.operation is not None and self.operation.kind == "save":
                _, state, payloads = self.operation.argument
                books = self.books.as_of(LoopState.from_json(json.loads(json.dumps(state))))
                assert state["ledger"] == books.ledger()
                self.saving = json.dumps(state), payloads, books
        self.check_events()
        if self.run.done():
            return
        self.check_evaluations()
        self.check_liveness()
        self.check_ledger()
        assert len(self.books.having(IN_FLIGHT, READY)) <= self.options.prompts_per_step * (
            self.options.max_staleness + 1
        )

    def check_request(self, request) -> None:
        if request.group_id.startswith("eval"):
            return
        group, task = int(request.group_id), request.task.row["number"]
        self.books.start(group, task)
        members = [each for each in self.sampler.requests if each.group_id == request.group_id]
        assert len({each.seed for each in members}) == len({each.rollout_id for each in members})
        assert list(self.books.groups) == list(range(len(self.books.groups))), "groups start in order"
        assert self.books.groups[group].task == task == group, "each with the next task"

    def check_step(self, shares) -> None:
        books, run = self.books, self.options
        items = [item for share in shares for item in share.items]
        groups = {int(item.payload.group_id) for item in items}
        assert "interrupted" not in self.expected, "a step began after the stop"
        assert groups <= set(books.having(READY)), "a group is trained once, and when all of it is there"
        wanted = {each for number in groups for each, it in books.groups[number].ended.items() if it.trains}
        told = [item.payload.rollout_id for item in items]
        assert sorted(told) == sorted(wanted), "whole groups, no rollout twice"
        if len(groups) < run.prompts_per_step:
            assert len(books.groups) == self.num_tasks, "a short step ends the data"
            assert set(books.having(READY, IN_FLIGHT)) == groups
        for number in groups:
            assert books.groups[number].deadline >= books.round_number, "consumed after its deadline"
            books.groups[number].fate = TRAINING
        versions = {int(v) for item in items for v in item.payload.segments[0].versions[1:]}
        assert all(0 <= books.version - version <= run.max_staleness for version in versions)

    def check_events(self) -> None:
        steps = [event.step for event in self.events if isinstance(event, StepFinished)]
        assert steps == list(range(self.first_step + 1, self.first_step + len(steps) + 1))
        published = [event.version for event in self.events if isinstance(event, WeightsPublished)]
        assert published == list(range(published[0], published[0] + len(published))) if published else True
        for event in self.events:
            if isinstance(event, EvalFinished):
                versions = self.eval_versions[f"eval-{event.step}"]
                assert (event.version, event.newest_version) == (min(versions), max(versions))
                alone = self.options.max_staleness == 0 or event.step in (0, self.options.steps)
                assert not alone or event.version == event.newest_version

    def check_evaluations(self) -> None:
        evaluated = {each.split("-")[1] for each in self.sampler.running if each.startswith("eval")}
        assert len(evaluated) <= 1, "one at a time"
        if evaluated and self.options.max_staleness == 0:
            assert self.operation is None, "strictly on-policy, nothing is trained beside an evaluation"

    def check_ledger(self) -> None:
        told, recounted = self.ledger.as_dict(), self.books.ledger()
        silent = told["prompts"]["dispatched"] - recounted["prompts"]["dispatched"]
        assert silent == 0 or (silent > 0 and self.expected), (
            "only a run that fails starts what asks for nothing"
        )
        for unit, number in (("prompts", silent), ("rollouts", silent * self.options.group_size)):
            recounted[unit]["dispatched"] += number
            recounted[unit]["pending"] += number
        for unit, counts in recounted.items():
            # at the end of a run, while it is saved, nothing is pending any more
            for reason in {"interrupted", "run_failed", "run_ended"} & told[unit]["dropped"].keys():
                counts["dropped"][reason], counts["pending"] = counts["pending"], 0
        assert told == recounted

    def check_liveness(self) -> None:
        run, books = self.options, self.books
        assert self.sampler.running or self.operation or self.policy.committing, (
            "nothing can happen any more, and the run has not ended"
        )
        if self.expected:
            return
        num_evals = sum(isinstance(event, EvalFinished) for event in self.events)
        if run.eval_prompts and not num_evals and not self.first_step:
            assert not books.groups, "the first evaluation is before training"
            return
        if len(self.events) == 0 and self.operation and self.operation.kind == "publish":
            return  # engines get the checkpoint's weights first
        rounds = min(books.round_number + run.max_staleness + 1, run.steps)
        ended = len(books.groups) == self.num_tasks
        assert books.num_claimed == run.prompts_per_step * rounds or ended, "as much in flight as is allowed"
        # held up by an evaluation alone, at most: while training is over, or strictly on-policy
        waits_for_training = all(each.startswith("eval") for each in self.sampler.running)
        if not self.operation and not self.policy.committing and waits_for_training and run.max_staleness:
            assert books.round_number == run.steps or ended, "training waits for an evaluation"

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        try:
            self.end_well()
        finally:
            self.end_loop()

    def end_loop(self) -> None:
        self.loop.set_exception_handler(lambda loop, context: None)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    def end_well(self) -> None:
        """From wherever the schedule has led, the run ends when everything in it does."""
        for _ in range(1000):
            if self.run.done():
                break
            for rollout_id in list(self.sampler.running):
                self.finish(rollout_id, Outcome.FINISHED, SOLVED)
            if self.policy.operation is not None:
                self.end_operation()
            if self.policy.committing is not None:
                self.commit()
            self.settle()
        assert self.run.done(), "the run does not end"
        assert not self.complaints
        assert not asyncio.all_tasks(self.loop), "something runs on after the end"
        (end,) = [event for event in self.events if isinstance(event, RunFinished)]
        self.check_end(end)

    def check_end(self, end: RunFinished) -> None:
        run, books = self.options, self.books
        error = self.run.exception()
        # a stop may come too late
        assert end.outcome in (self.expected or {"done"}) or self.expected == {"interrupted"}
        kind = {"done": type(None), "interrupted": Interrupted, "failed": RunError}[end.outcome]
        assert isinstance(error, kind)
        for unit, counts in books.ledger().items():
            assert end.ledger[unit]["trained"] == counts["trained"]
            assert end.ledger[unit]["pending"] == 0
        self.ledger.check()
        if books.version and end.step > self.first_step:
            assert json.loads(self.saving[0])["step"] == end.step, "the last step was not to be saved"
        if end.outcome == "done":
            assert not books.having(IN_FLIGHT, READY, TRAINING) or books.round_number == run.steps
            assert books.round_number == run.steps or len(books.groups) == self.num_tasks


BOUNDS = {"stateful_step_count": 25, "deadline": None, "suppress_health_check": list(HealthCheck)}


class TestSchedules(Schedules.TestCase):
    settings = settings(max_examples=300, **BOUNDS)


@pytest.mark.soak
@pytest.mark.timeout(0)
class TestTenThousandSchedules(Schedules.TestCase):
    settings = settings(max_examples=10_000, **BOUNDS)
