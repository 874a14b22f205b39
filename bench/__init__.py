"""Measures what a request costs in the gateway's process, beside two floors in the same run.

`python -m bench` starts mock workers and three gateways: two floors and the kernel as `kernel run FILE` serves it, with
its shipped defaults, the whole standard chain, and its log written to /dev/null.

| gateway | what it is |
| --- | --- |
| floor A | uvicorn, a Starlette route, aiohttp's client: what one would write in an hour |
| floor B | uvicorn, a bare ASGI application, aiohttp's client: the same without the framework |
| kernel  | `python -m plugins.host run FILE` |

All three run on uvloop and httptools. The floors parse JSON, because they have to know the model, and do the relay
that two legs need; they check nothing, count nothing, log nothing and watch nobody. They are left as a careful author
leaves them, without the tuning that the kernel does for itself (garbage collector, prepared headers): the ratio says
what choosing the kernel costs or saves, tuning included.

How to read the table

- `us` is the time that the gateway's process spent on processors, user and system together, children not counted, per
  request, or per token of a paced stream. It is the operating system's accounting, over the measured window alone:
  every run is warmed up first. It is not latency.
- Gateways take turns, and a round is one turn of each. Each column is the median of the rounds; the range behind `us`
  is the lowest and the highest round.
- `/A` and `/B` are the medians of the ratios within one round. **Compare ratios, not microseconds**: these move with
  the machine, by tens of percent. A difference under a tenth needs more rounds (`--rounds`) and a quiet machine.
- `busy` is how much of its core the gateway had. Near 100 % requests are handled in batches, which is cheaper for each
  of them; far below it the load is paced, or the mock worker and the load generator cannot give more. A figure is
  comparable with others of about the same `busy`.
- `p50` and `p99` are what the load generator saw, in milliseconds: until the last byte of a whole answer, until the
  first bytes of a stream. It shares a core with the workers, so they are worth less than `us`.

The gateway has the first core to itself, everything else shares the other ones; with one core there is a warning, and
`us` still holds. Each answer is compared with what the worker sent, byte by byte: one that differs ends the run. The
mock worker for the generation phase declines a request without the handoff of the context phase.

`python -m bench chain` has no sockets: it measures steps of the request path inside one process, in microseconds of
processor time, to find out where a change of the first table comes from. Its parts do not add up to the whole: a plugin
on its own finds its code and data in the processor's cache.

There is no pass or fail. `--quick` is for a continuous integration that wants to know whether all of it still runs; its
figures mean nothing.
"""
