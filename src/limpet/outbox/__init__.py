"""The outbox: a table in the user's own database, and the relay that carries what is in it to the store, once."""

from __future__ import annotations

from limpet.outbox.outbox import Outbox
from limpet.outbox.place import Place, parse_outbox, refuse_needless

__all__ = ["Outbox", "Place", "parse_outbox", "refuse_needless"]
