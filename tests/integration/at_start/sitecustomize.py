"""Found by the Python of a daemon and its workers in `test_garbage`: what they leave to the garbage collector is told on demand.

SIGUSR1: collect, and then never again. SIGUSR2: tell what there is to collect, by kind, in `{pid}.json` of the folder that
STICKY_TEST_GARBAGE names.
"""

from __future__ import annotations

import gc
import json
import os
import signal
from pathlib import Path

from tests.fakes.garbage import collected


def _begin(number: int, frame: object) -> None:
    gc.collect()
    gc.disable()
    _tell({})


def _end(number: int, frame: object) -> None:
    _tell(collected())


def _tell(what: dict[str, int]) -> None:
    whole = Path(os.environ["STICKY_TEST_GARBAGE"], f"{os.getpid()}.json")
    part = whole.with_suffix(".part")
    part.write_text(json.dumps(what))
    part.replace(whole)


if "STICKY_TEST_GARBAGE" in os.environ:
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _end)
