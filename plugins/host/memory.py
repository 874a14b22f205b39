"""How the process deals with its memory: few collections, and pages that it keeps for the next request."""

import ctypes
import gc
import os
from typing import Final

GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Requests make few cycles; the default of 700 objects costs a seventh of the time that a request takes."""

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Freed memory that stays with the process. glibc gives back what is over 128 KiB, and takes it again page by page for
the next long prompt, which costs a tenth of the time that a request takes."""

MAPPED_BYTES: Final = 4 * 1024 * 1024
"""Blocks from this size on have pages to themselves, which go back when they are freed."""

_GROWTH_BYTES: Final = 1024 * 1024
_SETTINGS: Final = {-1: KEPT_BYTES, -2: _GROWTH_BYTES, -3: MAPPED_BYTES}  # M_TRIM_THRESHOLD and so on, <malloc.h>
_OWN: Final = ("MALLOC_", "GLIBC_TUNABLES")


def settle() -> None:
    """Leave what was made until now to no collection, and keep pages, unless the environment says how."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    if any(name.startswith(_OWN) for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not every C library has it
    if mallopt is not None:
        for setting, value in _SETTINGS.items():
            mallopt(setting, value)
