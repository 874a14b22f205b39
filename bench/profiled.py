"""`kernel run FILE` under a profiler, from the first SIGUSR1 to its end: `python -m bench.profiled PROFILE FILE`."""

import cProfile
import gc
import json
import signal
import sys
from pathlib import Path
from time import thread_time

from attrs import define

from plugins.host.launch import RunOptions, launch


@define
class Collections:
    """The seconds of a processor that garbage collection takes."""

    seconds: float = 0.0
    began: float = 0.0

    def see(self, phase: str, _: object) -> None:
        """Hear that a collection begins or ends."""
        if phase == "start":
            self.began = thread_time()
        else:
            self.seconds += thread_time() - self.began


def main(profile: Path, file: Path) -> None:
    """Serve, and leave the profile in `profile`, with the seconds of garbage collection in a file beside it."""
    profiler = cProfile.Profile()
    collections = Collections()

    def begin(_number: int, _frame: object) -> None:
        gc.callbacks.append(collections.see)
        profiler.enable()

    signal.signal(signal.SIGUSR1, begin)
    launch(
        RunOptions(
            file=file,
            listen=None,
            workers=1,
            insecure=False,
            log_level=None,
            log_format=None,
            fd=None,
            link=None,
            embedded=(),
        )
    )
    profiler.disable()
    profiler.dump_stats(profile)
    profile.with_suffix(".gc").write_text(json.dumps(collections.seconds))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
