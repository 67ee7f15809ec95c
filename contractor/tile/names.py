"""Names that a printed kernel may use: identifiers of Python that mean nothing else in the text."""

from __future__ import annotations

import builtins
import keyword

from contractor.errors import TileError

TAKEN = frozenset(
    {"torch", "triton", "tl", "math", "acc", "device", "programs", "read", "write", "longest", "forward", "grid", "TensorDescriptor"}
    | {name for name in dir(builtins) if name.islower()}
)


def usable(name: str) -> bool:
    """True if a kernel may call something by this name."""
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name not in TAKEN and not name.endswith("_alive")


def checked(name: str, what: str) -> str:
    """The name. Raises TileError if a printed kernel cannot use it."""
    if not usable(name):
        raise TileError(f"{name!r} cannot name a {what}: it is no plain identifier, or means something else in printed text")
    return name


def spelled(name: str) -> str:
    """A usable name that reads like the given one: other signs become `_`, and `_` follows a word that is taken."""
    plain = "".join(sign if sign.isascii() and (sign.isalnum() or sign == "_") else "_" for sign in name) or "_"
    plain = plain if plain[0].isalpha() or plain[0] == "_" else f"_{plain}"
    return plain if usable(plain) else f"{plain}_"
