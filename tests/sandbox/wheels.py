"""A package that no index has, as a wheel in a folder."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

NAME, MODULE, VERSION = "sticky-test-tiny", "sticky_test_tiny", "1.2"
ANSWER = 42


def make_wheel(folder: Path) -> None:
    """Whose module has a function `answer`."""
    info = f"{MODULE}-{VERSION}.dist-info"
    files = {
        f"{MODULE}.py": f"def answer(): return {ANSWER}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}"
        for name, text in files.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{MODULE}-{VERSION}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))


def settings(folder: Path) -> dict[str, str]:
    """The environment in which pip and uv find that package, and nothing on any network."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(folder),
        "UV_CACHE_DIR": str(folder / "cache"),
    }
