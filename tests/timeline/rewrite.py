"""Rewrites the timelines from what is seen now."""

import asyncio

from plugins.order import STANDARD_ORDER
from tests.timeline.stories import STORIES
from tests.timeline.test_timelines import FOLDER
from tests.timeline.world import replay, workers


async def rewrite() -> None:
    """Replay every story and write its file; files without a story go."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.timeline"):
        path.unlink()
    async with workers() as stubs:
        for story in STORIES:
            seen = await replay(story, STANDARD_ORDER, stubs)
            (FOLDER / f"{story.name}.timeline").write_text("\n".join(seen) + "\n")


if __name__ == "__main__":
    asyncio.run(rewrite())
