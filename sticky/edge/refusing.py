"""What the client of a refused request is told (wire.md). Knows neither why it was refused nor how answers are written."""

from __future__ import annotations

import attrs

from sticky import errors
from sticky.edge import answers
from sticky.edge.credentials import Credential, Source, clearing_cookie, is_navigation
from sticky.edge.parsing import RequestHead
from sticky.edge.site import Site
from sticky.edge.wire import Names
from sticky.isticky import Answer


def refusal_answer(
    error: errors.Refusal, head: RequestHead, site: Site | None, credential: Credential | None, names: Names
) -> Answer:
    """The HTTP answer to this refusal. `site` and `credential`: as far as they were found."""
    if site is None:
        return answers.refusal(error, page=answers.prefers_page(head))
    answer = answers.refusal(error, page=answers.prefers_page(head), ended_status=site.ended_status)
    if (
        isinstance(error, errors.SessionEnded)
        and credential is not None
        and credential.source is Source.COOKIE
        and is_navigation(head)
    ):
        # Only here: a sub-resource that still carries an old token must not take away the cookie of a newer session.
        cookie = clearing_cookie(names, site.third_party_frames, site.insecure_cookie)
        answer = attrs.evolve(answer, headers=(*answer.headers, (b"set-cookie", cookie)))
    return readable_by_page(answer, head, site)


def readable_by_page(answer: Answer, head: RequestHead, site: Site) -> Answer:
    """The same answer, readable by a page of one of the Server's `allowed_origins` (Fetch, CORS protocol)."""
    origin = allowed_page(head, site)
    if origin is None:
        return answer
    fields = (
        (b"access-control-allow-origin", origin),
        # With the cookie too: an allowed origin is exempt from the Origin rule for it.
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-expose-headers", b"retry-after"),
        (b"vary", b"Origin"),
    )
    return attrs.evolve(answer, headers=(*answer.headers, *fields))


def allowed_page(head: RequestHead, site: Site) -> bytes | None:
    """The request's Origin, if it is one of the Server's `allowed_origins`."""
    if not site.allowed_origins:
        return None
    origin = head.value(b"origin")
    return origin if origin is not None and origin.decode("latin-1").lower() in site.allowed_origins else None


def preflight_answer(head: RequestHead, site: Site) -> Answer | None:
    """The answer to a preflight from one of the `allowed_origins`; None for every other request.

    For control calls as for data requests: what the page may send is what it asks for, and what comes of it is refused then.
    """
    if head.method != b"OPTIONS" or not site.allowed_origins:
        return None
    method = head.value(b"access-control-request-method")
    if method is None or allowed_page(head, site) is None:
        return None
    fields: list[tuple[bytes, bytes]] = [(b"access-control-allow-methods", method), (b"access-control-max-age", b"600")]
    wanted = head.value(b"access-control-request-headers")
    if wanted is not None:
        fields.append((b"access-control-allow-headers", wanted))
    return readable_by_page(Answer(204, tuple(fields)), head, site)
