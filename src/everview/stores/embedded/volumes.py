"""Where a state lies: in which directory below `state`, and with what its keys begin there.

    state/volume-views0/3   shard 3 of all states that are named views0.<12 hexadecimal digits>
    state/5f0c1b…/3         shard 3 of the one state of that name

Most states lie in volumes that are numbered. A volume that others do not write has another name.
"""

from __future__ import annotations

from collections.abc import Iterable

_VOLUME, _NUMBERED = "volume-", "views"


def place_of(state: str) -> tuple[str, bytes]:
    """The directory of a state, and the prefix of its keys."""
    volume, dot, name = state.partition(".")
    return (f"{_VOLUME}{volume}", bytes.fromhex(name)) if dot else (state, b"")


def state_at(directory: str, prefix: bytes) -> str:
    """The name of the state with a prefix in a directory."""
    return f"{directory[len(_VOLUME) :]}.{prefix.hex()}" if prefix else directory


def is_volume(directory: str) -> bool:
    return directory.startswith(_VOLUME)


def numbered(number: int) -> str:
    """The name of a numbered volume."""
    return f"{_NUMBERED}{number}"


def directory_of(volume: str) -> str:
    return f"{_VOLUME}{volume}"


def numbers_of(directories: Iterable[str]) -> list[int]:
    """The numbers of volumes that are numbered."""
    first = f"{_VOLUME}{_NUMBERED}"
    ends = [name[len(first) :] for name in directories if name.startswith(first)]
    return [int(end) for end in ends if end.isdigit()]
