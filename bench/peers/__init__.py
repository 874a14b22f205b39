"""Measures the kernel beside the routers that people run today, in one run, on one core.

`make bench-peers` installs them, pinned by `constraints.txt`, each into a folder of its own in the user's cache (or in
`$ENGINES_HOME`), and runs `python -m bench.peers`: smg, vllm-router and sglang-router, the kernel, and the floors of
`bench`, in turns before the same workers. What the figures are, how they are taken, and how to read them is said there.
`docs/peers.md` says with which settings each of them runs, and why.

Before it is measured, each gateway sends one request that no other is like, and what came of it to the workers is
looked at: the whole prompt on each leg, for vLLM one token and the handoff that the context worker gave, for SGLang the
same room. Then the workers count: each request has to come to each role once, or the figure is none. The load generator
compares every answer byte by byte.

A gateway that fails is left out, the table is made of the others, and the end is an error. A goal that is missed is
none: `to reach` and what this run says of it are told, and that is all.
"""
