"""The field by which a vLLM worker with a shared store is asked to decline, and how it does."""

import re
from typing import Final

THRESHOLD: Final = "cache_hit_threshold"

DECLINED: Final = re.compile(rb'"finish_reason"\s*:\s*"cache_threshold"')
"""In the one choice that such an answer has; the text of a model has its quotation marks escaped."""
