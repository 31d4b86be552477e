"""The simulation of scaling and its oracle: exact facts about small traces, and promises under random traffic. No timing."""

from __future__ import annotations

from collections import Counter

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from benchmarks.scaling import oracle, traces
from benchmarks.scaling.oracle import Hold
from benchmarks.scaling.report import SETTINGS, WIDE, bounds, describe, holds_of, judge, summarize, verdict
from benchmarks.scaling.simulator import STOP_TIME, BrokenPromise, Outcome, Simulation
from benchmarks.scaling.traces import Traffic, Visit
from sticky.core.capacity import Capacity, Demand
from sticky.core.container import Container, ContainerState
from sticky.core.events import Closed
from sticky.core.ledger import Ledger
from sticky.core.values import UNBOUNDED, Placement, Policy

SHORT = settings(max_examples=60, deadline=None, derandomize=True)


def traffic(*visits: Visit, limit: int = 2, start: float = 5.0, spread: float = 0.0, idle: float = 60.0) -> Traffic:
    return Traffic("test", visits, limit, start, idle, 1, spread)


def herd(size: int, limit: int) -> Traffic:
    return traffic(*[Visit(0.0, 100.0, True)] * size, limit=limit)


def first_hours(name: str, hours: float) -> Traffic:
    """The beginning of a committed day."""
    whole = traces.day(name)
    until = hours * 3600.0
    visits = tuple(visit for visit in whole.visits if visit.arrives < until)
    return attrs.evolve(whole, visits=visits, window=until)


def least(traffic: Traffic, outcome: Outcome) -> float:
    """What an oracle needs for the visits that were served, being allowed to let each wait as long as ours did."""
    holds = holds_of(traffic)
    patience = max(outcome.waits, default=0.0)
    served = [holds[number] for number in outcome.served]
    return oracle.floor(served, traffic.max_concurrency, traffic.shortest_start, patience, traffic.window)


class FactTests(SynchronousTestCase):
    """Small traces, reckoned by hand."""

    def test_one_visit(self) -> None:
        outcome = Simulation(traffic(Visit(10.0, 100.0, True)), WIDE).run()
        self.assertEqual(outcome.waits, (5.0,))
        self.assertEqual((outcome.starts, outcome.stops, outcome.peak, outcome.fullest), (1, 1, 1, 1))
        self.assertEqual(outcome.starting_time, 5.0)
        self.assertEqual(outcome.empty_time, WIDE.scaledown_window)
        self.assertEqual(outcome.stopping_time, STOP_TIME)
        self.assertEqual(outcome.container_time, 5.0 + 100.0 + WIDE.scaledown_window + STOP_TIME)
        self.assertEqual(outcome.ends, 10.0 + outcome.container_time)

    def test_a_visitor_that_just_goes_away_holds_its_place_for_the_idle_timeout(self) -> None:
        outcome = Simulation(traffic(Visit(0.0, 100.0, False)), WIDE).run()
        self.assertEqual(outcome.container_time, 5.0 + 100.0 + 60.0 + WIDE.scaledown_window + STOP_TIME)

    def test_container_time_after_the_window_does_not_count(self) -> None:
        whole = traffic(Visit(0.0, 100.0, True))
        outcome = Simulation(attrs.evolve(whole, window=50.0), WIDE).run()
        self.assertEqual((outcome.container_time, outcome.empty_time, outcome.stopping_time), (50.0, 0.0, 0.0))
        self.assertEqual(outcome.served, (0,))

    def test_a_herd_of_starts_starts_as_many_containers_as_it_fills_and_no_herd(self) -> None:
        for limit, target, containers in ((20, 20, 10), (20, 14, 15), (1, 1, 200), (1000, 1000, 1), (1000, 150, 2)):
            outcome = Simulation(herd(200, limit), attrs.evolve(WIDE, target_concurrency=target)).run()
            self.assertEqual(outcome.starts, containers, (limit, target))
            self.assertEqual(outcome.waits, (5.0,) * 200)
            self.assertEqual(outcome.refusals, {})

    def test_a_buffer_is_started_once_for_a_herd(self) -> None:
        outcome = Simulation(herd(200, 20), attrs.evolve(WIDE, buffer_containers=2)).run()
        self.assertEqual((outcome.starts, outcome.stops), (12, 12))

    def test_starts_beyond_all_containers_wait_for_their_time_and_are_refused(self) -> None:
        outcome = Simulation(herd(200, 20), attrs.evolve(WIDE, max_containers=3, max_queue=150)).run()
        self.assertEqual(outcome.starts, 3)
        self.assertEqual(len(outcome.served), 60)
        self.assertEqual(outcome.refusals, {"queue_full": 50, "queue_timeout": 90})

    def test_the_scaleup_window_makes_all_but_the_first_container_wait(self) -> None:
        outcome = Simulation(herd(4, 2), attrs.evolve(WIDE, scaleup_window=10.0)).run()
        self.assertEqual(outcome.waits, (5.0, 5.0, 15.0, 15.0))

    def test_a_kept_container_is_stopped_when_the_trace_is_over(self) -> None:
        outcome = Simulation(traffic(Visit(0.0, 10.0, True)), attrs.evolve(WIDE, min_containers=1)).run()
        self.assertEqual((outcome.starts, outcome.stops), (1, 1))

    def test_a_session_in_use_at_its_containers_age_limit_is_cut_and_counted(self) -> None:
        policy = attrs.evolve(WIDE, container_max_age=200.0, max_idle_timeout=100.0)
        outcome = Simulation(traffic(Visit(0.0, 1000.0, True)), policy).run()
        self.assertEqual(outcome.cut, 1)
        self.assertEqual(outcome.container_time, 200.0 + STOP_TIME)

    def test_shares_of_the_queue_times(self) -> None:
        outcome = attrs.evolve(Simulation(herd(1, 1), WIDE).run(), waits=tuple(float(n) for n in range(100, 0, -1)))
        self.assertEqual([outcome.wait(share) for share in (0.0, 0.5, 0.99, 1.0)], [1.0, 50.0, 99.0, 100.0])


class BookTests(SynchronousTestCase):
    """The simulation notices a core that breaks a promise."""

    def test_stopping_a_container_with_a_session(self) -> None:
        def close_anything(self: Capacity, now: float, demand: Demand) -> list[Container]:
            chosen = [box for box in self.newest() if box.state is ContainerState.READY and now > 7.0]
            for box in chosen:
                box.close_asked = True
            return chosen

        def agree(self: Ledger) -> None:
            self._answer(Closed(self.container, None, self.version, 0))

        self.patch(Capacity, "scale_down", close_anything)
        self.patch(Ledger, "close", agree)
        simulation = Simulation(traffic(Visit(0.0, 100.0, True), Visit(7.0, 9.0, True)), WIDE)
        error = self.assertRaises(BrokenPromise, simulation.run)
        self.assertEqual(str(error), "ct-1 was stopped with 1 sessions")

    def test_more_sessions_than_max_concurrency(self) -> None:
        simulation = Simulation(traffic(Visit(0.0, 9.0, True), Visit(0.0, 9.0, True), limit=2), WIDE)
        simulation.traffic = attrs.evolve(simulation.traffic, max_concurrency=1)
        error = self.assertRaises(BrokenPromise, simulation.run)
        self.assertEqual(str(error), "ct-1 has 2 sessions")


class OracleTests(SynchronousTestCase):
    """The bounds are bounds."""

    def test_levels_are_kept_through_gaps_shorter_than_a_start(self) -> None:
        near = [Hold(0.0, 10.0), Hold(13.0, 10.0)]
        far = [Hold(0.0, 10.0), Hold(30.0, 10.0)]
        self.assertEqual(oracle.floor(near, 1, 5.0), 5.0 + 23.0)
        self.assertEqual(oracle.floor(far, 1, 5.0), 2 * (5.0 + 10.0))
        self.assertEqual(oracle.plan(near, 1, 5.0), oracle.Plan(28.0, (0, 0)))
        self.assertEqual(oracle.plan(far, 1, 5.0), oracle.Plan(30.0, (0, 1)))

    def test_no_session_may_move(self) -> None:
        # Moving, the second container could go at 11; without, the two long holds share one that begins a second later.
        holds = [Hold(0.0, 10.0), Hold(1.0, 100.0), Hold(2.0, 9.0), Hold(3.0, 100.0)]
        self.assertEqual(oracle.floor(holds, 2, 0.0), 103.0 + 9.0)
        self.assertEqual(oracle.plan(holds, 2, 0.0).cost, 102.0 + 11.0)
        self.assertEqual(oracle.exact(holds, 2, 0.0), 102.0 + 11.0)

    def test_nothing_costs_nothing(self) -> None:
        self.assertEqual((oracle.floor([], 1, 5.0), oracle.exact([], 1, 5.0)), (0.0, 0.0))
        self.assertEqual(oracle.plan([], 1, 5.0), oracle.Plan(0.0, ()))

    @SHORT
    @given(
        st.lists(st.builds(Hold, st.integers(0, 40).map(float), st.integers(1, 30).map(float)), min_size=1, max_size=6),
        st.integers(1, 3),
        st.sampled_from([0.0, 3.0, 10.0]),
        st.sampled_from([10.0, 25.0, UNBOUNDED]),
    )
    def test_floor_and_plan_enclose_the_exact_least(
        self, holds: list[Hold], limit: int, start: float, until: float
    ) -> None:
        exact = oracle.exact(holds, limit, start)
        plan = oracle.plan(holds, limit, start)
        slack = 1e-9
        self.assertLessEqual(oracle.floor(holds, limit, start), exact + slack)
        self.assertLessEqual(exact, plan.cost + slack)
        self.assertLessEqual(oracle.floor(holds, limit, start, 5.0), oracle.floor(holds, limit, start) + slack)
        self.assertLessEqual(oracle.floor(holds, limit, start, 0.0, until), oracle.floor(holds, limit, start) + slack)
        inside = oracle.plan(holds, limit, start, until).cost
        self.assertLessEqual(oracle.floor(holds, limit, start, 0.0, until), inside + slack)
        self.assertLessEqual(inside, plan.cost + slack)
        for number in set(plan.containers):
            mine = [hold for hold, container in zip(holds, plan.containers, strict=True) if container == number]
            self.assertLessEqual(oracle.crowd(mine), limit)

    @SHORT
    @given(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(0, 5)),
            min_size=1,
            max_size=5,
        ),
        st.integers(1, 3),
    )
    def test_the_floor_holds_for_every_way_to_let_sessions_wait(
        self, holds: list[tuple[int, int, int]], limit: int
    ) -> None:
        punctual = [Hold(float(begins), float(lasts)) for begins, lasts, _ in holds]
        late = [Hold(float(begins + wait), float(lasts)) for begins, lasts, wait in holds]
        self.assertLessEqual(oracle.floor(punctual, limit, 3.0, 5.0), oracle.exact(late, limit, 3.0) + 1e-9)


#: Crowds within a second, so that containers do not come fast enough, and stays that overlap.
crowds = st.builds(
    lambda moment, stays: [Visit(moment + 0.1 * number, stay, number % 2 == 0) for number, stay in enumerate(stays)],
    st.integers(0, 600).map(float),
    st.lists(st.integers(1, 300).map(float), min_size=4, max_size=12),
)
visits = st.lists(crowds, min_size=1, max_size=8).map(
    lambda some: tuple(sorted((visit for crowd in some for visit in crowd), key=lambda visit: visit.arrives))
)
traffics = st.builds(
    Traffic,
    st.just("drawn"),
    visits,
    st.integers(1, 5),
    st.sampled_from([1.0, 10.0]),
    st.sampled_from([1.0, 30.0]),
    st.integers(0, 9),
    st.sampled_from([0.0, 0.5]),
)
policies = st.builds(
    Policy,
    target_concurrency=st.integers(1, 5),
    min_containers=st.integers(0, 2),
    max_containers=st.sampled_from([3, 100]),
    buffer_containers=st.integers(0, 2),
    scaleup_window=st.sampled_from([0.0, 10.0]),
    scaledown_window=st.sampled_from([2.0, 60.0]),
    placement=st.sampled_from(Placement),
)


class PromiseTests(SynchronousTestCase):
    """What holds for any traffic and policy. The simulation's own books raise on a broken promise."""

    def test_random_traffic(self) -> None:
        seen = Counter[str]()

        @SHORT
        @given(traffics, policies)
        def play(traffic: Traffic, policy: Policy) -> None:
            policy = attrs.evolve(policy, target_concurrency=min(policy.target, traffic.max_concurrency))
            outcome = Simulation(traffic, policy).run()
            self.assertEqual(len(outcome.served) + sum(outcome.refusals.values()), len(traffic.visits))
            self.assertEqual((outcome.starts, outcome.cut), (outcome.stops, 0))
            self.assertLessEqual(outcome.fullest, traffic.max_concurrency)
            self.assertLessEqual(outcome.peak, policy.max_containers)
            self.assertLessEqual(least(traffic, outcome), outcome.container_time + 1e-6)
            if policy.max_containers == 100 and not policy.scaleup_window:
                # What waits has its container under way: nobody waits for longer than one start.
                self.assertEqual(outcome.refusals, {})
                self.assertLessEqual(max(outcome.waits, default=0.0), traffic.longest_start + 1e-9)
                seen["in time"] += outcome.queued > 2
            self.assertEqual(Simulation(traffic, policy).run(), outcome)
            seen["refused"] += bool(outcome.refusals)
            seen["full"] += outcome.fullest == traffic.max_concurrency > 1
            seen["many"] += outcome.starts > 5
            seen["stopped early"] += outcome.starts > outcome.peak

        play()
        rare = {what: seen[what] for what in ("in time", "refused", "full", "many", "stopped early") if seen[what] < 3}
        self.assertEqual(rare, {}, "the traffic is too tame to prove anything")


class TraceTests(SynchronousTestCase):
    """The committed traces are what their seeds give, and a piece of one gives the same figures everywhere."""

    def test_the_days_follow_from_their_seeds(self) -> None:
        for name, crowd in traces.workloads().items():
            text = (traces.FOLDER / crowd.arrivals).read_text()
            self.assertEqual(text, traces.format_arrivals(traces.draw_day(crowd.seed, crowd.sessions)), name)
            self.assertEqual(len(traces.day(name).visits), sum(traces.read_arrivals(traces.FOLDER / crowd.arrivals)))

    def test_a_seed_gives_one_traffic(self) -> None:
        seeds = traces.random_seeds()
        self.assertEqual(len(seeds), len(set(seeds)))
        for seed in seeds[:3]:
            self.assertEqual(traces.random_traffic(seed, 0.5), traces.random_traffic(seed, 0.5))
        self.assertNotEqual(traces.random_traffic(seeds[0], 0.5), traces.random_traffic(seeds[1], 0.5))

    def test_the_first_hours_of_the_game(self) -> None:
        trace = first_hours("game", 3.0)
        rows = [judge(setting, trace) for setting in SETTINGS if setting.label in ("pack", "target 0.7, pack")]
        for row in rows:
            self.assertEqual(len(row.outcome.served), len(trace.visits))
            self.assertEqual((row.outcome.refusals, row.outcome.cut), ({}, 0))
            self.assertLessEqual(row.at_max.floor, row.at_max.plan)
            self.assertLessEqual(row.at_max.floor, row.at_target.floor)
            self.assertLessEqual(least(trace, row.outcome), row.outcome.container_time)
            self.assertLessEqual(row.outcome.wait(1.0), trace.longest_start)
        plain, roomy = rows
        self.assertLess(plain.outcome.container_time, roomy.outcome.container_time)
        self.assertLess(roomy.outcome.queued, plain.outcome.queued)
        self.assertEqual(plain.at_max, bounds(trace, trace.max_concurrency))
        tables = "\n".join([*describe(rows), *summarize(rows), *verdict(rows)])
        self.assertIn(f"| {plain.outcome.container_time / 3600:.1f} |", tables)
