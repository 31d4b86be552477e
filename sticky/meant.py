"""What somebody meant who wrote a name that there is not: a slip of the fingers, or what other systems call it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

LIKE = 0.7  #: of 1; below that what looks alike to difflib does not to people
#: Names that other systems use, or people expect -> ours, the likeliest first.
ELSEWHERE = {
    "sessions": ("max_concurrency",),
    "max_sessions": ("max_concurrency", "max_sessions_per_caller"),
    "max_sessions_per_container": ("max_concurrency",),
    "max_concurrent_sessions": ("max_concurrency",),
    "max_inputs": ("max_concurrency",),
    "target_inputs": ("target_concurrency",),
    "allow_concurrent_inputs": ("max_concurrency",),
    "concurrency_limit": ("max_containers",),
    "keep_warm": ("min_containers", "buffer_containers"),
    "replicas": ("min_containers", "max_containers"),
    "instances": ("min_containers", "max_containers"),
    "workers": ("max_containers",),
    "min_replicas": ("min_containers",),
    "max_replicas": ("max_containers",),
    "min_instances": ("min_containers",),
    "max_instances": ("max_containers",),
    "container_idle_timeout": ("scaledown_window",),
    "scaledown": ("scaledown_window",),
    "timeout": ("idle_timeout", "startup_timeout", "response_timeout"),
    "session_timeout": ("idle_timeout", "container_max_age"),
    "max_age": ("container_max_age",),
    "grace": ("exit_grace_period",),
    "grace_period": ("exit_grace_period",),
    "cmd": ("command",),
    "args": ("command",),
    "entrypoint": ("command",),
    "cwd": ("directory",),
    "workdir": ("directory",),
    "working_directory": ("directory",),
    "environment": ("env",),
    "image": ("docker",),
    "cors": ("allowed_origins",),
    "origins": ("allowed_origins",),
    "domain": ("hosts",),
    "hostname": ("hosts",),
    "health_check": ("ready",),
    "healthcheck": ("ready",),
    "readiness": ("ready",),
}


def meant(name: str, known: Collection[str]) -> str:
    """`a`, or `a, b or c`: of what is known the likeliest; empty if nothing is like it."""
    names: Sequence[str] = [one for one in ELSEWHERE.get(name.lower(), ()) if one in known]
    beginnings = [one for one in known if name and one.startswith(name)]
    if not names and len(beginnings) == 1:
        return beginnings[0]
    if not names:
        from difflib import get_close_matches  # dear, and nearly never wanted

        names = get_close_matches(name, known, n=1, cutoff=LIKE)
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
