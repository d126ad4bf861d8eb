"""Tokens of leases: what comes with an old one is refused."""

from __future__ import annotations

from everview.errors import Superseded


def check_token(token: int, newest: int) -> None:
    """Raises `Superseded` for a token that is not the newest."""
    if token < newest:
        raise Superseded(
            f"another maintainer took over (it has lease {newest}, this one had lease {token}); "
            "this write was refused, and the other maintainer continues"
        )
