"""The socket under the server: what it is told, so that an answer goes out when it is written."""

from __future__ import annotations

import socket
from typing import Any, cast

from limpet.server import Api
from limpet.stores.base import Store
from tests.server.asking import Wire
from tests.server.conftest import GENEROUS, app_on
from tests.server.serving import served


async def test_the_kernel_keeps_no_part_of_an_answer_back(store: Store) -> None:
    """Otherwise the body waits until the client has acknowledged the head, 40 ms for each answer."""
    async with served(Api(app_on(store), settings=GENEROUS, local=True)) as server, Wire(server.url) as wire:
        await wire.ask("GET", "/healthz")
        await wire.answer()
        (connection,) = server.server.server_state.connections
        held = cast(Any, connection).transport.get_extra_info("socket")
        assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
