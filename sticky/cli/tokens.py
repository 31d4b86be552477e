"""`sticky tokens`: create, list, revoke. A daemon keeps what is made here; `create --toml` makes one for a file, without a daemon."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from sticky.cli.client import Admin, path
from sticky.cli.options import Group, command, daemon, json_output, tokens
from sticky.cli.output import as_json as print_json
from sticky.cli.output import note, say, table
from sticky.cli.output import show as print_table
from sticky.cli.problems import Problem, Status
from sticky.config.kinds import show
from sticky.core.proxy_tokens import EVERY_SERVER, ID_BYTES, SECRET_BYTES, hash_secret, new_token

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.group("tokens", cls=Group, no_args_is_help=True)
def group() -> None:
    """Proxy tokens: who may start and terminate sessions."""


def add_to(root: click.Group) -> None:
    """Register the group."""
    root.add_command(group)


class Expiry(click.ParamType[datetime]):
    """A duration such as 12h or 90d, or a time with its offset."""

    name = "WHEN"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value)
        found = re.fullmatch(r"([1-9][0-9]{0,4})([mhdw])", text)
        if found:
            return datetime.now(UTC).replace(microsecond=0) + timedelta(**{_UNITS[found[2]]: int(found[1])})
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(f"{text!r} is neither a duration such as 12h or 90d nor a time such as 2030-01-31T12:00:00Z")
        if moment <= datetime.now(UTC):
            self.fail(f"{text!r} is over already")
        return moment


@command(
    group,
    "create",
    "sticky tokens create --owner alice --server game --expires 90d\n"
    "sticky tokens create --owner alice --toml >> sticky.toml",
)
@click.option("--owner", required=True, metavar="NAME", help="Whom limits count; several tokens may share one.")
@click.option(
    "--server", "servers", multiple=True, metavar="NAME", help="Valid for this Server; repeatable.  [default: all]"
)
@click.option(
    "--expires", type=Expiry(), help="From when on it is refused: 12h, 90d, 2030-01-31T12:00:00Z.  [default: never]"
)
@click.option("--admin", "is_admin", is_flag=True, help="It may use the admin API where that listens on TCP (--url).")
@click.option("--toml", is_flag=True, help="Print the lines for a sticky.toml instead: no daemon is asked.")
@daemon
@json_output
def create(
    owner: str,
    servers: tuple[str, ...],
    expires: datetime | None,
    is_admin: bool,
    toml: bool,
    admin: Admin,
    as_json: bool,
) -> None:
    """Make a proxy token, which the daemon takes at once and keeps.

    The token is printed now and kept nowhere: the daemon has its hash. With --toml it is on stderr, and stdout has the lines
    for the file, with the hash.
    """
    if re.fullmatch(r"[\x21-\x7e]{1,128}", owner) is None:
        raise click.BadParameter("it must have 1 to 128 visible ASCII characters", param_hint="--owner")
    names = list(servers) or [EVERY_SERVER]
    if toml:
        _for_file(owner, names, expires, is_admin, as_json)
        return
    body = {
        "owner": owner,
        "servers": names,
        "expires_at": None if expires is None else expires.timestamp(),
        "admin": is_admin,
    }
    known = [one["name"] for one in admin.status()["servers"]] if servers else []
    for name in servers:
        if name != EVERY_SERVER and name not in known:
            note(f"warning: there is no Server {name!r} yet; there are: {', '.join(known)}")
    made = admin.call("POST", "/v1/tokens", body=body)
    if as_json:
        print_json(made)
        return
    note(f"proxy token {made['id']} of {owner}, shown only now (STICKY_PROXY_TOKEN of its user):")
    say(made["bearer"])


def _for_file(owner: str, names: list[str], expires: datetime | None, admin: bool, as_json: bool) -> None:
    token, secret = new_token(secrets.token_bytes(ID_BYTES), secrets.token_bytes(SECRET_BYTES))
    hashed = hash_secret(secret)
    if as_json:
        print_json(
            {
                "bearer": f"{token}.{secret}",
                "id": token,
                "secret_hash": hashed,
                "owner": owner,
                "servers": names,
                "expires_at": None if expires is None else expires.isoformat(),
                "admin": admin,
            }
        )
        return
    note("the proxy token, shown only now (STICKY_PROXY_TOKEN of its user):")
    click.echo(f"{token}.{secret}", err=True)
    note("and what belongs into sticky.toml; sticky deploy then:")
    lines = ["[[proxy_tokens]]", f"id = {show(token)}", f'secret_hash = "{hashed}"', f"owner = {show(owner)}"]
    lines.append(f"servers = {show(names)}")
    if expires is not None:
        lines.append(f"expires_at = {expires.isoformat()}")
    if admin:
        lines.append("admin = true")
    say("\n" + "\n".join(lines))


@command(group, "list", "sticky tokens list")
@daemon
@json_output
def list_(admin: Admin, as_json: bool) -> None:
    """List proxy tokens: whose they are and where they come from. Secrets are not known."""
    found = admin.call("GET", "/v1/tokens")
    if as_json:
        print_json(found)
        return
    rows = [
        [
            one["id"],
            one["owner"],
            ", ".join(one["servers"]),
            "-" if one["expires_at"] is None else _moment(one["expires_at"]),
            "yes" if one["admin"] else "-",
            one["source"],
        ]
        for one in found["tokens"]
    ]
    print_table(table(["TOKEN", "OWNER", "SERVERS", "EXPIRES", "ADMIN", "FROM"], rows, wrapped=("SERVERS",)))


@command(group, "revoke", "sticky tokens revoke wk-8fK2")
@click.argument("token", metavar="TOKEN", shell_complete=tokens)
@daemon
@json_output
def revoke(token: str, admin: Admin, as_json: bool) -> None:
    """Refuse a proxy token from now on. Sessions that it started go on.

    TOKEN is its id, or the beginning of one. One of the configuration is removed there instead.
    """
    identity = _meant(token, [one["id"] for one in admin.call("GET", "/v1/tokens")["tokens"]])
    found = admin.call("POST", path("tokens", identity, "revoke"))
    if as_json:
        print_json(found)
        return
    fresh = found["replaced_by"]
    note(f"{identity} is refused from now on" + ("" if fresh is None else f"; {fresh} is in its place"))


def _meant(text: str, known: Sequence[str]) -> str:
    # Only the id: whoever pastes a whole token must not see it in an error.
    text = text.partition(".")[0]
    found = [one for one in known if one == text] or [one for one in known if one.startswith(text)]
    if len(found) > 1:
        raise Problem(f"{len(found)} tokens begin with {text!r}", Status.USAGE, "Write more of the one that is meant.")
    if not found or len(text) < 4:
        raise Problem(f"there is no proxy token {text!r}", Status.NOT_FOUND, "sticky tokens list shows them.")
    return found[0]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
