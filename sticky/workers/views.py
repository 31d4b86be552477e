"""What an operator sees of the processes that serve clients: the seats of the pool and whoever has come in. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sticky.iinspection import WorkerView
from sticky.workers.pool import Worker
from sticky.workers.processes import age_of
from sticky.workers.proxies import Member


def views(workers: Sequence[Worker], members: Sequence[Member], now: float) -> list[WorkerView]:
    """The daemon's own workers, then those of an earlier daemon, or that one itself, in the order in which they came."""
    return list(_views(workers, members, now))


def _views(workers: Sequence[Worker], members: Sequence[Member], now: float) -> Iterator[WorkerView]:
    ours = {worker.member for worker in workers}
    for worker in workers:
        age = None if worker.pid is None else now - worker.born
        yield _view(worker.name, worker.state.value, worker.pid, age, max(0, worker.starts - 1), worker.member)
    for member in members:
        if member not in ours:
            yield _view(member.name, "leaving", member.pid, age_of(member.pid), 0, member)


def _view(
    name: str, state: str, pid: int | None, age: float | None, restarts: int, member: Member | None
) -> WorkerView:
    held = () if member is None else tuple(member.proxy.held.values())
    report = {} if member is None else member.report
    return WorkerView(
        name=name,
        state=state,
        pid=pid,
        age=age,
        restarts=restarts,
        clients=int(report.get("clients", 0)),
        websockets=int(report.get("websockets", 0)),
        in_flight=sum(one.in_flight for one in held)
        + (0 if member is None else member.turns.in_flight + member.visits.in_flight),
        sessions=len(held),
        answered=int(report.get("answered", 0)),
    )
