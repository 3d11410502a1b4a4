"""Runs the command line as `python -m limpet.cli`."""

import sys

from limpet.cli import main

sys.exit(main())
