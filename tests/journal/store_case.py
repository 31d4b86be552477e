"""Journals in files of their own, closed with the test."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.core.values import ContainerId, ServerName
from sticky.journal.store import Store

ONE, TWO = ServerName("one"), ServerName("two")
CONTAINER = ContainerId("ct-1")


class StoreCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.stores: list[Store] = []
        self.addCleanup(self.close)

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def open(self, boot: str = "boot-1") -> Store:
        self.stores.append(Store(self.path, boot))
        return self.stores[-1]
