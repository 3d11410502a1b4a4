"""Carries live events: PUBLISH on the connection of a loop, SUBSCRIBE on a connection of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from limpet.stores.base import Hear
from limpet.stores.redis import trouble
from limpet.stores.redis.connection import Connection, Refusal
from limpet.stores.redis.server import TROUBLE, Server
from limpet.stores.redis.url import RedisUrl
from limpet.stores.server.broadcast import Subscription

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

PUBLISH_S: Final = 5.0  # a busy server is slow; a message that is later than this is of no use

logger = logging.getLogger("limpet.stores.redis")


def channel_of(tag: str, url: RedisUrl) -> str:
    """The channel of a namespace: channels are common to all databases of a server, namespaces are not."""
    return f"{{{tag}}}:events:{url.db}"


async def publish(client: Client, channel: str, message: str) -> None:
    """Send to all that listen."""
    await client.call("publish", "PUBLISH", channel, message, deadline_s=PUBLISH_S, again=False)


async def subscribe(url: RedisUrl, tag: str, hear: Hear) -> Callable[[], None]:
    """Hear the channel of this namespace until what is answered is called."""
    server = Server(url, tag)
    subscription = Subscription(lambda: _listen(server, channel_of(tag, url), hear), hear, server, logger)
    try:
        await subscription.begin(url.timeout_s)
    except Refusal as error:
        raise trouble.refused(error, "subscribe", server) from error
    except TROUBLE as error:
        hopeless = trouble.hopeless(error, "subscribe", server)
        raise hopeless or trouble.unreachable(error, "subscribe", server, url.timeout_s) from error
    return subscription.close


class _Line:
    """A connection that is subscribed to a channel."""

    def __init__(self, connection: Connection, server: Server) -> None:
        self.ended = asyncio.Event()
        self._connection = connection
        self._server = server
        connection.ended = self.ended.set

    async def ping(self) -> None:
        await self._server.ask(self._connection, "PING")

    def close(self) -> None:
        self._connection.close()


async def _listen(server: Server, channel: str, hear: Hear) -> _Line:
    try:
        connection = await server.open()
    except BaseException:
        server.doubt()
        raise
    try:
        connection.heard = lambda message: hear(message.decode("utf-8", "replace"))
        line = _Line(connection, server)
        await server.ask(connection, "SUBSCRIBE", channel)
    except BaseException:
        connection.drop("it could not be subscribed")
        raise
    return line
