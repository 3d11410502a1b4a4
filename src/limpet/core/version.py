"""The release, in a place that every room may ask: importing it from the package itself would import the app."""

from typing import Final

VERSION: Final = "0.3.0"
