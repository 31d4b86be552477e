"""Container backends are found by name and imported when they are used."""

from __future__ import annotations

from twisted.plugin import IPlugin
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from sticky.containers.plugins import BackendPlugin, IBackendPlugin, installed
from sticky.isticky import IContainerBackend


class InstalledTests(SynchronousTestCase):
    def test_child_processes_are_built_in(self) -> None:
        backend = installed()["process"].load()
        self.assertTrue(IContainerBackend.implementedBy(backend))
        self.assertEqual(getattr(backend, "name", None), "process")

    def test_a_plugin_is_one(self) -> None:
        plugin = BackendPlugin("mine", "os.path.join")
        self.assertTrue(verifyObject(IBackendPlugin, plugin))
        self.assertTrue(IPlugin.providedBy(plugin))

    def test_what_is_not_there_fails_only_when_loaded(self) -> None:
        plugin = BackendPlugin("gone", "sticky.containers.gone.Backend")
        self.assertRaises(AttributeError, plugin.load)
