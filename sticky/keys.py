"""The secrets in the state directory: the signing key of session tokens, and proxy tokens that nobody configured. Files only;
must not know what the secrets are used for, and shows none in a repr or an error.

`signing-key` holds one line, the PASERK form of an Ed25519 key (`k4.secret.` and base64url of seed and public key;
https://github.com/paseto-standard/paserk, types/secret.md): the public half tells a damaged file. `proxy-token` (for
development) and `operator-token` hold one line `wk-….ws-…`. All are 0600, the directory is made 0700, and all outlive
restarts: tokens given before stay valid.
"""

from __future__ import annotations

import os
import re
import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from sticky.core.proxy_tokens import ID_BYTES, SECRET_BYTES, ProxyToken, hash_secret, new_token, parse_bearer
from sticky.core.tokens import SigningKey, key_id_of
from sticky.errors import BadCredential, ConfigError

SIGNING_KEY: Final = "signing-key"
PROXY_TOKEN: Final = "proxy-token"
OPERATOR_TOKEN: Final = "operator-token"
DEVELOPMENT_OWNER: Final = "dev"
OPERATOR: Final = "operator"  #: owner of what is started from the daemon's own account

_PASERK: Final = "k4.secret."
_SEED_BYTES: Final = 32
_LONGEST: Final = 4096  # bytes of a file; no secret of ours comes near

Randomness = Callable[[int], bytes]  #: so many fresh bytes that nobody can guess


@attrs.frozen
class KeptToken:
    """A proxy token for every Server that nobody configured. The repr hides the secret."""

    path: Path  #: where it is kept, for the operator to read
    owner: str
    id: str
    secret: str = attrs.field(repr=False)

    @property
    def bearer(self) -> str:
        """What a client sends after `Bearer `. A secret: for the file, and for a person who asked on a terminal."""
        return f"{self.id}.{self.secret}"

    def proxy_token(self) -> ProxyToken:
        """It as a row of the table of proxy tokens."""
        return ProxyToken(id=self.id, secret_hash=hash_secret(self.secret), owner=self.owner)


def signing_key(state_dir: Path, random: Randomness = os.urandom) -> SigningKey:
    """The signing key of this state directory, made if there is none yet.

    Raises `errors.ConfigError` for a file that is damaged, or that others may read or could have written: a new key in
    its place would silently end every session, so the operator has to decide.
    """
    path = state_dir / SIGNING_KEY
    text = _kept(state_dir, SIGNING_KEY, lambda: _paserk(random(_SEED_BYTES)))
    seed = _seed(text)
    if seed is None:
        raise ConfigError(
            str(path), "", "this is no signing key; restore it, or remove it to make a new one (all sessions end then)"
        )
    return _key(seed)


def kept_hex(state_dir: Path, name: str, random: Randomness = os.urandom) -> str:
    """32 secret bytes in a file, made if there are none yet. Raises `errors.ConfigError` as above."""
    text = _kept(state_dir, name, lambda: random(_SEED_BYTES).hex())
    if re.fullmatch(r"[0-9a-f]{64}", text) is None:
        raise ConfigError(str(state_dir / name), "", "this is no key; restore it")
    return text


def read_secret(state_dir: Path, name: str, longest: int = 16 << 20) -> str | None:
    """The text of a file that only its owner may read; None if there is none. Raises `errors.ConfigError`."""
    path = state_dir / name
    try:
        return _read(path, longest)
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be used: {error.strerror}") from None


def new_signing_key(random: Randomness = os.urandom) -> SigningKey:
    """A key that is in no file yet."""
    return _key(random(_SEED_BYTES))


def read_key(state_dir: Path, name: str) -> SigningKey | None:
    """The key in a file, if that is there. Raises `errors.ConfigError` as `signing_key`."""
    text = read_secret(state_dir, name)
    if text is None:
        return None
    seed = _seed(text)
    if seed is None:
        raise ConfigError(
            str(state_dir / name), "", "this is no key; restore it, or remove it (deployments get other names then)"
        )
    return _key(seed)


def write_key(state_dir: Path, name: str, key: SigningKey) -> None:
    """Put a key into a file, in place of what is there. Raises OSError, and then nothing has changed."""
    replace(state_dir, name, _paserk(key.seed) + "\n")


def development_token(state_dir: Path, random: Randomness = os.urandom) -> KeptToken:
    """The proxy token of this state directory where none is configured, made if there is none yet.

    Raises `errors.ConfigError` as above.
    """
    return _token(state_dir, PROXY_TOKEN, DEVELOPMENT_OWNER, random)


def operator_token(state_dir: Path, random: Randomness = os.urandom) -> KeptToken:
    """The proxy token of programs that run as the daemon's own user, where others are configured. As above."""
    return _token(state_dir, OPERATOR_TOKEN, OPERATOR, random)


def _token(state_dir: Path, name: str, owner: str, random: Randomness) -> KeptToken:
    path = state_dir / name
    text = _kept(state_dir, name, lambda: ".".join(new_token(random(ID_BYTES), random(SECRET_BYTES))))
    try:
        return KeptToken(path, owner, *parse_bearer(text))
    except BadCredential:
        raise ConfigError(str(path), "", "this is no proxy token; remove it to make a new one") from None


def make_state_dir(state_dir: Path) -> None:
    """Make the state directory, 0700, if it is not there. One that is there stays as it is.

    Raises `errors.ConfigError` if it cannot be made, is no directory, or others could put files into it.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = state_dir.stat()
    except OSError as error:
        raise ConfigError(str(state_dir), "state_dir", f"cannot be used: {error.strerror}") from None
    if found.st_uid != os.geteuid():
        raise ConfigError(str(state_dir), "state_dir", "belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(str(state_dir), "state_dir", f"others can write to it; allowed: chmod 700 {state_dir}")


# --- a secret in a file ----------------------------------------------------------------------------------------------


def _kept(state_dir: Path, name: str, make: Callable[[], str]) -> str:
    """The line in a file, which is made if it is missing."""
    make_state_dir(state_dir)
    path = state_dir / name
    try:
        text = _read(path)
        if text is None:
            _create(state_dir, path, make())
            text = _read(path)
    except OSError as error:
        raise ConfigError(str(path), "", f"cannot be used: {error.strerror}") from None
    if text is None:
        raise ConfigError(str(path), "", "was removed while it was made")
    return text


def _read(path: Path, longest: int = _LONGEST) -> str | None:
    try:
        # Looked at through the open descriptor, so that what is checked is what is read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(str(path), "", "is no regular file")
        if found.st_uid != os.geteuid():
            raise ConfigError(str(path), "", "belongs to another user")
        if found.st_mode & 0o077:
            raise ConfigError(
                str(path), "", f"others can use it (mode {stat.S_IMODE(found.st_mode):04o}); allowed: chmod 600 {path}"
            )
        return file.read(longest).decode("ascii", "replace").strip()


def replace(state_dir: Path, name: str, text: str) -> None:
    """A whole file of mode 0600 in place of what is there, on the disk when this returns. Raises OSError."""
    draft = state_dir / f".{name}.{os.getpid()}"
    with suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, state_dir / name)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    _sync(state_dir)


def _create(state_dir: Path, path: Path, text: str) -> None:
    """Put a whole file there, or nothing; if another daemon was faster, its file stays."""
    draft = state_dir / f".{path.name}.{os.getpid()}"
    with suppress(FileNotFoundError):
        draft.unlink()  # left by a daemon that died here and had this process id
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, does not replace what is there.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    _sync(state_dir)


def _sync(state_dir: Path) -> None:
    directory = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


# --- the text of a signing key ---------------------------------------------------------------------------------------


def _paserk(seed: bytes) -> str:
    return _PASERK + urlsafe_b64encode(seed + _key(seed).public).rstrip(b"=").decode("ascii")


def _seed(text: str) -> bytes | None:
    if not text.startswith(_PASERK):
        return None
    encoded = text.removeprefix(_PASERK)
    try:
        raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        return None
    seed = raw[:_SEED_BYTES]
    return seed if len(seed) == _SEED_BYTES and _paserk(seed) == text else None


def _key(seed: bytes) -> SigningKey:
    # The id follows from the public key, which is known only with the seed: made once to ask, once to keep.
    return SigningKey(key_id_of(SigningKey("new", seed).public), seed)
