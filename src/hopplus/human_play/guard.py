"""Request guard: refuses foreign hosts and origins, oversized and non-JSON bodies, and adds security headers."""

import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

LARGEST_BODY = 16_384
"""Bytes; the largest request of the page has a few hundred."""
LONGEST_ADDRESS = 4_096
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
METHODS = ("GET", "HEAD", "POST")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self';"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy: a page loads only files of this server."""
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"x-frame-options": b"DENY",
    b"cache-control": b"no-store",
    b"content-security-policy": POLICY.encode(),
}
"""Headers of every response that does not set them itself."""
logger = logging.getLogger("hopplus.human_play")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """ASGI middleware that passes only requests that the page itself could have made."""

    def __init__(self, app: Any, host: str, close: Callable[[], None] = lambda: None) -> None:
        self.app, self.host, self.close = app, host, close

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        refused = why_refused(scope["method"], headers, self.host)
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            refused = 414, f"the address must have at most {LONGEST_ADDRESS} characters"
        body = b""
        if refused is None and scope["method"] == "POST":
            body, refused = await read_body(receive)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [(name, value) for name, value in HEADERS.items() if name not in present]
            await send(message)

        if refused is not None:
            code, sentence = refused
            logger.warning("refused (%d): %s %r: %s", code, scope["method"][:20], scope["raw_path"][:200], sentence)
            await JSONResponse({"error": sentence}, code, {"connection": "close"})(scope, receive, send_with_headers)
            return

        async def receive_body() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, receive_body, send_with_headers)


def why_refused(method: str, headers: dict[bytes, bytes], bound_to: str) -> tuple[int, str] | None:
    """Returns the status code and message for a refused request; None for an accepted one."""
    host = headers.get(b"host", b"").decode("latin-1")
    origin = headers.get(b"origin")
    if method not in METHODS:
        return 405, f"the method must be one of {', '.join(METHODS)}"
    if not is_own_host(host, bound_to):
        return 403, "unknown host name: open the address that hopplus serve printed"
    if origin is not None and origin.decode("latin-1") != f"http://{host}":
        return 403, "requests from pages of other sites are refused"
    if method != "POST":
        return None
    if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
        return 415, "the request body must be JSON (Content-Type: application/json)"
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > LARGEST_BODY:
        return 413, f"the request body must have at most {LARGEST_BODY} bytes"
    return None


def is_own_host(host: str, bound_to: str) -> bool:
    """True if a Host header names this server.

    Names that another party could point at this server (DNS rebinding) are refused. A server that is reachable from
    other machines also accepts IP addresses and the name of this machine.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.lower() in LOOPBACK:
        return True
    if is_loopback(bound_to):
        return False
    with_brackets = name.strip("[]")
    try:
        ipaddress.ip_address(with_brackets)
    except ValueError:
        return name.lower() in {bound_to.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return True


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server bound to `host`."""
    return host in ("localhost", "::1") or host.startswith("127.")


async def read_body(receive: Receive) -> tuple[bytes, tuple[int, str] | None]:
    """Returns the body of a request, with or without a Content-Length, and the reason for a refusal or None."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"", (400, "the client disconnected before the request was complete")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST_BODY:
            return b"", (413, f"the request body must have at most {LARGEST_BODY} bytes")
    return body, None
