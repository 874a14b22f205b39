"""What serves one model, and what of it is the same for all of its requests."""

from collections.abc import Mapping

from attrs import define, field, frozen

from plugins.dispatch.abilities import Connects, Encodes, Frees, Reports, TriesFirst, able
from plugins.dispatch.apis import apis_of
from plugins.dispatch.budget import RetryBudget
from plugins.dispatch.client import Limits
from plugins.dispatch.engine import Aborts, Asks, Bypasses, Edits, Engine, Pairs, ServesAlone
from plugins.dispatch.errands import Errands
from plugins.dispatch.handoffs import HandoffConfig
from plugins.dispatch.introductions import Introductions
from plugins.dispatch.links import Links
from plugins.dispatch.plan import Plan
from plugins.dispatch.pool import Pool
from plugins.dispatch.retry import RetryConfig
from plugins.dispatch.worker import Role


@frozen(eq=False)
class Patience:
    """How long legs may take: those that are streamed, and those that answer as a whole."""

    streamed: Limits
    whole: Limits


@define(eq=False)
class Service:
    """An engine, and a pool for each role of the engine's plan.

    `apis` are the names of the endpoints that its workers answer, and `single` says that the plan has one leg. `links`
    are there for an engine that connects its workers. The fields behind are the engine itself where it has an ability,
    and None where it does not.
    """

    model: str
    engine: Engine
    pools: Mapping[Role, Pool]
    patience: Patience
    retry_seconds: int
    handoffs: HandoffConfig = field(factory=HandoffConfig)
    errands: Errands = field(factory=Errands)
    introductions: Introductions = field(factory=Introductions)
    retry: RetryConfig = field(factory=RetryConfig)
    budget: RetryBudget = field(init=False)
    plan: Plan = field(init=False)
    single: bool = field(init=False)
    apis: frozenset[str] = field(init=False)
    links: Links | None = field(init=False)
    frees: Frees | None = field(init=False)
    tries: TriesFirst | None = field(init=False)
    pairs: Pairs | None = field(init=False)
    asks: Asks | None = field(init=False)
    alone: ServesAlone | None = field(init=False)
    bypasses: Bypasses | None = field(init=False)
    edits: Edits | None = field(init=False)
    aborts: Aborts | None = field(init=False)
    reports: Reports | None = field(init=False)
    encodes: Encodes | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        engine = self.engine
        self.budget = self.retry.budget()
        self.plan = engine.plan
        self.single = len(engine.plan.legs) == 1
        self.apis = apis_of(engine)
        self.links = Links(engine, self.pools) if isinstance(engine, Connects) else None
        self.frees = able(engine, Frees)
        self.tries = able(engine, TriesFirst)
        self.pairs = able(engine, Pairs)
        self.asks = able(engine, Asks)
        self.alone = able(engine, ServesAlone)
        bypasses = able(engine, Bypasses)
        self.bypasses = bypasses if bypasses is not None and bypasses.conditional else None
        self.edits = able(engine, Edits)
        self.aborts = able(engine, Aborts)
        self.reports = able(engine, Reports)
        self.encodes = able(engine, Encodes)
