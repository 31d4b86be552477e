"""Streamlit beyond one container: a visitor's session_state lives in the container that has the visitor's session.

pip install -r requirements.txt && sticky serve app.py
"""

import sys
from pathlib import Path

import sticky

app = sticky.App("streamlit")
PAGE = Path(__file__).with_name("page.py")


@app.server(
    command=[
        *(sys.executable, "-m", "streamlit", "run", str(PAGE)),
        *("--server.address", "{host}", "--server.port", "{port}"),
        *("--server.headless", "true", "--browser.gatherUsageStats", "false"),
    ],
    ready={"path": "/_stcore/health"},
    startup_timeout=60,
    max_containers=4,
)
@sticky.sessioned(max_concurrency=2)  # visitors to a container; a real app bears more
class Visitors:
    """Nothing to add: the command above is the container."""
