"""What one process is told of the blocks in workers' caches, or sends there, the others know."""

import orjson
import pytest

from plugins.dispatch.policies.kv_events import KvEvents
from plugins.dispatch.policies.trtllm_events import PolledLedger
from plugins.dispatch.policy import Site
from plugins.dispatch.transports.choice import ChosenClient
from plugins.dispatch.worker import Role
from tests.dispatch.state.support import Process, processes
from tests.dispatch.state.test_choices import WORKERS, numbered

pytestmark = pytest.mark.anyio


async def test_blocks_that_were_sent_are_known_everywhere() -> None:
    """Of workers whose events say nothing yet: a prompt of token ids goes where its beginning went."""
    for policy in (KvEvents(track_routed_blocks=True, max_sessions=0), KvEvents("polled", max_sessions=0)):
        with processes(policy, WORKERS) as (_, (one, two)):
            for process in (one, two):
                for worker in process.roster.known():
                    process.policy._state.holding(worker).resize(32)  # type: ignore[attr-defined]
            prompt = numbered(3, 0)
            one.policy.start(_site(one))  # type: ignore[attr-defined]
            held = one.send(prompt)
            held.finish()
            facts = numbered(3, 1)
            assert two.send(facts).worker.url == held.worker.url
            assert facts.match is not None
            assert facts.match.cached >= 480
            await one.policy.stop()  # type: ignore[attr-defined]


def _site(process: Process) -> Site:
    return Site("m", Role.CONTEXT, process.roster, ChosenClient(None, 3.0, None), {})


async def test_what_a_worker_tells_one_process_all_know() -> None:
    """One that is asked for its events tells each once: whoever hears it passes it on, whatever 64 bits name blocks."""
    names = [(1 << 64) - 1, 1 << 63, *range(1000, 11_000)]
    with processes(KvEvents("polled"), 2) as (_, (one, two)):
        state, worker = one.policy._state, one.roster.at(1)  # type: ignore[attr-defined]
        ledger = PolledLedger(state.holding(worker))
        other = two.policy._state.holding(two.roster.at(1))  # type: ignore[attr-defined]
        for number, data in enumerate(
            (
                {"type": "stored", "blocks": [{"block_hash": name} for name in names]},
                {"type": "removed", "block_hashes": names[:5000]},
            )
        ):
            ledger.enter(orjson.dumps([{"event_id": number, "data": data}]))
            state.pass_on(worker, ledger.stored, ledger.removed)
            two.company.hear()
            assert [name for name in names if other.number(name) is not None] == names[5000 * number :]
        assert len(other) == len(state.holding(worker)) == len(names) - 5000
