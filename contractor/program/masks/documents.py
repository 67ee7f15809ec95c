"""`documents(ids)`: positions see each other within documents packed into one sequence (attention masks by segment ids)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from contractor.program.expression import Axes, Leaf
from contractor.program.masks.grid import indicator
from contractor.program.masks.mask import Entries, Law, Parameter
from contractor.program.place import Held, S, T


class Documents:
    """1 where the ids at target and source are equal."""

    name: ClassVar[str] = "documents"
    says: ClassVar[str] = "1 where the ids of t and s are equal; `documents(ids_t, ids_s)` gives them apart"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("ids", (("S",), ("T",)), says="the id of each position (of each target, if a second is given)"),
        Parameter("ids_s", (("S",),), says="the id of each source", optional=True),
    )
    choices: ClassVar[tuple[Axes, ...]] = ()
    shifts: ClassVar[bool] = False
    matrix: ClassVar[bool] = False

    def entry(self, given: Entries) -> Tensor:
        """1 where the two ids agree."""
        at_target = given.arguments["ids"]
        at_source = given.arguments.get("ids_s", at_target)
        return indicator(at_target.unsqueeze(3) == at_source.unsqueeze(2))

    def law(self, leaf: Leaf) -> Law:
        """Equality of what is held at the two places."""
        at_target = leaf.argument("ids")
        assert at_target is not None
        at_source = leaf.argument("ids_s") or at_target
        stateless = "documents: ids are compared for every pair of positions; packed sequences (cu_seqlens) reset a state"
        apart = "T" in at_target.axes and "S" in at_source.axes
        return Law(support=Held(at_target, T).same(Held(at_source, S)), stateless=stateless, square=not apart)
