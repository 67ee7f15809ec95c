"""contractor: masked attention and state space layers, written as contractions, planned and printed as kernels.

    op = contractor.compile("retention.ctr")
    y = op(Q=q, K=k, V=v, gamma=g)
    print(op.plan(B=4, T=4096, H=32, N=128, P=128, machine="h200"))

`contractor --help` tells the same for a command line.
"""

from contractor.errors import ArgumentError, ContractorError, RefusedError, SpecError
from contractor.pipeline import compile
from contractor.program.reference import reference
from contractor.run.operator import Operator
from contractor.run.state import State

__all__ = ["ArgumentError", "ContractorError", "Operator", "RefusedError", "SpecError", "State", "compile", "reference"]
