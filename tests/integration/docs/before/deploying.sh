cat > sticky.toml <<'TOML'
[servers.files]
command = ["python3", "-m", "http.server", "{port}", "--bind", "{host}"]
TOML
mkdir -p releases/42 && cp sticky.toml releases/42
setsid twistd -n --pidfile= sticky --config sticky.toml > log 2>&1 < /dev/null &
DAEMON_PID=$!
until [ -s state/url ]; do sleep 0.1; done
