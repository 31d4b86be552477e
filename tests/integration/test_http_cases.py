"""Every case of tests/cases/http over real sockets, through the frontend, the exchange and the upstream pool."""

from __future__ import annotations

from tests.edge.http_cases import Case, cases, contradictions
from tests.fakes.containers import RawClient, RecordingContainer, ScriptedContainer, ScriptedProtocol
from tests.fakes.routing import SESSION, TOKEN
from tests.integration.edge_case import EdgeCase, get, read_answers


class RequestCaseTests(EdgeCase):
    async def test_every_request_gets_an_allowed_outcome(self) -> None:
        self.container = RecordingContainer()
        self.start(self.container)
        wrong = []
        count = 0
        for case in cases("requests.jsonl", TOKEN, SESSION.encode()):
            count += 1
            self.container.requests.clear()
            self.container.faults.clear()
            self.container.broken = 0
            client = await self.connect()
            client.transport.write(case.data)
            if case.raw.get("half_close"):
                client.transport.loseWriteConnection()
            wrong += [f"{case.name}: {problem}" for problem in await self.problems(case, client)]
            client.transport.abortConnection()
            await self.until(lambda: not self.context.doors.inside, why=case.name)
            self.assertEqual(self.routing.held, set(), case.name)
            # What the container has yet to hear of this case would be told of the next one.
            self.context.upstreams.drop_idle()
            await self.until(lambda: not self.container.connections, why=case.name)
        self.assertEqual(count, 127)
        self.assertEqual(wrong, [])

    async def problems(self, case: Case, client: RawClient) -> list[str]:
        wanted = len(case.container) + (1 if "then" in case.raw else 0)
        methods = [facts.get("method", "GET").encode() for facts in case.container]
        only_forward = case.outcomes == ["forward"]

        def settled() -> bool:
            if client.lost:
                return True
            answers = read_answers(client.received, False, methods)
            return len(answers) >= wanted if only_forward else bool(answers)

        await self.until(settled, seconds=8, why=f"{case.name}: {client.received[:200]!r}")
        answers = read_answers(client.received, client.lost, methods)
        statuses = [answer.message.status for answer in answers]
        if case.outcomes[0] != "forward" and statuses != [200] and not set(statuses) & {405, 417}:
            await self.until(lambda: client.lost, seconds=8, why=f"{case.name}: the connection stays open")
        complaints = []
        for expected in case.outcomes:
            complaint: list[str] = []
            if isinstance(expected, int):
                if statuses != [expected]:
                    complaint = [f"answers {statuses}"]
                elif self.container.requests or self.container.broken:
                    complaint = ["something went on"]
                elif expected == 405 and not dict(answers[0].message.headers).get("allow"):
                    complaint = ["no Allow"]
            elif expected == "forward":
                complaint = self.not_forwarded(case, statuses)
            elif expected == "abort":
                if self.container.requests or statuses not in ([], [400]):
                    complaint = [f"answers {statuses}, whole requests {self.container.requests}"]
            elif statuses or self.container.requests:
                complaint = ["not just closed"]
            if not complaint:
                return []
            complaints += [f"not {expected}: {part}" for part in complaint]
        return complaints

    def not_forwarded(self, case: Case, statuses: list[int]) -> list[str]:
        expected = [200] * len(case.container) + ([case.raw["then"]] if "then" in case.raw else [])
        if statuses != expected or self.container.broken or self.container.faults:
            return [f"answers {statuses}, broken {self.container.broken}, faults {self.container.faults}"]
        if len(self.container.requests) != len(case.container):
            return [f"{len(self.container.requests)} requests went on"]
        found = []
        for facts, message in zip(case.container, self.container.requests, strict=True):
            found += contradictions(facts, message, TOKEN)
        return found


class ResponseCaseTests(EdgeCase):
    async def test_every_response_gets_an_allowed_outcome(self) -> None:
        self.data = b""

        def answer(connection: ScriptedProtocol) -> None:
            if b"\r\n\r\n" in connection.received:
                connection.transport.write(self.data)
                connection.transport.loseConnection()

        self.start(ScriptedContainer(answer))
        wrong = []
        count = 0
        for case in cases("responses.jsonl", TOKEN, SESSION.encode()):
            count += 1
            self.data = case.data
            method = case.raw.get("method", "GET").encode()
            client = await self.connect()
            client.transport.write(get(method=method, version=case.raw.get("version", "1.1").encode()))
            wrong += [f"{case.name}: {problem}" for problem in await self.problems(case, client, method)]
            client.transport.abortConnection()
            await self.until(lambda: not self.context.doors.inside, why=case.name)
            self.assertEqual(self.routing.held, set(), case.name)
        self.assertEqual(count, 28)
        self.assertEqual(wrong, [])

    async def problems(self, case: Case, client: RawClient, method: bytes) -> list[str]:
        def settled() -> bool:
            return client.lost or bool(read_answers(client.received, False, [method]))

        await self.until(settled, seconds=8, why=f"{case.name}: {client.received[:200]!r}")
        (answer,) = read_answers(client.received, client.lost, [method])
        complaints: list[str] = []
        for expected in case.outcomes:
            if expected == 502:
                complaint = [] if answer.message.status == 502 else [f"answer {answer}"]
            else:
                facts = {name: value for name, value in case.raw.items() if name != "method"}  # that of the request
                complaint = contradictions(facts, answer.message, TOKEN)
                if answer.informational != case.raw.get("informational", []):
                    complaint.append(f"1xx: {answer.informational}")
                if answer.broken != case.raw.get("broken", False):
                    complaint.append(f"broken: {answer.broken}")
            if not complaint:
                return []
            complaints += complaint
        return complaints
