"""Named sessions at a Server at work: durable before they are answered, and no name left by a start that failed."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from sticky import errors
from sticky.core.tokens import Claims
from sticky.core.values import Caller, DeploymentId
from sticky.isticky import Credentials, StartRequest
from tests.fakes.routing import at_once
from tests.test_service import NAME, Holder, ServiceCase


class NamedServiceTests(ServiceCase):
    def use(self, name: str = "notebook") -> Deferred[Credentials]:
        return self.service.start(StartRequest(NAME, Caller("dev"), "dev", None, name=name))

    def test_the_second_use_gets_a_token_of_the_same_session(self) -> None:
        self.build()
        first, second = self.use(), self.use()
        self.ready()
        third = self.use()
        answers = [self.successResultOf(answer) for answer in (first, second, third)]
        self.assertEqual(len({answer.session for answer in answers}), 1)
        self.assertEqual([answer.created for answer in answers], [True, True, False])
        self.assertEqual(self.listed()[0].name, "notebook")

    def test_a_release_is_answered_after_its_commit(self) -> None:
        self.build()
        self.use()
        self.ready()
        self.journal.slow = True
        done = self.service.release("dev", "notebook", None)
        self.assertNoResult(done)
        self.journal.commit()
        self.successResultOf(done)
        self.assertEqual(self.listed(), [])
        for end, error in ((self.journal.fail, errors.StorageFailed), (self.journal.commit, errors.UnknownName)):
            again = self.service.release("dev", "notebook", None)
            self.assertNoResult(again)
            end()
            self.failureResultOf(again, error)
        self.journal.slow = False
        self.assertRaises(errors.UnknownName, self.service.release, "dev", "notebook", None)

    def test_a_start_that_could_not_be_made_durable_leaves_the_name_free(self) -> None:
        self.build(min_containers=1)
        self.ready()
        self.journal.slow = True
        answer = self.use()
        self.journal.fail()
        self.failureResultOf(answer, errors.StorageFailed)
        self.journal.slow = False
        again = self.successResultOf(self.use())
        self.assertTrue(again.created)

    def test_an_expired_name_is_refused_with_the_reason(self) -> None:
        self.build()
        self.use()
        container = self.ready()
        container.kill()
        self.clock.advance(1)
        error = self.failureResultOf(self.use(), errors.SessionExpired).value
        self.assertEqual((error.status, error.reason), (410, "container_lost"))

    def test_an_expired_name_and_one_whose_session_drains_can_be_released(self) -> None:
        self.build()
        self.use("drains")
        self.ready()
        (session,) = self.listed()
        claims = Claims(session.session, NAME, DeploymentId("dp-1"), session.container, 0, 0)
        at_once(self.service.begin(claims, Holder()))
        self.service.terminate(claims, None)
        self.failureResultOf(self.use("drains"), errors.SessionExpired)
        self.successResultOf(self.service.release("dev", "drains", None))
        self.assertTrue(self.successResultOf(self.use("drains")).created)
        self.backend.spawned[0].kill()
        self.clock.advance(1)
        self.failureResultOf(self.use("drains"), errors.SessionExpired)
        self.successResultOf(self.service.release("dev", "drains", None))

    def test_nothing_is_released_while_the_disk_fails(self) -> None:
        self.build()
        self.use()
        self.ready()
        self.journal.works = False
        self.failureResultOf(self.service.release("dev", "notebook", None), errors.StorageFailed)
        self.assertEqual(len(self.listed()), 1)
