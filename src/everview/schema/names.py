"""Names of tables and columns: as SQL writes them, and which of them can be shown."""

from __future__ import annotations

import re
import unicodedata

from everview.errors import InvalidSchema

LONGEST_NAME = 255  # bytes
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTED = re.compile(r"`(?:[^`]|``)+`")


def check_visible(kind: str, name: str) -> None:
    """Raises `InvalidSchema` if a new name has characters that control what is shown: line ends,
    NUL, marks that turn the direction of text. Two names that look alike might then differ.

    Joiners, which some scripts and emoji need, are fine. So are names from before this check.
    """
    for character in name:
        kinds = unicodedata.category(character)
        if kinds in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\u200c\u200d":
            character_name = unicodedata.name(character, "a control character").lower()
            raise InvalidSchema(
                f"{name!a} can't be the name of a {kind}: it has U+{ord(character):04X} "
                f"({character_name}), which does not show; leave it out"
            )


def quoted(name: str) -> str:
    """The name as an identifier in SQL text."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def unquoted(text: str) -> str:
    """The name without its quotes, if the text is a name and nothing else."""
    return text[1:-1].replace("``", "`") if _QUOTED.fullmatch(text) else text


def name_in_type(name: str) -> str:
    """The name of a field as the name of a struct type has it."""
    return name if _PLAIN.fullmatch(name) else quoted(name)
