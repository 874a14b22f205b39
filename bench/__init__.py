"""Measures what a request costs in the gateway's process, beside floors in the same run.

`python -m bench` starts a mock worker and gateways: three floors and the kernel as `kernel run FILE` serves it, with
its shipped defaults, the whole standard chain, and its log written to /dev/null.

| gateway | what it is |
| --- | --- |
| floor A | uvicorn, a Starlette route, aiohttp's client: what one would write in an hour |
| floor B | uvicorn, a bare ASGI application, aiohttp's client: the same without the framework |
| floor D | uvicorn, a bare ASGI application, a lean client on httptools (`lean.py`): the same without a library |
| kernel  | `python -m plugins.host run FILE` |

All of them run on uvloop and httptools. The floors parse JSON, because they have to know whether it is a stream, do the
relay that two legs need, and let workers take turns; they check nothing, count nothing, log nothing, have no policy and
watch nobody. B and D do not notice a client that leaves, and read its stream to the end. They are left as a careful
author leaves them, without the tuning that the kernel does for itself (garbage collector): the ratio says what choosing
the kernel costs or saves, tuning included.

How to read the table

- `us` is the time that the gateway's process spent on processors, user and system together, children not counted, per
  request, or per token of a stream. It is the operating system's accounting, over the measured window alone: every run
  is warmed up first. It is not latency.
- Gateways take turns, and a round is one turn of each. Each column is the median of the rounds; `range` is the lowest
  and the highest round.
- `kernel/it` is what the kernel needs for each microsecond that this gateway needs, `kernel-it` how much more it needs:
  medians of what was measured within one round. **Compare ratios, not microseconds**: these move with the machine, by
  tens of percent. A difference under a tenth needs more rounds (`--rounds`) and a quiet machine.
- `busy` is how much of its core the gateway had. Near 100 % requests are handled in batches, which is cheaper for each
  of them; far below it the load is paced, or the machine is busy with other things. A figure is comparable with others
  of about the same `busy`.
- `p50` and `p99` are what the load generator saw, in milliseconds: until the last byte of a whole answer, until the
  first byte of a stream's body. It shares a core with the workers.
- `left alone` is the kernel without reloads, and `kernel-it` what these cost.
- `without` a plugin is the kernel whose file switches that plugin off: `kernel-it` is what it costs.
- `MiB` is resident memory, shared libraries included.

The gateway has the first core to itself, everything else shares the other ones; with one core there is a warning, and
`us` still holds. The worker and the load generator are small programs in C (`c/`), compiled at first use into `build/`
with `cc`, or what `CC` names. One process is all workers, under addresses of its own. Each answer is compared with what
the worker sent, byte by byte: one that differs ends the run. The worker declines a generation request without the
handoff of the context phase.

`--output FOLDER` writes the tables in Markdown and a document with all rounds in JSON (`summary.py` says its fields).

`python -m bench chain` has no sockets: it measures steps of the request path inside one process, in microseconds of
processor time, to find out where a change of the first table comes from. Its parts do not add up to the whole: a plugin
on its own finds its code and data in the processor's cache.

`python -m bench stages` says what each stage of a request costs. The kernel serves a case under Python's profiler, and
what is found is scaled to what the same process needed for the same case before: a profiler takes its time for each
call, which is taken off again. What no stage calls is the event loop's, and shared code counts for the stage that calls
it. A busy machine distorts it more than the first table.

`python -m bench calls` needs no clock: it counts the functions that the kernel calls for one request, in lockstep with
its client and its workers, by stage. The number is the same on any machine, so a test holds it to a ceiling, which
`tests/bench/calls.toml` has.

`python -m bench cores` puts one process and two of the kernel (`--workers`) on all cores, in turns, with the load and
the workers beside them: what a unit costs on all processes together, how many there are in a second, and the share of
the busiest process. With two cores, a second process has only what load and workers leave.

There is no pass or fail for what is timed. `--quick` is for a continuous integration that wants to know whether all of
it still runs; its figures mean nothing.
"""
