"""What is not let in: foreign hosts and origins, what is too large or no JSON; and what every answer says of itself."""

import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

LARGEST_BODY = 16_384
"""Bytes; the largest request that the page makes has some hundred."""
LONGEST_ADDRESS = 4_096
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
METHODS = ("GET", "HEAD", "POST")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self';"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""What a page may load: nothing but what this server sends."""
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"x-frame-options": b"DENY",
    b"cache-control": b"no-store",
    b"content-security-policy": POLICY.encode(),
}
"""Of every answer that does not say otherwise itself."""
logger = logging.getLogger("hopplus.server")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """Lets those requests through to the application that the page itself could have made."""

    def __init__(self, app: Any, host: str, close: Callable[[], None] = lambda: None) -> None:
        self.app, self.host, self.close = app, host, close

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        refused = why_refused(scope["method"], headers, self.host)
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            refused = 414, f"an address here has {LONGEST_ADDRESS} characters at most"
        body = b""
        if refused is None and scope["method"] == "POST":
            body, refused = await read_body(receive)

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [(name, value) for name, value in HEADERS.items() if name not in own]
            await send(message)

        if refused is not None:
            code, sentence = refused
            logger.warning("refused (%d): %s %r: %s", code, scope["method"][:20], scope["raw_path"][:200], sentence)
            await JSONResponse({"error": sentence}, code, {"connection": "close"})(scope, receive, marked)
            return

        async def whole() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, whole, marked)


def why_refused(method: str, headers: dict[bytes, bytes], bound_to: str) -> tuple[int, str] | None:
    """A code and a sentence for a request that is not let in; None for one that is."""
    host = headers.get(b"host", b"").decode("latin-1")
    origin = headers.get(b"origin")
    if method not in METHODS:
        return 405, f"only {', '.join(METHODS)} are understood here"
    if not is_own_host(host, bound_to):
        return 403, "this server does not go by that name: open the address that hopplus serve has printed"
    if origin is not None and origin.decode("latin-1") != f"http://{host}":
        return 403, "a page of another site may not ask this server anything"
    if method != "POST":
        return None
    if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
        return 415, "what is sent here must be JSON"
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > LARGEST_BODY:
        return 413, f"what is sent here must have {LARGEST_BODY} bytes at most"
    return None


def is_own_host(host: str, bound_to: str) -> bool:
    """Whether a Host header names this server. A name that somebody else can lead here (DNS rebinding) is not taken:
    beyond this machine, an address is, or this machine's own name."""
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
    """Whether only this machine can reach a server that is bound to this."""
    return host in ("localhost", "::1") or host.startswith("127.")


async def read_body(receive: Receive) -> tuple[bytes, tuple[int, str] | None]:
    """What a request sends, whether or not it said beforehand how much that is."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"", (400, "the request broke off")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST_BODY:
            return b"", (413, f"what is sent here must have {LARGEST_BODY} bytes at most")
    return body, None
