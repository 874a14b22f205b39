"""Which worker each conversation was last sent to."""

from collections import OrderedDict

from attrs import define, field

from plugins.dispatch.worker import Worker


@define(eq=False)
class Pins:
    """The workers of the `limit` conversations that were seen last, by a number that stands for the conversation."""

    limit: int
    _workers: OrderedDict[int, Worker] = field(factory=OrderedDict, init=False)

    def __len__(self) -> int:
        return len(self._workers)

    def get(self, number: int | None) -> Worker | None:
        """The worker of a conversation, if it is known."""
        return None if number is None else self._workers.get(number)

    def put(self, number: int | None, worker: Worker) -> None:
        """Remember where a conversation is."""
        if number is None:
            return
        self._workers[number] = worker
        self._workers.move_to_end(number)
        if len(self._workers) > self.limit:
            self._workers.popitem(last=False)

    def evict(self, worker: Worker) -> None:
        """Forget the conversations of a worker that is gone."""
        for number in [number for number, pinned in self._workers.items() if pinned is worker]:
            del self._workers[number]
