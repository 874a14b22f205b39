"""How large files and functions may be, and where everything may be caught."""

import ast

import pytest

from tests.meta.sources import Source, sources

KERNEL_LINES = 1500
FILE_LINES = 200
FUNCTION_LINES = 40

CATCHES_EVERYTHING = {
    "kernel/asgi.py": "the last resort",
    "kernel/chain.py": "blames a plugin, and goes on without one that fails open",
    "kernel/discovery.py": "whatever an import raises is one error of that package",
    "kernel/assembly.py": "whatever a plugin raises while the chain is built is one error of the configuration",
    "kernel/exchange.py": "one release that fails must not keep the others",
    "kernel/race.py": "whatever ends a wait is told to the coroutine that waits",
    "kernel/reply.py": "one link that fails must not keep the outcome from the others",
    "kernel/runtime.py": "a plugin that fails to start or stop must not keep the others",
    "kernel/wire.py": "a fault in a stream is an outcome",
    "plugins/configuration/document.py": "hostile text gets more than YAML's own errors out of the parser",
    "plugins/configuration/structure.py": "whatever a plugin's class raises is a problem of its configuration",
    "plugins/dispatch/embedded/launcher.py": "workers must not outlive a start that fails",
    "plugins/dispatch/embedded/stub/engines/answering.py": "a slot must not outlive the request that holds it",
    "plugins/dispatch/follower.py": "a discovery that fails in an unknown way must not end the membership",
    "plugins/dispatch/health.py": "a probe that fails in an unknown way must not end the watch",
    "plugins/hooks.py": "takes what a plugin raises out through those further out, and goes on without an observer",
    "plugins/host/application.py": "a client gets an answer whatever the application raises",
    "plugins/host/failure.py": "a fault of the command line is one line, not a traceback",
    "plugins/host/lifespan.py": "a start that fails is told to whoever waits for it",
    "plugins/host/source.py": "a reload that fails in an unknown way must not end the watch on the file",
}
"""The files that may catch Exception or more, and why; nobody else may."""

LONG_FUNCTIONS: dict[str, str] = {}
"""Functions above the limit, as `file:name`, each with a reason."""

BROAD = {"Exception", "BaseException"}


def lines(source: Source) -> int:
    """How long a file is."""
    return len(source.text.splitlines())


def catches_everything(source: Source) -> bool:
    """Whether anything in a file catches or suppresses every exception."""
    for node in ast.walk(source.tree):
        caught: list[ast.AST | None] = []
        match node:
            case ast.ExceptHandler(type=kind):
                caught = [kind] if kind is None else [*ast.walk(kind)]
            case ast.Call(func=ast.Name(id="suppress"), args=kinds):
                caught = [*kinds]
        if any(item is None or (isinstance(item, ast.Name) and item.id in BROAD) for item in caught):
            return True
    return False


def test_the_kernel_is_small() -> None:
    """All of it together."""
    assert sum(lines(source) for source in sources("kernel")) <= KERNEL_LINES


@pytest.mark.parametrize("source", [*sources("kernel"), *sources("plugins")], ids=lambda source: source.name)
def test_a_file_is_short(source: Source) -> None:
    """It has one job."""
    assert lines(source) <= FILE_LINES


@pytest.mark.parametrize("source", [*sources("kernel"), *sources("plugins")], ids=lambda source: source.name)
def test_a_function_is_short(source: Source) -> None:
    """It can be read at one glance."""
    long = {
        f"{source.name}:{function.name}"
        for function in source.functions()
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES
    }
    assert long <= {*LONG_FUNCTIONS}


def test_everything_is_caught_in_few_places() -> None:
    """Each with a reason, and none of them left over."""
    found = {source.name for source in (*sources("kernel"), *sources("plugins")) if catches_everything(source)}
    assert found == {*CATCHES_EVERYTHING}


@pytest.mark.parametrize("source", [*sources("kernel"), *sources("plugins")], ids=lambda source: source.name)
def test_a_module_says_in_one_sentence_what_it_owns(source: Source) -> None:
    """In the first line of its docstring."""
    text = ast.get_docstring(source.tree)
    assert text, source.name
    assert text.splitlines()[0].endswith((".", ":"))
