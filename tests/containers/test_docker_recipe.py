"""What the Engine is asked to create, and what its words about an end mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.docker import recipe
from sticky.containers.docker.recipe import DockerOptions
from sticky.containers.docker.verdicts import End, running, verdict
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import ContainerSpec

SPEC = ContainerSpec(
    container=ContainerId("ct-1"),
    server=ServerName("echo"),
    deployment=DeploymentId("d1"),
    app="app",
    command=("serve", "{port}", "{host}"),
    directory=Path("/srv"),
    log=Path("/srv/log"),
    scratch=Path("/srv/run"),
)


def creation(spec: ContainerSpec = SPEC, **options: Any) -> dict[str, Any]:
    return recipe.creation(spec, DockerOptions.read({"image": "app:1", **options}), "home", 20_001)


class CreationTests(SynchronousTestCase):
    def test_a_published_port_and_where_the_program_listens(self) -> None:
        for port, inside in ((None, "8000"), (9000, "9000")):
            body = creation(attrs.evolve(SPEC, port=port))
            self.assertEqual(body["Cmd"], ["serve", inside, "0.0.0.0"])
            self.assertIn(f"PORT={inside}", body["Env"])
            self.assertIn("STICKY_HOST=0.0.0.0", body["Env"])
            self.assertEqual(body["ExposedPorts"], {f"{inside}/tcp": {}})
            bindings = {f"{inside}/tcp": [{"HostIp": "127.0.0.1", "HostPort": "20001"}]}
            self.assertEqual(body["HostConfig"]["PortBindings"], bindings)

    def test_on_the_machines_network_it_listens_on_loopback_where_it_is_reached(self) -> None:
        body = creation(network="host")
        self.assertEqual(body["Cmd"], ["serve", "20001", "127.0.0.1"])
        self.assertEqual(body["HostConfig"]["NetworkMode"], "host")
        self.assertNotIn("PortBindings", body["HostConfig"])

    def test_the_images_path_is_kept_unless_another_is_given(self) -> None:
        self.assertFalse([one for one in creation()["Env"] if one.startswith("PATH=")])
        self.assertIn("PATH=/own", creation(attrs.evolve(SPEC, env={"PATH": "/own"}))["Env"])

    def test_python_writes_at_once_unless_the_server_says_otherwise(self) -> None:
        self.assertIn("PYTHONUNBUFFERED=1", creation()["Env"])
        self.assertIn("PYTHONUNBUFFERED=", creation(attrs.evolve(SPEC, env={"PYTHONUNBUFFERED": ""}))["Env"])

    def test_without_a_command_the_images_own_runs(self) -> None:
        self.assertNotIn("Cmd", creation(attrs.evolve(SPEC, command=())))

    def test_labels_tell_whose_it_is(self) -> None:
        self.assertEqual(
            creation()["Labels"],
            {
                "sticky.container": "ct-1",
                "sticky.server": "echo",
                "sticky.deployment": "d1",
                "sticky.port": "20001",
                "sticky.state-dir": "home",
            },
        )
        self.assertEqual(recipe.port_of(creation()["Labels"]), 20_001)

    def test_limits(self) -> None:
        host = creation(memory=1 << 20, cpus=0.5, pids=7)["HostConfig"]
        self.assertEqual(
            (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]), (1 << 20, 1 << 20, 5 * 10**8, 7)
        )
        for limit in ("Memory", "MemorySwap", "NanoCpus", "PidsLimit"):
            self.assertNotIn(limit, creation()["HostConfig"])

    def test_a_read_only_root_has_a_tmp_of_its_own(self) -> None:
        self.assertIn("/tmp", creation(read_only=True)["HostConfig"]["Tmpfs"])

    def test_mounts_of_paths_and_volumes(self) -> None:
        mounts = creation(mounts=["/a:/b:ro", "data:/data"])["HostConfig"]["Mounts"]
        self.assertEqual(
            [(one["Type"], one["Source"], one["ReadOnly"]) for one in mounts],
            [("bind", "/a", True), ("volume", "data", False)],
        )
        for wrong in ("/a", "/a:b", ":/b", "/a:/b:x"):
            self.assertRaises(ValueError, creation, mounts=[wrong])

    def test_what_cannot_be_had_is_refused(self) -> None:
        self.assertRaises(ValueError, creation, attrs.evolve(SPEC, reports_ready=True))
        self.assertRaises(ValueError, creation, attrs.evolve(SPEC, command=("serve", "{socket}")))
        for options in ({}, {"image": ""}, {"image": "a", "network": "mars"}, {"image": "a", "what": 1}):
            self.assertRaises(ValueError, DockerOptions.read, options)

    def test_a_pull_asks_for_one_tag(self) -> None:
        self.assertEqual(recipe.pull_parameters("r:5000/app"), {"fromImage": "r:5000/app", "tag": "latest"})
        self.assertEqual(recipe.pull_parameters("r:5000/app:2"), {"fromImage": "r:5000/app:2"})
        self.assertEqual(recipe.pull_parameters("app@sha256:00"), {"fromImage": "app@sha256:00"})


class VerdictTests(SynchronousTestCase):
    def told(self, end: End, *lines: str, ready: bool = True, memory: int | None = None) -> tuple[object, ...]:
        exit = verdict(SPEC, end, ready, lines, memory)
        self.assertEqual(exit.last_lines, lines)
        self.assertTrue(exit.message)
        return exit.detail, exit.status, exit.signal

    def test_statuses_and_signals(self) -> None:
        self.assertEqual(self.told(End(3)), ("exited", 3, None))
        self.assertEqual(self.told(End(143)), ("killed", None, 15))
        self.assertEqual(self.told(End(255)), ("exited", 255, None))

    def test_memory(self) -> None:
        self.assertEqual(self.told(End(137, out_of_memory=True), memory=5), ("out_of_memory", None, 9))
        self.assertEqual(self.told(End(1, out_of_memory=True)), ("out_of_memory", None, 9))
        self.assertEqual(self.told(End(0, out_of_memory=True)), ("exited", 0, None))  # only a helper of its was killed

    def test_a_program_that_the_image_does_not_have(self) -> None:
        tini = "[FATAL tini (7)] exec serve failed: No such file or directory"
        catatonit = "ERROR (catatonit:2): failed to exec pid1: No such file or directory"
        for status, line in ((127, tini), (1, catatonit)):
            exit = verdict(SPEC, End(status), False, (line,), None)
            self.assertEqual((exit.detail, exit.status), ("failed", None))
            self.assertIn("command not found in the image: serve", exit.message)
        self.assertEqual(self.told(End(127), "sh: serve: not found", ready=False), ("exited", 127, None))
        self.assertEqual(self.told(End(127), tini, ready=True), ("exited", 127, None))

    def test_the_engines_own_error(self) -> None:
        self.assertEqual(self.told(End(128, error="no such device"), ready=False), ("failed", None, None))

    @given(
        st.dictionaries(
            st.sampled_from(["ExitCode", "OOMKilled", "Error", "Running", "Status"]),
            st.none() | st.booleans() | st.integers() | st.text(),
        )
    )
    def test_no_state_makes_it_fail(self, state: dict[str, object]) -> None:
        self.assertIn(running(state), (True, False))
        verdict(SPEC, End.of(state), False, (), None)
