"""`sticky tokens create`: a proxy token, made here; the daemon gets to know only its hash, by the configuration file."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime, timedelta

import click

from sticky.cli.options import command, json_output
from sticky.cli.output import as_json as print_json
from sticky.cli.output import note, say
from sticky.config.kinds import show
from sticky.core.proxy_tokens import EVERY_SERVER, ID_BYTES, SECRET_BYTES, hash_secret, new_token

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.group("tokens", no_args_is_help=True)
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


@command(group, "create", "sticky tokens create --owner alice --server game --expires 90d >> sticky.toml")
@click.option("--owner", required=True, metavar="NAME", help="Whom limits count; several tokens may share one.")
@click.option(
    "--server", "servers", multiple=True, metavar="NAME", help="Valid for this Server; repeatable.  [default: all]"
)
@click.option(
    "--expires", type=Expiry(), help="From when on it is refused: 12h, 90d, 2030-01-31T12:00:00Z.  [default: never]"
)
@click.option("--admin", is_flag=True, help="It may use the admin API, once that listens on TCP.")
@json_output
def create(owner: str, servers: tuple[str, ...], expires: datetime | None, admin: bool, as_json: bool) -> None:
    """Make a proxy token.

    Its secret is shown once, on stderr; stdout has the lines for sticky.toml, with its hash only.
    """
    if re.fullmatch(r"[\x21-\x7e]{1,128}", owner) is None:
        raise click.BadParameter("it must have 1 to 128 visible ASCII characters", param_hint="--owner")
    token, secret = new_token(secrets.token_bytes(ID_BYTES), secrets.token_bytes(SECRET_BYTES))
    hashed = hash_secret(secret)
    names = list(servers) or [EVERY_SERVER]
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
    note("and what belongs into sticky.toml; restart the daemon then:")
    lines = ["[[proxy_tokens]]", f"id = {show(token)}", f'secret_hash = "{hashed}"', f"owner = {show(owner)}"]
    lines.append(f"servers = {show(names)}")
    if expires is not None:
        lines.append(f"expires_at = {expires.isoformat()}")
    if admin:
        lines.append("admin = true")
    say("\n" + "\n".join(lines))
