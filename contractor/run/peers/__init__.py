"""The register of peers: a library that computes some of the same layers is one file here and one line below."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace

from contractor.errors import ArgumentError
from contractor.plan.problem import Problem
from contractor.run.peers.fitted import Fitted, Peer

__all__ = ["PEERS", "Fitted", "fitted"]

PEERS: dict[str, str] = {
    "fla": "contractor.run.peers.fla",
    "mamba": "contractor.run.peers.mamba",
    "sdpa": "contractor.run.peers.sdpa",
}


def fitted(name: str, problem: Problem) -> Fitted | str:
    """The layer as a peer computes it, or why it does not; its library is imported at the first question, as that may be slow.

    Raises ArgumentError for a peer that nobody knows.
    """
    if name not in PEERS:
        raise ArgumentError(f"unknown peer {name!r}; there are {', '.join(PEERS)}")
    try:
        peer: Peer = importlib.import_module(PEERS[name]).PEER
    except Exception as error:  # a library may fail in any way where its device is missing
        return f"cannot be imported: {type(error).__name__}: {error}"
    found = peer.absent() or peer.fit(problem)
    if isinstance(found, str):
        return found
    return replace(found, version=getattr(sys.modules.get(peer.module), "__version__", ""))
