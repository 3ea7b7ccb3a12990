"""Links inside the built documentation whose anchor does not exist: ``python docs/check_anchors.py docs/_build``."""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote


def dead_anchors(folder: Path) -> list[str]:
    """``page: link`` for each link to an anchor that its page does not have."""
    pages = {path.resolve(): path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}
    anchors = {path: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for path, text in pages.items()}
    dead = set()
    for path, text in pages.items():
        for link in map(unescape, re.findall(r'href="([^"]*#[^"]+)"', text)):
            page, _, anchor = link.partition("#")
            target = (path.parent / page).resolve() if page else path
            if target in anchors and unquote(anchor) not in anchors[target]:
                dead.add(f"{path.relative_to(folder.resolve())}: {link}")
    return sorted(dead)


if __name__ == "__main__":
    found = dead_anchors(Path(sys.argv[1]))
    print("\n".join(found))
    sys.exit(bool(found))
