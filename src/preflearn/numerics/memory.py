"""Refuse, before allocating, what will not fit in memory."""

from __future__ import annotations

import os

# Share that is left to the rest of the program and to temporary arrays.
_HEADROOM = 0.9

_REMEDY = (
    "Use n_basis=... (a reduced set of basis vectors) for a kernel, or solver='cg' with the linear kernel; "
    "both avoid the square matrix."
)


def available_bytes() -> int | None:
    """Memory that is available without swapping, or None where the system does not say."""
    found = [value for value in (_meminfo_available(), _cgroup_available()) if value is not None]
    return min(found) if found else _physical_bytes()


def fits_in_memory(n_bytes: int) -> bool:
    """Whether this much memory is available; True where the system does not say."""
    if n_bytes < 1 << 20:  # not worth asking the system
        return True
    available = available_bytes()
    return available is None or n_bytes <= _HEADROOM * available


def require_memory(n_bytes: int, what: str, remedy: str = _REMEDY) -> None:
    """Raise MemoryError if ``n_bytes`` are not available.

    Raises
    ------
    MemoryError
        States what is needed, what is available, and the option that needs less.
    """
    if not fits_in_memory(n_bytes):
        available = available_bytes() or 0
        raise MemoryError(
            f"{what[:1].upper()}{what[1:]} needs {_gigabytes(n_bytes)}, and {_gigabytes(available)} of memory is "
            f"available. {remedy}"
        )


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB"


def _meminfo_available() -> int | None:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _cgroup_available() -> int | None:
    """What a container may still allocate (cgroup version 2)."""
    try:
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as current:
            text = limit.read().strip()
            return None if text == "max" else max(int(text) - int(current.read()), 0)
    except (OSError, ValueError):
        return None


def _physical_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
