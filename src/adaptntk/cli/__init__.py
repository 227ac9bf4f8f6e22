"""The command line: ``adaptntk VERB``."""

from adaptntk.cli.app import main

__all__ = ["main"]
