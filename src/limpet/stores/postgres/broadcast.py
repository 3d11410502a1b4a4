"""Carries live events: NOTIFY in a transaction of its own, LISTEN on a connection of its own."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from limpet.core.errors import StoreError
from limpet.stores.base import Hear
from limpet.stores.postgres import trouble
from limpet.stores.postgres.connection import Connection, Refusal, open_connection
from limpet.stores.postgres.trouble import TROUBLE
from limpet.stores.postgres.url import PostgresUrl
from limpet.stores.postgres.wire import clean
from limpet.stores.server.broadcast import Subscription

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

NOTIFY: Final = "SELECT pg_notify(%b::text, %b::text)"
TEST: Final = "?"  # what a subscriber sends itself, to learn whether it hears
PUBLISH_S: Final = 5.0  # a busy server is slow; a message that is later than this is of no use

logger = logging.getLogger("limpet.stores.postgres")


def channel_of(schema: str) -> str:
    """The channel of a schema: a name of ours, however long that of the schema is."""
    return f"limpet-events-{hashlib.blake2b(schema.encode(), digest_size=12).hexdigest()}"


async def publish(client: Client, schema: str, message: str) -> None:
    """Send to all that listen."""
    values = channel_of(schema), clean(message)
    await client.rows(NOTIFY, values, verb="publish", repeat=False, timeout_s=PUBLISH_S)


async def subscribe(url: PostgresUrl, schema: str, hear: Hear) -> Callable[[], None]:
    """Hear the channel of this schema until what is answered is called."""
    where = url.listening
    subscription = Subscription(lambda: _listen(where, channel_of(schema), hear), hear, where.shown, logger)
    try:
        await subscription.begin(url.timeout_s)
    except Refusal as error:
        raise trouble.refused(error, "subscribe", where.shown) from error
    except TROUBLE as error:
        hopeless = trouble.hopeless(error, "subscribe", where.shown)
        raise hopeless or trouble.unreachable(error, "subscribe", where.shown, url.timeout_s) from error
    return subscription.close


class _Line:
    """A connection that listens to a channel."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self.ended = asyncio.Event()
        self._connection = connection
        self._timeout_s = timeout_s
        connection.silenced = self._over

    def _over(self, connection: Connection) -> None:
        self.ended.set()

    async def ping(self) -> None:
        await self.ask("SELECT 1")

    async def ask(self, sql: str) -> None:
        """Run a statement without an answer."""
        await self._connection.script(sql, asyncio.get_running_loop().time() + self._timeout_s)

    def close(self) -> None:
        self._connection.close()


async def _listen(url: PostgresUrl, channel: str, hear: Hear) -> _Line:
    connection = await open_connection(url)
    tested = asyncio.Event()

    def heard(_: bytes, message: bytes) -> None:
        text = message.decode("utf-8", "replace")
        if text != TEST:
            hear(text)
        tested.set()

    try:
        line = _Line(connection, url.timeout_s)
        connection.notified = heard
        await line.ask(f'LISTEN "{channel}"')
        await line.ask(f"SELECT pg_notify('{channel}', '{TEST}')")
        async with asyncio.timeout(url.timeout_s / 2):
            await tested.wait()
    except TimeoutError as error:
        connection.close()
        raise StoreError(
            f"{url.shown} leads over a pooler that cannot LISTEN, so live events cannot be heard there",
            verb="subscribe",
            fix="name the server itself: ?listen_url=host:port",
        ) from error
    except BaseException:
        connection.close()
        raise
    return line
