"""Children are started without a look at each descriptor of the daemon, and get what they should all the same."""

from __future__ import annotations

import os
from collections.abc import Callable

from twisted.internet import process

from tests.integration.process_case import ProcessTestCase


class LeanStartTests(ProcessTestCase):
    async def test_the_daemons_descriptors_are_not_listed(self) -> None:
        # 5,000 of them cost 20 ms at each start. A Twisted that does it in another way lets this fail, and nothing else.
        def listed() -> list[int]:
            raise AssertionError("listed")

        self.patch(process, "_listOpenFDs", listed)
        container = self.run_container("echo", "hello")
        await self.exit(container)
        self.assertEqual(await self.output(container), ["hello"])

    async def test_where_the_daemons_own_stdin_is_closed_twisteds_way_is_taken(self) -> None:
        calls = []
        twisteds: Callable[..., bool] = process.Process._trySpawnInsteadOfFork

        def observed(*arguments: object) -> bool:
            calls.append(arguments)
            return twisteds(*arguments)

        self.patch(process.Process, "_trySpawnInsteadOfFork", observed)
        saved = os.dup(0)
        os.close(0)
        try:
            container = self.run_container("sh", "-c", "read line; echo got $line; readlink /proc/self/fd/0")
        finally:
            os.dup2(saved, 0)
            os.close(saved)
        await self.exit(container)
        self.assertEqual(len(calls), 1)
        self.assertEqual(await self.output(container), ["got", os.devnull])
