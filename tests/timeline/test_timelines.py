"""Each outcome looks from outside as its file says, event by event."""

from pathlib import Path

import pytest

from plugins.order import STANDARD_ORDER
from tests.timeline.stories import STORIES
from tests.timeline.world import Story, replay, workers

FOLDER = Path(__file__).parent / "expected"


@pytest.mark.anyio
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_an_outcome_looks_as_its_timeline_says(story: Story) -> None:
    """The standard order gives exactly the events of the file, in their order."""
    async with workers() as stubs:
        seen = await replay(story, STANDARD_ORDER, stubs)

    assert (FOLDER / f"{story.name}.timeline").read_text().splitlines() == seen


def test_every_timeline_has_a_story() -> None:
    """No file is left over from an outcome that is not replayed any more."""
    assert {story.name for story in STORIES} == {path.stem for path in FOLDER.glob("*.timeline")}
