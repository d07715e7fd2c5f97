"""The checks of every request, in this order: Host, Origin, method and path, token, size, content type, JSON.

The endpoint then checks the shape of the JSON, and `authorize` whether the request may do this.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import time
from collections.abc import Collection, Mapping
from typing import Any

from starlette.requests import Request

from ..messages.json_text import decode_request, is_too_deep
from .problem import Problem

__all__ = ["DEFAULT_BODY", "RequestGuard", "json_of", "preflight_headers"]

_SESSION = 12 * 3600  # seconds
_MAX_DEPTH = 64
DEFAULT_BODY = 4 * 2**20  # bytes of a request
_MOST_OF_API = 32 * 2**20  # bytes of a request to a model's API
_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?").fullmatch
_TOKEN_HEADERS = ("authorization", "x-api-key")
_CHANGES = ("POST", "DELETE")
_EXPOSED = (
    "location, x-streamkit-run, x-vercel-ai-ui-message-stream, idempotency-replayed, "
    "x-streamkit-ignored, x-request-id, request-id, retry-after, x-should-retry"
)


class RequestGuard:
    """The checks of one app.

    Args:
        token: the secret that clients send; None if `authorize` alone decides.
        allowed_hosts: the names under which the app is served. IP addresses pass: where an attacker's name leads to one
            (DNS rebinding), the browser still sends that name.
        allowed_origins: the origins of other pages that may call it.
        max_body: how many bytes a body may have.
    """

    def __init__(
        self, token: str | None, allowed_hosts: Collection[str], allowed_origins: Collection[str], max_body: int
    ) -> None:
        self._token = None if token is None else token.encode()
        # A str is a collection too, of its letters, and so would allow nothing.
        self._hosts = {host.lower() for host in _as_names(allowed_hosts)}
        self._origins = set(_as_names(allowed_origins))
        self._max_body = max_body
        # Servers on one host share their cookies, whatever their ports: each has its own name, by its token.
        self._cookie = "streamkit" if token is None else f"streamkit-{self._signature('cookie')[:12]}"

    # -- where a request comes from

    def check_host(self, request: Request) -> None:
        """Refuse a Host that is not allowed."""
        hosts = request.headers.getlist("host")
        match = _HOST(hosts[0]) if len(hosts) == 1 else None
        if match is not None:
            name = match["name"]
            if name is None or name.lower().rstrip(".") in self._hosts or "*" in self._hosts:
                return
            if _is_address(name):
                return
        raise Problem("host-not-allowed", "The app is not served under this name: see `allowed_hosts` of create_app.")

    def check_origin(self, request: Request, *, of_api: bool = False) -> None:
        """Refuse a page of another origin, unless that is allowed. Desktop applications send origins that belong to no page, or
        `null`: to the endpoints of model APIs they may, with the token in a header, which a foreign page does not have."""
        origin = request.headers.get("origin")
        if of_api and not _is_page(origin) and any(name in request.headers for name in _TOKEN_HEADERS):
            return
        if request.method == "OPTIONS" and self._is_of_desktop(request, of_api=of_api):
            return  # the browser asks first whether it may send the token
        if origin is not None and not self._is_own(origin, request) and origin not in self._origins:
            raise Problem("origin-not-allowed")

    def _is_own(self, origin: str, request: Request) -> bool:
        """Whether the page is of this host and port. A proxy may end TLS, so the scheme does not count."""
        scheme, separator, host = origin.partition("://")
        if not separator or scheme not in ("http", "https"):
            return False
        return _with_port(host, scheme) == _with_port(request.headers.get("host", ""), scheme)

    def _is_of_desktop(self, request: Request, *, of_api: bool) -> bool:
        """Whether an origin belongs to no page, and may call an endpoint of model APIs because nobody can without the token."""
        origin = request.headers.get("origin")
        return of_api and self._token is not None and origin is not None and not _is_page(origin)

    def cors_headers(self, request: Request, *, of_api: bool = False) -> dict[str, str]:
        """Return the headers with which a browser lets a page of an allowed origin, or a desktop application, read the response."""
        is_of_desktop = self._is_of_desktop(request, of_api=of_api)
        if not (self._origins or is_of_desktop):
            return {}
        origin = request.headers.get("origin", "")
        allowed = {"Access-Control-Allow-Origin": origin} if origin in self._origins or is_of_desktop else {}
        exposed = {"Access-Control-Expose-Headers": _EXPOSED} if allowed else {}
        return {"Vary": "Origin", **allowed, **exposed}

    # -- token and cookie

    def check_token(self, request: Request, *, or_cookie: bool = True) -> None:
        """Refuse a wrong token; without one, the cookie counts that it was exchanged for, if `or_cookie`."""
        if self._token is None:
            return
        shown = request.headers.get("authorization")
        if shown is None and or_cookie and self._has_session(request):
            if request.method not in _CHANGES:
                return
            origin = request.headers.get("origin")
            if origin is not None and self._is_own(origin, request):
                return
            raise Problem(
                "origin-not-allowed", "A request with a cookie that changes anything has a same-origin Origin."
            )
        kind, _, value = (shown or "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(value.strip().encode("utf-8", "replace"), self._token):
            return
        raise Problem("unauthorized", headers={"WWW-Authenticate": "Bearer"})

    def check_key(self, request: Request) -> None:
        """Refuse a wrong token of a client of a model's API, which may send it as `x-api-key`. A cookie does not count."""
        key = request.headers.get("x-api-key")
        if self._token is not None and key is not None and "authorization" not in request.headers:
            if hmac.compare_digest(key.strip().encode("utf-8", "replace"), self._token):
                return
            raise Problem("unauthorized", headers={"WWW-Authenticate": "Bearer"})
        self.check_token(request, or_cookie=False)

    @property
    def has_token(self) -> bool:
        """Whether the app has a token, which can be exchanged for a cookie."""
        return self._token is not None

    def session(self, request: Request) -> str:
        """Return the `Set-Cookie` of a new session."""
        expiry = str(int(time.time()) + _SESSION)
        path = request.scope.get("root_path", "") or "/"
        secure = "; Secure" if request.url.scheme == "https" else ""
        value = f"{expiry}.{self._signature(expiry)}"
        return f"{self._cookie}={value}; Path={path}; Max-Age={_SESSION}; HttpOnly; SameSite=Strict{secure}"

    def _has_session(self, request: Request) -> bool:
        pairs = ";".join(request.headers.getlist("cookie")).split(";")
        named = [value for name, _, value in (pair.strip().partition("=") for pair in pairs) if name == self._cookie]
        return any(map(self._is_session, named))  # a browser sends one of each path, and the oldest ones too

    def _is_session(self, value: str) -> bool:
        expiry, _, signature = value.partition(".")
        if not (expiry.isascii() and expiry.isdecimal()) or len(expiry) > 12:
            return False
        is_ours = hmac.compare_digest(signature.encode("utf-8", "replace"), self._signature(expiry).encode())
        return is_ours and time.time() < int(expiry)

    def _signature(self, expiry: str) -> str:
        assert self._token is not None
        return hmac.new(self._token, expiry.encode(), hashlib.sha256).hexdigest()

    # -- the body

    async def body(self, request: Request, *, of_api: bool = False) -> bytes:
        """Return the body of a request. One to a model's API has the conversation, with its images.

        Raises:
            Problem: it is too large, or its Content-Type is not that of JSON.
        """
        most = _MOST_OF_API if of_api and self._max_body == DEFAULT_BODY else self._max_body
        length = request.headers.get("content-length", "")
        if length.isascii() and length.isdecimal() and (len(length) > 15 or int(length) > most):
            raise Problem("body-too-large", f"It may have {most} bytes.")
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > most:
                raise Problem("body-too-large", f"It may have {most} bytes.")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if (data or kind) and kind != "application/json":
            raise Problem("unsupported-media-type")
        return bytes(data)


def _as_names(names: Collection[str]) -> Collection[str]:
    return (names,) if isinstance(names, str) else names


def json_of(body: bytes) -> Any:
    """Return the value of a body.

    Raises:
        Problem: it is not JSON, or nested too deep.
    """
    if not body:
        return {}
    if is_too_deep(body, _MAX_DEPTH):
        fault = f"is nested more than {_MAX_DEPTH} levels deep"
        raise Problem("invalid", f"the body {fault}", extra={"errors": [{"path": "", "fault": fault}]})
    try:
        return decode_request(body)
    except (ValueError, RecursionError) as error:
        raise Problem("bad-json", str(error)) from None


def preflight_headers(wanted: str | None = None) -> Mapping[str, str]:
    """Return the headers of the response to a CORS preflight.

    Args:
        wanted: the headers that the request asks for, if all are allowed.
    """
    return {
        "Access-Control-Allow-Methods": "GET, POST, DELETE",
        "Access-Control-Allow-Headers": wanted or "authorization, content-type, idempotency-key, last-event-id",
        "Access-Control-Max-Age": "600",
    }


def _is_page(origin: str | None) -> bool:
    return origin is not None and origin.startswith(("http://", "https://"))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_port(host: str, scheme: str) -> str:
    host = host.lower()
    has_port = host.rpartition("]")[2].count(":") == 1
    return host if has_port else f"{host}:{443 if scheme == 'https' else 80}"
