"""Python environments with large packages of others, for long tests. Made once, and kept in a folder that git ignores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.integration.running_daemon import ROOT
from tests.integration.sharing import only_one

KEPT = ROOT / ".long"
INSTALLING = 900  #: seconds
WANTED = ("streamlit", "gradio")  #: folders of examples, with their requirements.txt


def web_apps() -> Path:
    """The programs of an environment with what both examples require, and what the tests' own has, Sticky included.

    Skips the test where STICKY_LONG_TESTS is not set, or they cannot be installed.
    """
    if not os.environ.get("STICKY_LONG_TESTS"):
        raise SkipTest("Streamlit and Gradio are large to install: set STICKY_LONG_TESTS=1")
    KEPT.mkdir(exist_ok=True)
    with only_one(KEPT):
        return _made()


def _made() -> Path:
    files = [ROOT / "examples" / name / "requirements.txt" for name in WANTED]
    wanted = "".join(path.read_text() for path in files) + sys.version + sys.prefix
    folder = KEPT / "web-apps"
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALLING)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for path in files:
            install += ["-r", str(path)]
        done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALLING)
        if done.returncode:
            raise SkipTest(f"they cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
        _add_ours(folder)
        stamp.write_text(wanted)
    return folder / "bin"


def _add_ours(folder: Path) -> None:
    """What the tests' environment has, behind the new one's own: its own versions count."""
    [packages] = folder.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "tests.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
    for name in ("sticky", "twistd"):
        script = Path(sys.executable).with_name(name).read_text().partition("\n")[2]
        (folder / "bin" / name).write_text(f"#!{folder / 'bin' / 'python'}\n{script}")
        (folder / "bin" / name).chmod(0o755)
