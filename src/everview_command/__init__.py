"""What the command `everview` runs first: it ends quietly at a Ctrl-C while Python reads the rest.

That takes a second, and this package stands beside `everview` because whoever imports a module of
that one has imported all of it. It must import nothing but what Python has loaded anyway.
"""

import os
import signal
from types import FrameType

_INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process."""
    signal.signal(signal.SIGINT, _end)
    from everview.cli import main as everview

    everview()


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)
