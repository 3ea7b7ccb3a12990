"""The command line: ``preflearn COMMAND``.

One module per command. A command's module imports only what describes its options; what does the work is imported
inside the function, so that ``preflearn --help`` answers at once. ``app.py`` lists the commands.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process: status 0, 2 after bad input, 1 after an error of the library."""
    from .app import run

    sys.exit(run(sys.argv[1:]))
