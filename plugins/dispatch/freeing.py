"""Gives up what a context worker holds for a generation worker that does not come."""

from kernel import Rejection
from plugins.dispatch.attempts import Attempts
from plugins.dispatch.engine import Handoff
from plugins.dispatch.rejections import NoWorker
from plugins.dispatch.worker import Role


def free(attempts: Attempts, handoff: Handoff) -> None:
    """Tell the context worker that nobody comes, if its engine wants to be told.

    A worker that is told of a cache that was taken, and of one that it has given up itself, does nothing.
    """
    service = attempts.job.service
    if service.frees is not None and handoff.origin is not None and handoff.complete:
        service.errands.send(service.pools[Role.CONTEXT], handoff.origin, service.frees.free(handoff))


def forget_link(attempts: Attempts, handoff: Handoff, error: BaseException | None) -> None:
    """Have two workers connected anew, unless what came of the handoff is no fault of either, or of what is between."""
    links, context, generation = attempts.job.service.links, handoff.origin, attempts.latest
    if links is None or context is None or generation is None:
        return
    if isinstance(error, Rejection) and error.status >= 500 and not isinstance(error, NoWorker):
        links.forget(context, generation)
