"""The wall clock jumps while functions run: no call is cut short, none is held up, and no session is lost."""

from __future__ import annotations

from pathlib import Path

import sticky
from tests.integration.calls_case import CallsCase
from tests.integration.test_bad_days import FAKETIME

HOURS = 7200


@sticky.remote(timeout=60)
def step(file: str, offset: int) -> tuple[float, int]:
    """How far the clock jumps, in seconds, and how many calls there were."""
    import time

    kept = globals()
    kept["calls"] = kept.get("calls", 0) + 1
    before = time.time()
    with open(file, "w") as there:
        there.write(f"{offset:+}\n")
    return time.time() - before, kept["calls"]


class ClockTests(CallsCase):
    def test_a_jump_under_a_call_neither_ends_it_nor_its_session(self) -> None:
        file = Path(self.mktemp()).resolve()
        file.write_text("+0\n")
        faked = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        given = ", ".join(f'{name} = "{value}"' for name, value in faked.items())
        self.serve(f"[servers.calls]\nenv = {{ {given} }}\nsandbox = {{ snapshot = false, idle_ttl = 60 }}", env=faked)
        self.point()
        with sticky.Session() as session:
            for number, offset in enumerate((HOURS, -HOURS, 0), 1):
                moved, calls = step.bind(session)(str(file), offset)
                self.assertGreater(
                    abs(moved), HOURS / 2, "the jump did not reach the sandbox, so this test shows nothing"
                )
                self.assertEqual(calls, number)
        self.assertEqual(step(str(file), HOURS)[1], 1)

    if not FAKETIME.exists():
        test_a_jump_under_a_call_neither_ends_it_nor_its_session.skip = "faketime is not installed"  # type: ignore[attr-defined]
