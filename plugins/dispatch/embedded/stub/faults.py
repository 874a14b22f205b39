"""Faults on command: which request has to fail, and how."""

import asyncio
from collections.abc import Mapping
from typing import Final, TypedDict

import orjson
from attrs import asdict, define, evolve, field, fields_dict, frozen

from plugins.dispatch.embedded.stub.fields import is_integer, is_number

KINDS: Final = (
    "refuse",
    "hang",
    "die_before_headers",
    "die_after_headers",
    "cut_mid_event",
    "end_without_done",
    "stall",
    "slow",
    "status",
    "garbage",
    "error_event",
    "wrong_content_type",
    "no_handoff",
    "exit",
)
HEADER: Final = "x-stub-fault"
FOREVER: Final = -1
_STREAMS_ONLY: Final = frozenset({"end_without_done", "error_event", "wrong_content_type"})


@frozen
class Traits:
    """What a rule may look at: the path, and what kind of request it is."""

    path: str
    work: bool
    stream: bool = False
    context_only: bool = False


@frozen(kw_only=True)
class FaultRule:
    """One fault to commit.

    `times` is how many requests it hits (-1: all). Without a `path` it hits requests for work only, never a
    probe such as `/health`. `after` is the number of stream events before a break in mid-stream, or before a
    `stall`, which lasts until the rules are cleared and comes after half of an answer that is whole. `seconds` is
    the pause before each token (`slow`) or the time without a listener (`refuse`; 0: until cleared).
    `status`, `body` and `headers` are the answer of `status`; a text as body is sent as it is.
    """

    kind: str
    path: str | None = None
    times: int = 1
    after: int = 1
    seconds: float = 0.0
    status: int = 500
    body: object = None
    headers: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(f"fault: {problem}")

    def hits(self, traits: Traits) -> bool:
        """Whether the rule applies to such a request."""
        if not (traits.work if self.path is None else traits.path == self.path):
            return False
        if self.kind in _STREAMS_ONLY:
            return traits.stream
        return traits.context_only if self.kind == "no_handoff" else True

    def to_json(self) -> dict[str, object]:
        """Give the rule in the form that the control endpoint takes."""
        return asdict(self)

    def _problems(self) -> list[str]:
        checks = (
            (self.kind in KINDS, f"kind: expected one of {', '.join(KINDS)}, got {self.kind!r}"),
            (self.path is None or isinstance(self.path, str), "path: expected a string"),
            (
                _is_whole(self.times) and (self.times > 0 or self.times == FOREVER),
                "times: expected 1 or more, or -1",
            ),
            (_is_whole(self.after) and self.after >= 0, "after: expected 0 or more"),
            (is_number(self.seconds) and 0 <= self.seconds < float("inf"), "seconds: expected 0 or more"),
            (_is_whole(self.status) and 400 <= self.status <= 599, "status: expected 400 to 599"),
            (_are_headers(self.headers), "headers: expected names and values without line ends"),
        )
        return [words for good, words in checks if not good]


class FaultFields(TypedDict, total=False):
    """The fields of `FaultRule` but the kind, as keyword arguments."""

    path: str | None
    times: int
    after: int
    seconds: float
    status: int
    body: object
    headers: Mapping[str, str]


@define(eq=False)
class FaultBook:
    """The rules that wait for a request, in the order in which they came."""

    _rules: list[FaultRule] = field(factory=list, init=False)
    _cleared: asyncio.Event = field(factory=asyncio.Event, init=False)

    @property
    def rules(self) -> tuple[FaultRule, ...]:
        """The rules that are left."""
        return tuple(self._rules)

    def add(self, rule: FaultRule) -> None:
        """Put a rule after the others."""
        self._rules.append(rule)

    def pick(self, traits: Traits) -> tuple[FaultRule | None, float]:
        """Use up the first rule for such a request, and the first delay; give the rule and the seconds."""
        slow = self._use(traits, slow=True)
        return self._use(traits, slow=False), slow.seconds if slow else 0.0

    def clear(self) -> None:
        """Drop all rules and let hanging requests go on."""
        self._rules.clear()
        cleared, self._cleared = self._cleared, asyncio.Event()
        cleared.set()

    @property
    def cleared(self) -> asyncio.Event:
        """Set when the rules are cleared the next time."""
        return self._cleared

    def _use(self, traits: Traits, *, slow: bool) -> FaultRule | None:
        for position, rule in enumerate(self._rules):
            if (rule.kind == "slow") is slow and rule.hits(traits):
                if rule.times == 1:
                    del self._rules[position]
                elif rule.times != FOREVER:
                    self._rules[position] = evolve(rule, times=rule.times - 1)
                return rule
        return None


def parse_rule(value: object) -> FaultRule:
    """Make a rule from decoded JSON; `ValueError` says what is wrong with it."""
    if not isinstance(value, dict) or "kind" not in value:
        raise ValueError("fault: expected an object with a kind")
    unknown = sorted(str(key) for key in value if key not in fields_dict(FaultRule))
    if unknown:
        raise ValueError(f"fault: unknown keys {', '.join(unknown)}")
    return FaultRule(**value)


def parse_header(value: str) -> FaultRule:
    """Make a rule from a request's header: a kind by itself, or a rule as a JSON object."""
    return parse_rule(orjson.loads(value) if value.lstrip().startswith("{") else {"kind": value.strip()})


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and is_integer(value)


def _are_headers(headers: object) -> bool:
    return isinstance(headers, Mapping) and all(
        isinstance(text, str) and not {"\r", "\n", "\0"} & set(text) for pair in headers.items() for text in pair
    )
