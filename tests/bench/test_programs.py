"""The mock worker answers as a worker does, and the load generator takes no other answer."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.bodies import (
    ANSWER_BYTES,
    ENGINE_ID,
    ENGINES,
    ONE,
    PATH,
    SGLANG,
    STATE,
    TRTLLM,
    VLLM,
    make_answer,
    make_context_answer,
    make_event,
    make_request,
    make_stream,
    write_rules,
)
from bench.cases import THOUSAND
from bench.gateways import Pools, mock_worker
from bench.processes import BenchError, Cores, fetch, free_port, python, running, wait_until_ready
from bench.programs import Programs, build_programs

TOKENS = 3
PAUSES = (0, 1000)
PLAIN = make_request(ONE, 500, stream=False)
STREAMED = make_request(ONE, 500, stream=True, pause=0)
PACED = make_request(ONE, 500, stream=True, pause=1000)


@pytest.fixture(scope="module")
def programs() -> Programs:
    """Both of them, compiled."""
    return build_programs()


@pytest.fixture(scope="module")
def worker(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a mock worker."""
    rules = write_rules(tmp_path_factory.mktemp("rules"), TOKENS, PAUSES)
    with mock_worker(programs, rules, Cores.of_this_machine().others) as port:
        yield port


@pytest.fixture
def ask(programs: Programs, tmp_path: Path) -> Any:
    """A function that asks seven times over three connections; gives what the load generator prints."""

    def call(port: int, body: bytes, answer: bytes, *options: str) -> Any:
        tmp_path.joinpath("body").write_bytes(body)
        tmp_path.joinpath("answer").write_bytes(answer)
        files = (f"--body={tmp_path / 'body'}", f"--answer={tmp_path / 'answer'}")
        counts = ("--connections=3", "--warmup=2", "--requests=7")
        command = [str(programs.load), f"--port={port}", *files, *counts, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode:
            raise BenchError(done.stderr)
        return json.loads(done.stdout)

    return call


@contextmanager
def gateway(said: bytes) -> Iterator[int]:
    """The port of a gateway that says this to the first who asks, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                while not connection.recv(65536).endswith(b"}"):
                    pass
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(
    ("body", "answer"),
    [(PLAIN, make_answer()), (STREAMED, make_stream(TOKENS)), (PACED, make_stream(TOKENS))],
)
def test_each_request_is_answered_once(worker: int, ask: Any, body: bytes, answer: bytes) -> None:
    """As many answers are taken as were asked for, whole ones and streams, paced and not."""
    said = ask(worker, body, answer)

    assert said["requests"] == said["first"]["count"] == said["whole"]["count"] == 7
    assert 0 < said["first"]["p50"] <= said["whole"]["p99"] <= said["whole"]["most"] <= said["seconds"]


def test_a_share_leaves(worker: int, ask: Any) -> None:
    """Every third request is left after its first bytes, and the connection is made anew."""
    said = ask(worker, PACED, make_stream(TOKENS), "--leave=3")

    assert said["left"] == 2
    assert (said["first"]["count"], said["whole"]["count"]) == (7, 5)


@pytest.mark.parametrize("size", [32 * 1024, 100 * 1024])
def test_a_large_request_is_accepted(worker: int, ask: Any, size: int) -> None:
    """The body may come in many pieces."""
    assert ask(worker, make_request(ONE, size, stream=False), make_answer())["whole"]["count"] == 7


def test_requests_can_be_told_apart(ask: Any, programs: Programs) -> None:
    """A number stands where it was asked for, another one in each request, and no other byte is changed."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            reader = connection.makefile("rb")
            for _ in range(3):
                while reader.readline() != b"\r\n":
                    pass
                seen.append(reader.read(len(PLAIN)))
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        at = PLAIN.index(b'"x') + 1
        counts = ("--connections=1", "--warmup=1", "--requests=2")
        ask(server.getsockname()[1], PLAIN, b"{}", *counts, f"--unique={at}", "--first=41")
        thread.join()

    assert [int(body[at : at + 16]) for body in seen] == [41, 42, 43]
    assert {body[:at] + PLAIN[at : at + 16] + body[at + 16 :] for body in seen} == {PLAIN}


def test_the_time_of_processes_is_told(worker: int, ask: Any) -> None:
    """What processes with these ids spent while requests were measured, and not before."""
    with subprocess.Popen(["sh", "-c", "kill -STOP $$"]) as stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        said = ask(worker, PLAIN, make_answer(), f"--pid={stopped.pid}")
        stopped.kill()
    with running(["sh", "-c", "while :; do :; done"], Cores.of_this_machine().others) as busy:
        more = ask(worker, PACED, make_stream(TOKENS), f"--pid={busy.pid}")

    assert said["processor_seconds"] == 0
    assert more["processor_seconds"] > 0


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (make_stream(TOKENS - 1), "it differs|it is too long"),
        (make_stream(TOKENS).removesuffix(b"\n"), "it is too long"),
        (make_event() * TOKENS, "it is too long"),
        (make_stream(TOKENS) + b"\n", "it is too short"),
        (make_answer(), "it differs"),
    ],
)
def test_another_stream_ends_the_run(worker: int, ask: Any, answer: bytes, reason: str) -> None:
    """A token less, a cut end, a missing terminator, a byte more and a whole answer are no stream."""
    with pytest.raises(BenchError, match=f"not the worker's: (?:{reason})"):
        ask(worker, STREAMED, answer)


@pytest.mark.parametrize("at", [0, 1, ANSWER_BYTES // 2, ANSWER_BYTES - 1])
def test_one_wrong_byte_ends_the_run(worker: int, ask: Any, at: int) -> None:
    """Wherever it stands."""
    answer = make_answer()
    with pytest.raises(BenchError, match="not the worker's: it differs"):
        ask(worker, PLAIN, answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :])


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "closed a connection"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{", "closed a connection|it differs"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "its status"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "where it ends"),
        (b"?\r\n\r\n", "its status"),
        (b"x" * 20_000, "no end of its head"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n" + make_answer() + b"x", "more than it"),
    ],
)
def test_a_gateway_that_breaks_off_ends_the_run(ask: Any, said: bytes, reason: str) -> None:
    """A connection that is closed before its answer, in the middle of it, or that speaks something else."""
    with gateway(said) as port, pytest.raises(BenchError, match=reason):
        ask(port, PLAIN, make_answer(), "--connections=1", "--warmup=0")


def test_a_connection_that_rests_may_be_closed(ask: Any) -> None:
    """Gateways close what was not used for a while: it is made anew once it is needed."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(connection: socket.socket) -> None:
            while not connection.recv(65536).endswith(b"}"):
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

        def serve() -> None:
            (resting, _), (other, _) = server.accept(), server.accept()
            answer(resting)
            resting.close()
            answer(other)
            again, _ = server.accept()
            answer(again)
            answer(other)
            again.close()
            other.close()

        thread = threading.Thread(target=serve)
        thread.start()
        said = ask(server.getsockname()[1], PLAIN, b"{}", "--connections=2", "--warmup=2", "--requests=2")
        thread.join()

    assert said["whole"]["count"] == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_generation_request_needs_the_handoff(worker: int, ask: Any, engine: str) -> None:
    """A gateway that leaves the relay out is found out; with it, both legs have their answers."""
    state = f'{{"request_type":"generation_only","encoded_opaque_state":"{STATE}"}}'
    transfer = f'{{"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":"{ENGINE_ID}"}}'
    context, generation = {
        TRTLLM: ('"disaggregated_params":{"request_type":"context_only"}', f'"disaggregated_params":{state}'),
        VLLM: ('"kv_transfer_params":{"do_remote_decode": true}', f'"kv_transfer_params":{transfer}'),
        SGLANG: ('"bootstrap_room":17', '"bootstrap_room":17'),
    }[engine]
    bare = make_request(engine, 5_000, stream=False)
    first = make_answer() if engine == SGLANG else make_context_answer(engine)

    with pytest.raises(BenchError, match=r"its status.* 400 "):
        ask(worker, bare, make_answer())
    ask(worker, bare[:-1] + f",{context}}}".encode(), first)
    ask(worker, bare[:-1] + f",{generation}}}".encode(), make_answer())
    ask(worker, f"{{{generation},".encode() + bare[1:], make_answer())


def test_a_worker_has_many_addresses(worker: int) -> None:
    """A thousand workers are one process, each with a URL of its own."""
    urls = Pools.of(THOUSAND, worker).one
    assert len(set(urls)) == 1_000
    for url in urls[:3] + urls[-3:]:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert connection.makefile("rb").read().endswith(b"\r\n\r\n{}")


def test_a_worker_tells_what_it_is(worker: int) -> None:
    """What gateways ask of a worker before they use it, and nothing of what does not exist."""
    assert b'"data":[{"id":"one"' in fetch(worker, "/v1/models")
    assert b'"is_generation":true' in fetch(worker, "/get_model_info?x=1")
    assert b" 400 " in fetch(worker, "/v1/unknown")


def test_a_process_that_ends_at_once_is_told() -> None:
    """A gateway that cannot be started is no endless wait."""
    with (
        running(python("bench.floors", "none"), Cores.of_this_machine().others, quiet=True) as process,
        pytest.raises(BenchError, match="the gateway did not start"),
    ):
        wait_until_ready(free_port(), "the gateway", process)


def test_a_missing_compiler_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BenchError, match=r"no C compiler 'no-such-compiler'.*install"):
        build_programs(tmp_path)


def test_a_program_is_compiled_once(tmp_path: Path) -> None:
    """What is newer than its sources is taken as it is."""
    first = build_programs(tmp_path).load.stat()
    assert build_programs(tmp_path).load.stat() == first


@pytest.mark.parametrize("size", [150, 500, 32 * 1024])
def test_a_request_has_exactly_its_size(size: int) -> None:
    """Sizes are those of bodies, to the byte."""
    assert len(make_request(ONE, size, stream=True)) == size


def test_a_request_cannot_be_too_small() -> None:
    """A body has to hold its fields."""
    with pytest.raises(ValueError, match="at least"):
        make_request(ONE, 10, stream=True)


def test_an_answer_has_the_size_that_is_told() -> None:
    """Whole answers are of one size, and are asked for at one path."""
    assert len(make_answer()) == ANSWER_BYTES
    assert PATH.endswith("/chat/completions")
