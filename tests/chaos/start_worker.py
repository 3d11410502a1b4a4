"""Starts a supervised worker of the chaos app, as the command line does; settings come as JSON."""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from limpet.runtime.log_setup import LogSettings, setup_logging
from limpet.runtime.supervisor import SupervisorSettings, supervise

settings = msgspec.json.decode(sys.argv[1], type=SupervisorSettings)
setup_logging(LogSettings(level=os.environ.get("CHAOS_LOG", "ERROR")))
sys.exit(asyncio.run(supervise(settings)))
