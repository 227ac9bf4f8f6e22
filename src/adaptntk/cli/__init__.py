"""The command line: ``adaptntk VERB``."""

from adaptntk.cli.interruption import ignore, leave, listen

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``adaptntk`` command."""
    listen()
    try:
        from adaptntk.cli.app import main  # takes a moment, in which it may be interrupted

        main()
    except KeyboardInterrupt:
        leave()
    finally:
        ignore()
