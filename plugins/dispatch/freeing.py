"""Gives up what a context worker holds for a generation worker that does not come."""

from collections.abc import Iterator
from contextlib import contextmanager

from kernel import Rejection
from plugins.dispatch.attempts import Attempts
from plugins.dispatch.engine import Handoff
from plugins.dispatch.handoffs import SpentHandoff
from plugins.dispatch.job import Job
from plugins.dispatch.rejections import NoWorker
from plugins.dispatch.worker import Role


@contextmanager
def freed_unless_taken(job: Job, attempts: Attempts, handoff: Handoff) -> Iterator[None]:
    """Tell the context worker, if its engine wants to be told, unless what `attempts` do under this succeeds.

    An answer, or the first bytes of one that say something, means that the cache was taken. A worker that is told
    of a cache that was taken, and of one that it has given up itself, does nothing.
    """
    taken = False
    service, origin = job.service, handoff.origin
    try:
        yield
        taken = True
    except (Rejection, SpentHandoff) as error:
        if service.links is not None and origin is not None and attempts.latest is not None and _is_fault(error):
            service.links.forget(origin, attempts.latest)
        raise
    finally:
        if not taken and service.frees is not None and origin is not None and handoff.complete:
            service.errands.send(service.pools[Role.CONTEXT], origin, service.frees.free(handoff))


def _is_fault(error: Rejection | SpentHandoff) -> bool:
    """Whether a worker failed, or the connection between two, and did not merely decline."""
    cause = error if isinstance(error, Rejection) else error.__cause__
    return isinstance(cause, Rejection) and cause.status >= 500 and not isinstance(cause, NoWorker)
