"""Every behaviour of the contract, on every engine."""

from __future__ import annotations

from limpet_contract import behaviours as contract

# The same as `from limpet_contract.behaviours import *`, in a form that linters can follow.
globals().update({name: getattr(contract, name) for name in contract.__all__})
