"""Where a context worker of TensorRT-LLM says that generation workers reach it."""

from typing import Any, Final

from plugins.dispatch.client import MalformedFault

_ENDPOINT: Final = "ctx_info_endpoint"


def place_in(told: Any) -> dict[str, Any]:
    """The fields of a handoff that name the place.

    Raises:
        MalformedFault: 502, the worker did not tell.
    """
    params = told.get("disaggregated_params") if isinstance(told, dict) else None
    place = dict(params) if isinstance(params, dict) else {}
    if isinstance(place.get(_ENDPOINT), list):
        place[_ENDPOINT] = next(iter(place[_ENDPOINT]), None)
    if not place.get(_ENDPOINT):
        raise MalformedFault(f"it tells of no {_ENDPOINT}", "the context worker does not say how it is reached")
    return place
