"""Strategies for the Hypothesis machine: limits, and what clients ask for. Small numbers, so that limits are met."""

from __future__ import annotations

from hypothesis import strategies as st

from sticky.core.values import Placement, Policy

ages = st.sampled_from([(120.0, 100.0), (1000.0, 100.0), (80.0, 50.0)])
policies = ages.flatmap(
    lambda age: st.builds(
        Policy,
        max_concurrency=st.sampled_from([3, 2, 1]),
        target_concurrency=st.just(1) | st.none(),
        min_containers=st.sampled_from([0, 1, 2]),
        max_containers=st.sampled_from([3, 2]),
        buffer_containers=st.integers(0, 1),
        max_total_containers=st.none() | st.integers(3, 5),
        scaleup_window=st.sampled_from([0.0, 2.0]),
        scaledown_window=st.sampled_from([2.0, 60.0]),
        startup_timeout=st.just(30.0),
        exit_grace_period=st.sampled_from([0.0, 10.0, 10.0]),
        container_max_age=st.just(age[0]),
        idle_timeout=st.just(20.0),
        max_idle_timeout=st.just(age[1]),
        queue_timeout=st.sampled_from([60.0, 5.0]),
        max_queue=st.sampled_from([1000, 1000, 4]),
        max_queue_per_caller=st.sampled_from([None, None, 3]),
        max_sessions_per_caller=st.sampled_from([1000, 1000, 4]),
        placement=st.sampled_from(Placement),
        session_wait_timeout=st.sampled_from([5.0, 60.0]),
        max_session_waiters=st.sampled_from([100, 1]),
    )
)
callers = st.sampled_from(["ann", "bob"])
idle_timeouts = st.sampled_from([None, None, 1.0, 20.0, 50.0, 90.0, 100.0])
keys = st.none() | st.sampled_from(["k" * 16, "l" * 16])
names = st.sampled_from(["room", "lab"])
