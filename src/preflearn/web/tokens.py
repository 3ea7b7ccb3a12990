"""The key in the address of a page, kept beside the answers so that judges' links keep working after a restart."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}")


def kept_token(answers: Path) -> str:
    """The key of an answers file: that of before, or a new one in a file that only its owner can read.

    Parameters
    ----------
    answers : Path
        Its key is in a file of the same name with ``.token``.
    """
    path = answers.with_name(answers.name + ".token")
    try:
        found = path.read_text(encoding="ascii").strip()
        private = os.name == "nt" or not path.stat().st_mode & 0o077
    except (OSError, ValueError):
        found, private = "", False
    # A key that others could read is not one.
    if private and not path.is_symlink() and _TOKEN.fullmatch(found):
        return found
    token = secrets.token_urlsafe(16)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token
