"""Spec → Program: the statements of a layer in order, all mistakes together.

Not mistakes: operands and definitions that nothing reads (an operand may be there for its length, or to keep a call's signature).
"""

from __future__ import annotations

import re
from itertools import count
from typing import assert_never

from contractor.errors import Mistake, Span, SpecError
from contractor.program.check_expression import read
from contractor.program.check_limits import within_limits
from contractor.program.check_mask import Found, is_mask, read_mask
from contractor.program.check_scope import (
    Broken,
    MaskSymbol,
    Scope,
    Tensor,
    declare,
    features_of,
    positions_first,
    positions_of,
    read_axes,
    shown,
)
from contractor.program.check_state import stateless
from contractor.program.expression import POSITIONS, Axes, Expression, Named, Number, Variable
from contractor.program.program import Definition, MaskDefinition, Operand, Program
from contractor.text import spec
from contractor.text.walk import values, within

MOST_MISTAKES = 50
NUMBERS = {"real": Number.REAL, "complex": Number.COMPLEX, "int": Number.INT}


def check(whole: spec.Spec) -> tuple[Program, ...]:
    """The layers of a file, understood. Raises SpecError with every mistake of every layer."""
    mistakes: list[Mistake] = []
    programs: list[Program] = []
    names: dict[str, Span] = {}
    for layer in whole.layers:
        if layer.name.text in names:
            spans = (names[layer.name.text], layer.name.span)
            mistakes.append(Mistake(f"two layers are called `{layer.name.text}`", spans, "give each a name of its own"))
        names.setdefault(layer.name.text, layer.name.span)
        program, found = understood(layer)
        mistakes += found
        programs += [] if program is None else [program]
    refuse(mistakes, whole)
    return tuple(programs)


def check_layer(layer: spec.Layer, whole: spec.Spec) -> Program:
    """One layer of a file, understood. Raises SpecError with every mistake of the layer."""
    program, mistakes = understood(layer)
    refuse(mistakes, whole)
    assert program is not None
    return program


def refuse(mistakes: list[Mistake], whole: spec.Spec) -> None:
    """Raise what was found, in the order of the text; of very many, the first."""
    shown_first = sorted(mistakes, key=lambda mistake: min(mistake.spans, default=Span(0, 0)))
    if len(mistakes) > MOST_MISTAKES:
        left = len(mistakes) - MOST_MISTAKES
        shown_first = [*shown_first[:MOST_MISTAKES], Mistake(f"and {left} more mistakes", shown_first[MOST_MISTAKES].spans)]
    if mistakes:
        raise SpecError(tuple(shown_first), whole.text, whole.file)


def understood(layer: spec.Layer) -> tuple[Program | None, list[Mistake]]:
    """The program of a layer, or none, and its mistakes."""
    scope = Scope()
    if not within_limits(scope, layer):
        return None, scope.mistakes
    prepare(scope, layer)
    operands: list[Operand] = []
    definitions: list[Definition | MaskDefinition] = []
    outputs: tuple[Expression, ...] = ()
    for statement in layer.statements:
        match statement:
            case spec.Declaration():
                operands += declaration(scope, statement)
            case spec.Definition():
                definitions += definition(scope, statement)
            case spec.Output():
                outputs = outputs or output(scope, statement)
            case _:
                assert_never(statement)
    returns_last(scope, layer)
    if scope.mistakes:
        return None, scope.mistakes
    lengths = {axis for operand in operands if operand.role == "input" for axis in positions_of(operand.axes)}
    same = scope.self_mixing or len(lengths) == 1
    return Program(layer.name.text, tuple(operands), tuple(definitions), outputs, same, stateless(tuple(definitions), outputs)), []


# ---- before the first statement -----------------------------------------------------------------------------------------------


def prepare(scope: Scope, layer: spec.Layer) -> None:
    """Collect the letters of the layer, the names defined in it, and which axes an operand gives a size."""
    for statement in layer.statements:
        if isinstance(statement, spec.Output):
            continue
        for letter in statement.axes:
            scope.axes.setdefault(letter.text, letter.span)
        scope.later.setdefault(statement.name.text, statement.name.span)
        if isinstance(statement, spec.Declaration):
            scope.sized |= {letter.text for letter in statement.axes}
    if scope.sized & set(POSITIONS):
        scope.sized |= set(POSITIONS)
        for position in POSITIONS:
            scope.axes.setdefault(position, Span(0, 0))
    taken = set(re.findall(r"[A-Z][0-9]*", " ".join(letters(layer))))
    scope.spare = next(letter for letter in (f"Z{number}" for number in count()) if letter not in taken)


def letters(layer: spec.Layer) -> list[str]:
    """Every name of the layer in which axes may be written."""
    found = [name.text for one in layer.statements if not isinstance(one, spec.Output) for name in one.axes]
    for statement in layer.statements:
        for node, _ in within(statement):
            if isinstance(node, spec.Relabel):
                found += [name.text for name in node.axes]
            elif isinstance(node, spec.Contraction):
                found += [name.text for name in node.operands]
    return found


# ---- statements ---------------------------------------------------------------------------------------------------------------


def declaration(scope: Scope, node: spec.Declaration) -> list[Operand]:
    """`input X [S, N] : complex in [0, 1]`."""
    before = len(scope.mistakes)
    axes = read_axes(scope, node.axes)
    number = NUMBERS[node.number]
    for letter in node.axes:
        if node.role == "param" and letter.text in POSITIONS:
            message = f"a param has no position: `{node.name.text}` has {letter.text}"
            scope.wrong(message, letter.span, hint="declare it as an input, or give the axis another letter")
    if node.promise is not None:
        check_promise(scope, node.promise, number)
    if axes is None or len(scope.mistakes) > before:
        declare(scope, node.name, Broken(node.name.span))
        return []
    variable = Variable(node.name.text, positions_first(axes), number)
    declare(scope, node.name, Tensor(variable, axes, node.role, node.name.span))
    if node.promise is None:
        return [Operand(node.name.text, node.role, variable.axes, number)]
    return [Operand(node.name.text, node.role, variable.axes, number, node.promise.low, node.promise.high)]


def check_promise(scope: Scope, promise: spec.Promise, number: Number) -> None:
    """An interval that something can lie in."""
    if not promise.low <= promise.high:
        scope.wrong(f"nothing lies in [{promise.low}, {promise.high}]", promise.span, hint="write the smaller bound first")
    elif number is Number.COMPLEX and promise.high < 0:
        scope.wrong("the promise of a complex value is about its modulus, which is never below 0", promise.span)


def definition(scope: Scope, node: spec.Definition) -> list[Definition | MaskDefinition]:
    """`X [T, F] = …`: a tensor or a mask; one that is wrong is remembered, so that its uses are not reported."""
    before = len(scope.mistakes)
    axes = read_axes(scope, node.axes)
    if is_mask(scope, node.value):
        return mask_definition(scope, node, axes, before)
    value = read(scope, node.value, axes)
    if axes is not None and value is not None:
        check_left(scope, node, axes, value)
    if axes is None or value is None or len(scope.mistakes) > before:
        declare(scope, node.name, Broken(node.name.span))
        return []
    scope.sized |= set(axes)
    variable = Variable(node.name.text, positions_first(axes), value.number)
    declare(scope, node.name, Tensor(variable, axes, "definition", node.name.span))
    return [Definition(node.name.text, variable.axes, value, value.number)]


def check_left(scope: Scope, node: spec.Definition, axes: Axes, value: Expression) -> None:
    """The value's axes are on the left; what it lacks of them has a size from elsewhere."""
    missing = [axis for axis in value.axes if axis not in axes]
    if missing:
        message = f"the value has the axes {shown(value.axes)}, and {missing[0]} is not on the left"
        hint = f"add {missing[0]} to {shown(axes)}, or reduce it: `sum(… over {missing[0]})`"
        scope.wrong(message, node.value.span, hint=hint)
    for letter in node.axes:
        if letter.text not in value.axes and letter.text not in scope.sized:
            hint = f"the value has {shown(value.axes)}; a letter that is broadcast is an axis of an operand"
            scope.wrong(f"nothing gives the axis {letter.text} a size", letter.span, hint=hint)


def mask_definition(scope: Scope, node: spec.Definition, axes: Axes | None, before: int) -> list[Definition | MaskDefinition]:
    """`L [T, S, N] = mask`."""
    if axes is not None and axes[:2] != POSITIONS:
        hint = f"write `{node.name.text} [T, S, …] = …`, extra axes last"
        scope.wrong(f"a mask is over [T, S, …], not {shown(axes)}", node.name.span, hint=hint)
    elif axes is not None:
        check_mask_sizes(scope, node)
    found = None if axes is None or axes[:2] != POSITIONS else read_mask(scope, node.value, axes[2:], read)
    if found is None or axes is None or len(scope.mistakes) > before:
        declare(scope, node.name, Broken(node.name.span))
        return []
    return [mask_symbol(scope, node, features_of(axes), found)]


def check_mask_sizes(scope: Scope, node: spec.Definition) -> None:
    """A mask stands over positions that some input has."""
    if not scope.sized & set(POSITIONS):
        scope.wrong("no input of this layer has a position", node.name.span, hint="declare one with T or S")


def mask_symbol(scope: Scope, node: spec.Definition, extra: Axes, found: Found) -> MaskDefinition:
    """Enter a mask under its name."""
    scope.sized |= set(extra)
    named = Named(node.name.text, found.mask, extra)
    declare(scope, node.name, MaskSymbol(named, found.terms, found.nodes + 1, found.matrix, node.name.span))
    return MaskDefinition(node.name.text, extra, found.mask)


def output(scope: Scope, node: spec.Output) -> tuple[Expression, ...]:
    """`output e1, e2`."""
    found = [read(scope, value, None) for value in node.values]
    return tuple(value for value in found if value is not None)


def returns_last(scope: Scope, layer: spec.Layer) -> None:
    """`output` stands once, last."""
    outputs = [statement for statement in layer.statements if isinstance(statement, spec.Output)]
    if not outputs:
        scope.wrong(f"the layer `{layer.name.text}` has no output", layer.name.span, hint="end it with `output …`")
    elif len(outputs) > 1:
        scope.wrong("a layer has one output statement", *(one.span for one in outputs), hint="write `output e1, e2`")
    elif layer.statements[-1] is not outputs[0]:
        scope.wrong("`output` is the last statement of a layer", outputs[0].span, hint="move it to the end")
    for one in outputs:
        if not values(one):
            scope.wrong("`output` returns nothing", one.span)
