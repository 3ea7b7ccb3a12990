"""The command line: ``preflearn COMMAND``.

One module per command. A command's module imports only what describes its options; what does the work is imported
inside the function, so that ``preflearn --help`` answers at once. ``app.py`` lists the commands.
"""

from .app import main

__all__ = ["main"]
