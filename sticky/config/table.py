"""The one table of settings: name, kind, default, help and what a change means. Reading and documentation follow it.

A setting is added here and nowhere else. Defaults of limits are those of `core.values.Policy`. Must not read files.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from sticky.config import commands, listeners
from sticky.config.forms import (
    LOG_TARGET,
    host_name,
    log_target,
    network,
    origin,
    public_url,
    secret,
    secret_hash,
    token_id,
)
from sticky.config.kinds import (
    Arguments,
    FilePath,
    Flag,
    Kind,
    ManyOf,
    Moment,
    OneOf,
    Parsed,
    Readiness,
    Seconds,
    Secrets,
    Text,
    Variables,
    Whole,
)
from sticky.config.sandboxes import module, requirement
from sticky.config.subtables import Number, SubTable, local_socket, mount, size, writable
from sticky.core.values import MAX_SESSIONS, Placement, Policy


class Change(Enum):
    """What it takes for a changed value to take effect."""

    LIVE = "live"
    DEPLOYMENT = "new deployment"
    RESTART = "restart"


REQUIRED = object()  #: a default that says that there is none


@attrs.frozen
class Setting:
    """One row."""

    name: str
    kind: Kind
    default: Any  #: for the program, as `kind` would have read it; REQUIRED if it must be given
    change: Change
    help: str
    unset: str = attrs.field(kw_only=True, default="")  #: what a default of None means
    #: What this version can do; empty: all that is allowed.
    only: tuple[object, ...] = attrs.field(kw_only=True, default=())
    secret: bool = attrs.field(kw_only=True, default=False)  #: the raw value never appears in an error


LIVE, DEPLOYMENT, RESTART = Change
_LIMIT = {field.name: field.default for field in attrs.fields(Policy)}
_MONTH = 30 * 86_400

#: What a Server's own variables must not hide: readiness and the search for strays rely on it.
CONTAINER_VARIABLES = (
    "PORT",
    "STICKY_PORT",
    "STICKY_HOST",
    "STICKY_CONTAINER_ID",
    "STICKY_STATE",
    "STICKY_READY_FD",
    "STICKY_READY_FILE",
)

#: What a Server may be called: the name of its table.
SERVER_NAME = Text(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}", "1 to 63 letters, digits and _ . - (no . or - in front)")

_ENDPOINT = Parsed(listeners.endpoint, listeners.ALLOWED)
_ADMIN_ENDPOINT = Parsed(listeners.tcp_endpoint, "tcp: or ssl: endpoint strings such as tcp:9443:interface=127.0.0.1")
_HOSTS = ManyOf(Parsed(host_name, "a host name or IP address without scheme and port, such as echo.localhost or [::1]"))
_ORIGINS = ManyOf(Parsed(origin, "an origin such as https://example.org or http://localhost:3000"))
_URL = Parsed(public_url, "http:// or https:// with a host and perhaps a port, such as https://echo.example.org")
_MODULE = Parsed(module, "a module's name, such as numpy or sklearn.svm")
_NETWORKS = ManyOf(Parsed(network, "an IP address or network such as 10.0.0.0/8"))

# fmt: off
DAEMON = (
    Setting("listen", ManyOf(_ENDPOINT, at_least=1), ("tcp:8080:interface=127.0.0.1",), RESTART,
            "Where clients connect: Twisted endpoint strings. TLS is an `ssl:` endpoint."),
    Setting("admin", Text(r"unix:.+", "a unix: endpoint string; {state_dir} in it stands for the state directory"),
            "unix:{state_dir}/admin.sock", RESTART,
            "Where the admin API listens, which the `sticky` command uses: a socket of mode 0600 that takes only the daemon's "
            "own user and root."),
    Setting("admin_listen", ManyOf(_ADMIN_ENDPOINT), (), RESTART,
            "Where the admin API listens besides, for the `sticky` command elsewhere (`--url`): needs a proxy token with "
            "`admin`. Over a network use `ssl:`, or a proxy in front that speaks TLS."),
    Setting("admin_hosts", _HOSTS, (), RESTART,
            "Host names by which it is known there. IP addresses and names of this machine always are."),
    Setting("state_dir", FilePath(), None, RESTART,
            "Keys, the development proxy token, sockets and containers' output are kept here.",
            unset="`state` beside the file; with `--app` alone `./state`"),
    Setting("brand", Text(r"[a-z][a-z0-9]{0,31}", "1 to 32 lower-case letters and digits, a letter first"), "modal",
            RESTART, "The one word in every name on the wire: `modal` gives `/_modal/…` and `Modal-Authorization`."),
    Setting("workers", Whole(1, 64), 1, RESTART, "Processes that share the listeners; with 1 the daemon itself serves."),
    Setting("trusted_proxies", _NETWORKS, (), RESTART, "Peers whose `X-Forwarded-*` fields are believed."),
    Setting("shutdown_timeout", Seconds(1, 7200), 45.0, RESTART,
            "Longest time from SIGTERM to the end of the daemon; what still runs then is killed."),
    Setting("drain_timeout", Seconds(0, 604_800), 3600.0, RESTART,
            "How long an earlier daemon, or its workers, may go on serving the connections that were open at a `sticky restart`; "
            "WebSockets are closed with 1012 then, and may come back."),
    Setting("ephemeral", Flag(), False, RESTART,
            "Whether containers die with the daemon, however it ends, and nothing is kept for the next one."),
    Setting("access_log", Parsed(log_target, LOG_TARGET), "-", RESTART,
            "Where a line for each request goes: a file (it may be rotated by renaming), `-` for standard output, which a "
            "daemonized twistd does not have, or `off`. A reader who stops loses lines; requests never wait for it."),
    Setting("access_log_format", OneOf(("combined", "json")), "combined", RESTART, "How these lines are written."),
    Setting("max_connections", Whole(1, 1_000_000), None, RESTART,
            "Clients' connections at most; more wait in the kernel's backlog.", unset="what the limit of open files leaves"),
    Setting("max_connections_per_client", Whole(1, 1_000_000), None, RESTART,
            "Connections of one client address at most; more are closed.", unset="half of `max_connections`"),
    Setting("max_head_size", Whole(1_024, 1_048_576), 65_536, RESTART,
            "Bytes of a request's or a response's head at most."),
    Setting("max_head_fields", Whole(8, 10_000), 256, RESTART, "Field lines of a head at most."),
    Setting("max_target_size", Whole(256, 1_048_576), 16_384, RESTART, "Bytes of a request's method and target at most."),
    Setting("head_timeout", Seconds(0.1, 3600), 20.0, RESTART, "How long a request's head may take."),
    Setting("keep_alive_timeout", Seconds(1, 86_400), 75.0, RESTART,
            "How long a client's connection stays open between two requests."),
    Setting("connect_timeout", Seconds(0.1, 300), 5.0, RESTART, "How long a connection to a container may take."),
    Setting("min_body_rate", Whole(0, 1_000_000_000), 0, RESTART,
            "Bytes a second of a request's body below which a client that could send is cut off, over ten seconds; 0: no "
            "floor."),
)

PROXY_TOKEN = (
    Setting("id", Parsed(token_id, "wk- and 1 to 64 letters, digits, - or _"), REQUIRED, LIVE,
            "The public half, `wk-…`."),
    Setting("secret_hash", Parsed(secret_hash, "blake2b: or blake2b-keyed: and 64 hex digits"), None, LIVE,
            "The hash of the secret half, such as `blake2b:` and what `printf %s \"$SECRET\" | b2sum -l 256` prints. Either "
            "this or `secret` is given.", unset="`secret` is given", secret=True),
    Setting("secret", Parsed(secret, "ws- and 1 to 200 letters, digits, - or _; or env:NAME, a variable that holds it"),
            None, LIVE, "The secret half: `env:NAME` takes it from the environment. Written out as `ws-…` it is for "
            "development and warns.", unset="`secret_hash` is given", secret=True),
    Setting("owner", Text(r"[\x21-\x7e]{1,128}", "1 to 128 visible ASCII characters"), REQUIRED, LIVE,
            "Whom limits count and whose sessions are listed. Several tokens may share one."),
    Setting("servers", ManyOf(Text(r"\*|" + SERVER_NAME.pattern, 'a Server\'s name or "*"'), at_least=1), ("*",), LIVE,
            "The Servers it is valid for."),
    Setting("expires_at", Moment(), None, LIVE, "From then on it is refused.", unset="never"),
    Setting("admin", Flag(), False, LIVE, "Whether it may use the admin API, once that listens on TCP as well."),
)

DOCKER = (
    Setting("image", Text(r"[\x21-\x7e]{1,255}", "an image's name or id, such as registry.example.org/game:3"), REQUIRED,
            DEPLOYMENT, "What the Engine runs. `command` is given to it as `docker run` would; without one the image's own."),
    Setting("network", OneOf(("publish", "host")), "publish", DEPLOYMENT,
            "`publish`: a network of its own, and `port` (else 8000) of it is published on 127.0.0.1. `host`: the machine's "
            "network, without isolation."),
    Setting("memory", Parsed(size, 'bytes with k, m or g, such as "512m"'), None, DEPLOYMENT,
            "Memory of a container at most, swap included; what needs more ends (`out_of_memory`).", unset="no limit"),
    Setting("cpus", Number(0.01, 1024), None, DEPLOYMENT, "Processors' time of a container at most.", unset="no limit"),
    Setting("pids", Whole(1, 1_000_000), None, DEPLOYMENT, "Processes and threads of a container at most.",
            unset="no limit"),
    Setting("user", Text(r"[A-Za-z0-9_.:-]{1,128}", "a user, or user:group, by name or number"), None, DEPLOYMENT,
            "Who the program runs as.", unset="the image's own"),
    Setting("workdir", Text(r"/[^\0]*", "an absolute path in the container"), None, DEPLOYMENT,
            "The program's working directory.", unset="the image's own"),
    Setting("read_only", Flag(), False, DEPLOYMENT, "Nothing can be written but to mounts and a /tmp in memory."),
    Setting("mounts", ManyOf(Parsed(mount, '"source:/target" or "source:/target:ro", the source a path or a volume')), (),
            DEPLOYMENT, "What of the machine a container sees."),
    Setting("init", Flag(), True, DEPLOYMENT,
            "The Engine's small init runs as first process, so that SIGTERM ends programs that do not handle it."),
    Setting("pull", Flag(), False, DEPLOYMENT, "An image that the Engine does not have is pulled when it is needed."),
    Setting("socket", Parsed(local_socket, "the path of a Unix socket"), "/var/run/docker.sock", DEPLOYMENT,
            "Where the Engine listens; of Podman /run/podman/podman.sock."),
)

SANDBOX = (
    Setting("preimport", ManyOf(_MODULE), (), DEPLOYMENT, "Modules that are imported before the first call."),
    Setting("packages", ManyOf(Parsed(requirement, "a package's name, perhaps with a version, such as pandas==2.2.3")), (),
            DEPLOYMENT, "Packages from PyPI, installed once (by pip; by uv where there is no pip) and kept in the state directory."),
    Setting("idle_ttl", Seconds(0, _MONTH), 300.0, DEPLOYMENT,
            "How long a sandbox waits for its session's next call; 0: for as long as `container_max_age` allows."),
    Setting("python", Text(r"[^\0]+", "the path of an interpreter that has sticky and cloudpickle installed"), None, DEPLOYMENT,
            "What runs the calls.", unset="the daemon's own interpreter"),
    Setting("snapshot", Flag(), True, DEPLOYMENT,
            "Sandboxes are forked from a process that has imported what they need. Without it each imports for itself."),
)

ISOLATION = (
    Setting("network", Flag(), False, DEPLOYMENT,
            "A network namespace of its own, with nothing but its loopback: a program with a hard-coded port runs in many "
            "copies, and reaches nothing but itself, nor does anything but the daemon reach it. Takes root."),
    Setting("read_only", Flag(), False, DEPLOYMENT,
            "Nothing of the machine's files can be written but `writable`; /tmp, /var/tmp and /dev are its own, and the state "
            "directory is not there. Takes bubblewrap."),
    Setting("private_tmp", Flag(), False, DEPLOYMENT,
            "/tmp, /var/tmp and /dev are its own, in memory, and the state directory is not there. Takes bubblewrap."),
    Setting("writable", ManyOf(Parsed(writable, "an existing path")), (), DEPLOYMENT,
            "What can be written under `read_only`, or is the machine's own in a private /tmp."),
    Setting("descendants", OneOf(("cgroup", "pid_namespace", "best_effort")), None, DEPLOYMENT,
            "How it is made sure that nothing that a container started stays after it.",
            unset="`cgroup` where the daemon may write to one, else `best_effort`"),
)

_LIMITS = (("nofile", "Open files"), ("nproc", "Processes of the user"), ("core", "Bytes of a core dump"),
           ("fsize", "Bytes of a file"), ("data", "Bytes of data"), ("stack", "Bytes of stack"),
           ("as", "Bytes of address space"), ("memlock", "Bytes of locked memory"), ("cpu", "Seconds of processors' time"))
RLIMITS = tuple(
    Setting(name, Whole(0, (1 << 63) - 1), None, DEPLOYMENT, f"{what} at most.", unset="the daemon's own")
    for name, what in _LIMITS
)

SERVER = (
    Setting("hosts", _HOSTS, (), LIVE,
            "Host names that reach this Server. With one Server it may be left out: then any Host does, and on an "
            "unauthenticated one IP addresses and localhost names. With several Servers each needs its own."),
    Setting("url", _URL, None, LIVE, "What clients see.", unset="from the Host and the listener's scheme"),
    Setting("command", Arguments(commands.check, commands.ALLOWED), None, DEPLOYMENT,
            "What a container runs. It listens on `{port}`, or on the `PORT` of its environment.",
            unset="the app's class"),
    Setting("directory", FilePath(), None, DEPLOYMENT, "The containers' working directory.",
            unset="the folder of the file; of an app the folder it was started from"),
    Setting("preimport", ManyOf(_MODULE), (), DEPLOYMENT,
            "For an app's class: modules that are imported before it, once for all containers, which are forked from the process "
            "that did (sdk.md)."),
    Setting("snapshot", Flag(), True, DEPLOYMENT,
            "For an app's class with `enter(snap=True)` hooks or `preimport`: containers are forked from a process that has done "
            "all that once. Without it each does it for itself."),
    Setting("backend", Text(r"[a-z0-9_-]{1,32}", "the name of an installed container backend"), "process", DEPLOYMENT,
            "How containers are run."),
    Setting("docker", SubTable(DOCKER, REQUIRED, "a table with an image, such as { image = \"game:3\" }"), None, DEPLOYMENT,
            "For `backend = \"docker\"`; see the table below.", unset="none"),
    Setting("sandbox", SubTable(SANDBOX, REQUIRED, "a table such as { preimport = [\"numpy\"] }"), None, DEPLOYMENT,
            "The Server runs function calls (calls.md) instead of a program: see the table below.", unset="none"),
    Setting("isolation", SubTable(ISOLATION, REQUIRED, "a table such as { network = true }"), None, DEPLOYMENT,
            "For `backend = \"process\"`: what containers are kept from; see the table below and isolation.md.",
            unset="a plain child process"),
    Setting("memory", Parsed(size, 'bytes with Ki, Mi or Gi, such as "512Mi"'), None, DEPLOYMENT,
            "Memory of a container at most, swap included; what needs more ends (`out_of_memory`). By cgroup.",
            unset="no limit"),
    Setting("cpu", Number(0.01, 1024), None, DEPLOYMENT, "Processors' time of a container at most. By cgroup.",
            unset="no limit"),
    Setting("pids", Whole(1, 1_000_000), None, DEPLOYMENT, "Processes and threads of a container at most. By cgroup.",
            unset="no limit"),
    Setting("rlimits", SubTable(RLIMITS, REQUIRED, "a table such as { nofile = 4096, core = 0 }"), None, DEPLOYMENT,
            "Limits of each process, soft and hard; see the table below.", unset="the daemon's own"),
    Setting("user", Text(r"[A-Za-z0-9_.-]{1,64}(:[A-Za-z0-9_.-]{1,64})?", "a user, or user:group, by name or number"), None,
            DEPLOYMENT, "Who containers run as. Takes root.", unset="the daemon's own"),
    Setting("port", Whole(1, 65535), None, DEPLOYMENT,
            "Where the program listens if it takes neither `{port}` nor `PORT`. Then only one copy can run, but with "
            "`isolation.network`.",
            unset="each copy gets its own"),
    Setting("ready", Readiness(), None, DEPLOYMENT,
            "When a container counts as ready: its port is open, or a GET of the path answers with a status under 400.",
            unset='`"port"`'),
    Setting("env", Variables(CONTAINER_VARIABLES), {}, DEPLOYMENT,
            "More environment variables. Containers inherit PATH, HOME, LANG, LC_*, TZ and TMPDIR, nothing else. "
            "PYTHONUNBUFFERED is 1 unless it is set here or for the daemon.",
            secret=True),
    Setting("secrets", Secrets(CONTAINER_VARIABLES), {}, DEPLOYMENT,
            "Environment variables whose values are taken from the daemon's environment, or are a file's text.", secret=True),
    Setting("sessioned", Flag(), _LIMIT["sessioned"], LIVE,
            "Whether requests need a session. Without sessions any request goes to any container; see docs/plain-servers.md."),
    Setting("unauthenticated", Flag(), False, LIVE,
            "Anyone may start and terminate sessions, or send requests to a plain Server, without a proxy token."),
    Setting("public_names", Flag(), False, LIVE,
            "On an unauthenticated Server too, clients may name their sessions: whoever knows a name gets its session."),
    Setting("max_concurrency", Whole(1, MAX_SESSIONS), _LIMIT["max_concurrency"], LIVE,
            "Sessions that a container holds at most; of a plain Server, requests in flight."),
    Setting("target_concurrency", Whole(1, MAX_SESSIONS), _LIMIT["target_concurrency"], LIVE,
            "Sessions (or requests) that a container should hold: above it another one is started.", unset="`max_concurrency`"),
    Setting("min_containers", Whole(0, 10_000), _LIMIT["min_containers"], LIVE,
            "Containers that run without any demand."),
    Setting("max_containers", Whole(1, 10_000), _LIMIT["max_containers"], LIVE, "Containers of a deployment at most."),
    Setting("buffer_containers", Whole(0, 10_000), _LIMIT["buffer_containers"], LIVE,
            "Extra open containers while there is any demand."),
    Setting("scaleup_window", Seconds(0, 3600), _LIMIT["scaleup_window"], LIVE,
            "How long demand must hold before another container starts. The first one starts at once."),
    Setting("scaledown_window", Seconds(2, 3600), _LIMIT["scaledown_window"], LIVE,
            "How long a container must be without a session, or a request, before it is stopped."),
    Setting("startup_timeout", Seconds(0.1, 3600), _LIMIT["startup_timeout"], LIVE,
            "How long a container may take to be ready."),
    Setting("max_total_containers", Whole(1, 10_000), _LIMIT["max_total_containers"], LIVE,
            "Containers of all deployments together.", unset="twice `max_containers`"),
    Setting("max_idle_timeout", Seconds(1, _MONTH), _LIMIT["max_idle_timeout"], LIVE,
            "The longest idle timeout that a client may ask for.", unset="half of `container_max_age`"),
    Setting("max_queue_per_caller", Whole(1, 100_000), _LIMIT["max_queue_per_caller"], LIVE,
            "Starts of one caller that wait at most. A caller is an owner of proxy tokens, or a client address.",
            unset="`max_queue`; 100 on an unauthenticated Server"),
    Setting("max_sessions_per_caller", Whole(1, 1_000_000), _LIMIT["max_sessions_per_caller"], LIVE,
            "Sessions of one caller at most."),
    Setting("half_close_timeout", Seconds(0, 3600), 10.0, LIVE,
            "How long an answer may make no progress towards a client that has closed its sending side."),
    Setting("allowed_origins", _ORIGINS, (), LIVE, "Origins besides the Server's own whose pages may use its cookie."),
    Setting("exit_grace_period", Seconds(0, 3600), _LIMIT["exit_grace_period"], LIVE,
            "How long work in flight goes on before a stopping container gets SIGTERM."),
    Setting("container_max_age", Seconds(2, _MONTH), _LIMIT["container_max_age"], DEPLOYMENT,
            "A container's age limit; its sessions end with it."),
    Setting("idle_timeout", Seconds(1, _MONTH), _LIMIT["idle_timeout"], LIVE,
            "A session ends after this long with nothing in flight. For sessions that name none."),
    Setting("queue_timeout", Seconds(1, 300), _LIMIT["queue_timeout"], LIVE, "How long a start waits for a container."),
    Setting("max_queue", Whole(1, 100_000), _LIMIT["max_queue"], LIVE, "Starts that wait at most."),
    Setting("placement", OneOf(tuple(Placement)), _LIMIT["placement"], LIVE,
            "Among containers with room: `spread` takes the emptiest, `pack` the fullest one below its target."),
    Setting("serial", Flag(), False, DEPLOYMENT,
            "One request at a time in each session; the others wait in line. WebSockets take no turn."),
    Setting("session_wait_timeout", Seconds(1, 3600), _LIMIT["session_wait_timeout"], LIVE,
            "How long a request of a `serial` Server waits its turn; then 429 `session_busy`."),
    Setting("max_session_waiters", Whole(1, 10_000), _LIMIT["max_session_waiters"], LIVE,
            "Requests of one session of a `serial` Server that wait at most."),
    Setting("websocket", OneOf(("frames", "messages")), "frames", LIVE,
            "WebSockets are relayed frame by frame, or as whole messages that are checked: UTF-8, `max_message_size`."),
    Setting("max_message_size", Whole(1, 1 << 30), 1 << 24, LIVE,
            "Bytes of a WebSocket message, decompressed, where `websocket` is `messages`; a larger one closes both sides "
            "with 1009."),
    Setting("ping_interval", Seconds(0, 86_400), 30.0, LIVE, "How often a WebSocket's client is pinged; 0 for never."),
    Setting("ping_timeout", Seconds(1, 3600), 20.0, LIVE,
            "How long a pinged client may give no sign of life; then its WebSocket is cut."),
    Setting("silent_timeout", Seconds(1, _MONTH), None, LIVE,
            "A WebSocket without a data frame for this long (a quarter more at most) no longer keeps its session from being "
            "idle; its next data frame counts again.", unset="each open WebSocket does"),
    Setting("websocket_refusal", OneOf(("close", "http")), "close", LIVE,
            "How a browser's handshake for an ended session is refused: accepted and closed with a code, or by HTTP."),
    Setting("ended_status", OneOf((410, 401)), 410, LIVE, "The HTTP status for an ended session."),
    Setting("response_timeout", Seconds(0.1, 86_400), None, LIVE,
            "How long a container may take until its response begins.", unset="no limit"),
    Setting("third_party_frames", Flag(), False, LIVE,
            "The cookie works in frames of other sites (`SameSite=None; Partitioned`)."),
    Setting("insecure_cookie", Flag(), False, LIVE,
            "The cookie lacks `Secure` and `__Host-`, for plain HTTP on other names than localhost."),
)
# fmt: on
