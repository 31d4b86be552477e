"""Session tokens: claims signed as PASETO v4.public (Ed25519), made and checked with PyNaCl.

Pure: seeds and the wall clock come in. The token routes: whoever holds the public key can tell whose session it is and in
which container it lives, without asking anybody. Must not know where a token travelled.
"""

from __future__ import annotations

import attrs

from sticky.core.values import ContainerId, DeploymentId, ServerName, SessionId


@attrs.frozen
class Claims:
    """What a session token says."""

    session: SessionId
    server: ServerName
    deployment: DeploymentId
    container: ContainerId
    issued_at: int  #: Unix seconds
    expires_at: int  #: Unix seconds: a coarse bound; the ledger decides
