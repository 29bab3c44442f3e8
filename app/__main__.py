"""The `tandem` command, and `python -m app`, which is the same: a Ctrl-C that comes during the imports ends it too."""

import sys


def main() -> int:
    """Runs the command line and returns the exit status."""
    try:
        from app.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
