"""Both transports."""

import pytest


@pytest.fixture(params=["lean", "aiohttp"])
def transport(request: pytest.FixtureRequest) -> str:
    """The transport's name."""
    name: str = request.param
    return name
