"""A program as a person reads it: operands, definitions with the laws of their masks in words, outputs, and what a state is."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import assert_never

from contractor.errors import ContractorError
from contractor.program.expression import (
    Apply,
    Axes,
    Concat,
    Constant,
    Contract,
    Expression,
    Flipped,
    Leaf,
    Mask,
    MaskProduct,
    MaskSum,
    Named,
    Outer,
    Position,
    Reduce,
    Relabel,
    Reversed,
    Scaled,
    Size,
    Variable,
)
from contractor.program.laws import Term, terms
from contractor.program.masks import MASKS
from contractor.program.masks.mask import Dense, Fade, Law, Lookup, RankOne, Rotation, Step
from contractor.program.place import LAG, Binary, Given, Held, Length, Place, Source, Target, Whole
from contractor.program.program import Definition, MaskDefinition, Operand, Program

SUM, PRODUCT, POWER, ATOM = 1, 2, 3, 4
BINDS = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "^": POWER}
Text = tuple[str, int]


def show(program: Program) -> str:
    """The whole layer, aligned."""
    sections = [
        ("operands", columns(operand_row(operand) for operand in program.operands)),
        ("definitions", [line for one in program.definitions for line in definition_lines(one)]),
        ("outputs", columns((expression_text(output), axes_text(output.axes), number_text(output)) for output in program.outputs)),
        ("lengths", ["T = S" if program.self_mixing else "T and S are independent"]),
        ("state", [f"none: {program.stateless}" if program.stateless else "no reason in the layer against carrying one"]),
    ]
    lines = [f"layer {program.name}"]
    for title, rows in sections:
        lines += [f"  {title}", *(f"    {row}" for row in rows)] if rows else []
    return "\n".join(lines)


def columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows with their columns aligned."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def operand_row(operand: Operand) -> tuple[str, ...]:
    """Role, name, axes, kind of number and promise."""
    promise = "" if (operand.low, operand.high) == (-inf, inf) else f"in [{operand.low:g}, {operand.high:g}]"
    return operand.role, operand.name, axes_text(operand.axes), operand.number.name.lower(), promise


def definition_lines(one: Definition | MaskDefinition) -> list[str]:
    """A definition; below a mask what its law says."""
    if isinstance(one, Definition):
        return [f"{one.name} {axes_text(one.axes)} = {expression_text(one.value)}"]
    return [
        f"{one.name} {axes_text(('T', 'S', *one.extra))} = {mask_text(one.mask)}",
        *(f"    {line}" for line in law_lines(one.mask)),
    ]


def axes_text(axes: Axes) -> str:
    """[T, N]."""
    return f"[{', '.join(axes)}]"


def number_text(expression: Expression) -> str:
    """real, complex or int."""
    return expression.number.name.lower()


# ---- expressions, as the language writes them -----------------------------------------------------------------------------------


def expression_text(expression: Expression) -> str:
    """An expression in the language's own words."""
    return text(expression)[0]


def text(expression: Expression) -> Text:
    """An expression and how strongly it binds."""
    match expression:
        case Constant():
            return repr(expression.value), ATOM if expression.value >= 0 else PRODUCT
        case Size():
            return expression.axis, ATOM
        case Position():
            return f"pos({expression.axis})", ATOM
        case Variable():
            return expression.name, ATOM
        case Relabel():
            return f"{expression.value.name}{axes_text(expression.axes)}", ATOM
        case Apply():
            return applied(expression)
        case Reduce():
            under = "" if expression.under is None else f" under {mask_text(expression.under)}"
            return f"{expression.function}({expression_text(expression.value)} over {', '.join(expression.over)}{under})", ATOM
        case Concat():
            return f"concat({listed(expression.parts)})", ATOM
        case Outer():
            return f"outer({listed((expression.left, expression.right))})", ATOM
        case Contract():
            return contraction(expression), ATOM
        case _:
            assert_never(expression)


def listed(expressions: tuple[Expression, ...]) -> str:
    """Arguments, with commas."""
    return ", ".join(expression_text(one) for one in expressions)


def within(inner: Text, least: int) -> str:
    """In parentheses, unless it binds strongly enough."""
    return inner[0] if inner[1] >= least else f"({inner[0]})"


def applied(node: Apply) -> Text:
    """A sign between its operands, or a call."""
    if node.function == "negate":
        return f"-{within(text(node.arguments[0]), POWER)}", PRODUCT
    if node.function not in BINDS:
        return f"{node.function}({listed(node.arguments)})", ATOM
    binds = BINDS[node.function]
    left, right = (text(argument) for argument in node.arguments)
    if node.function == "^":
        return (
            f"{within(left, ATOM)} ^ {right[0] if right[0].startswith('-') and right[1] == PRODUCT else within(right, POWER)}",
            POWER,
        )
    return f"{within(left, binds)} {node.function} {within(right, binds + 1)}", binds


def contraction(node: Contract) -> str:
    """contract(TN, SN, TS -> TP)(Q, K, L)."""
    letters = ["".join(own) for own in node.letters]
    arguments = [expression_text(operand) for operand in node.operands]
    if node.mask is not None:
        letters.append("".join(("T", "S", *node.mask_axes)))
        arguments.append(mask_text(node.mask))
    return f"contract({', '.join(letters)} -> {''.join(node.axes)})({', '.join(arguments)})"


# ---- masks --------------------------------------------------------------------------------------------------------------------


def mask_text(mask: Mask, least: int = 0) -> str:
    """A mask in the language's own words."""
    match mask:
        case Leaf():
            return leaf_text(mask)
        case Named():
            return mask.name
        case Scaled():
            inner = f"{within(text(mask.factor), PRODUCT)} * {mask_text(mask.mask, ATOM)}"
            return within((inner, PRODUCT), least)
        case MaskProduct():
            return within((f"{mask_text(mask.left, PRODUCT)} * {mask_text(mask.right, ATOM)}", PRODUCT), least)
        case MaskSum():
            return within((f"{mask_text(mask.left)} + {mask_text(mask.right, PRODUCT)}", SUM), least)
        case Reversed():
            return f"reverse({mask_text(mask.mask)})"
        case Flipped():
            return f"flip({mask_text(mask.mask)})"
        case _:
            assert_never(mask)


def leaf_text(leaf: Leaf) -> str:
    """A kind with its arguments; those out of order are named."""
    names = [parameter.name for parameter in MASKS[leaf.kind].parameters if not parameter.keyword]
    given = [name for name, _ in leaf.arguments]
    in_order = given[: len(names)] == names[: len(given)]
    arguments = [
        expression_text(value) if in_order and name in names else f"{name} = {expression_text(value)}" for name, value in leaf.arguments
    ]
    return f"{leaf.kind}({', '.join([*arguments, *(['shift = 1'] if leaf.shift else [])])})"


def law_lines(mask: Mask) -> list[str]:
    """What is known of a mask: one or two lines for each term of the sum."""
    try:
        found = terms(mask)
    except ContractorError as reason:
        return [f"by definition only: {reason}"]
    lines = [f"{term_text(term)}" for term in found]
    return lines if len(lines) == 1 else [f"{index + 1}. {line}" for index, line in enumerate(lines)]


def term_text(term: Term) -> str:
    """Direction, coefficient, support and transitions of one product."""
    future, flipped = "from the future (t and s exchanged): ", "on the reversed sequence: "
    direction = {"past": "", "future": future, "flipped": flipped, "turned": flipped + future}
    factor = "".join(f"{within(text(one), PRODUCT)} × " for one in term.coefficient)
    reason = term.carries()
    return f"{direction[term.direction]}{factor}{law_text(term.law)}{f' (no state: {reason})' if reason else ''}"


def law_text(law: Law) -> str:
    """Support, transitions, weights."""
    parts = [f"where {place_text(law.support)}" if law.support is not None else "everywhere"]
    parts += [step_text(step) for step in law.steps]
    parts += ["weight exp(−2πi·t·s/T)" if isinstance(one, Rotation) else f"weight {lookup_text(one)}" for one in law.weights]
    parts += [f"factor exp({expression_text(value)}) on the source" for value in law.write]
    parts += [f"summed over {one.axis}: {expression_text(one.left)} · {expression_text(one.right)}" for one in law.ranks]
    return "; ".join(parts) if len(parts) > 1 or law.support is not None else "1 everywhere"


def step_text(step: Step) -> str:
    """What crossing one position does to the state."""
    when = " before it, itself left out" if step.shift else ""
    match step:
        case Fade():
            value = expression_text(step.value)
            often = "each position" if "S" in step.value.axes else "every position alike"
            return f"{often}{when} multiplies the state by {f'exp({value})' if step.log else value}"
        case Dense():
            return f"each position{when} multiplies the state by the matrix {expression_text(step.value)} [{step.row}, {step.column}]"
        case RankOne():
            kept = "I" if step.log is None else f"diag(exp({expression_text(step.log)}))"
            key, erase = within(text(step.key), ATOM), within(text(step.erase), ATOM)
            return f"each position{when} multiplies the state by {kept} − {within(text(step.beta), PRODUCT)} · {key} {erase}ᵀ"
        case _:
            assert_never(step)


def lookup_text(one: Lookup) -> str:
    """alpha[lag]."""
    ahead = "" if one.ahead is None else f", {expression_text(one.ahead)} ahead"
    return f"{within(text(one.value), ATOM)}[{', '.join(place_text(place) for place in one.index)}]{ahead}"


SPOKEN = {">=": "≥", "==": "=", "&": "and", "|": "or", "%": "mod"}


def place_text(place: Place) -> str:
    """A place in the language's own words: lag ≥ 0 and lag < w."""
    if place == LAG:
        return "lag"
    match place:
        case Whole():
            return str(place.value)
        case Target():
            return "t"
        case Source():
            return "s"
        case Length():
            return "S"
        case Given():
            return expression_text(place.value)
        case Held():
            return f"{within(text(place.value), ATOM)}[{place_text(place.at)}]"
        case Binary():
            return f"{operand_text(place.left)} {SPOKEN.get(place.sign, place.sign)} {operand_text(place.right)}"
        case _:
            assert_never(place)


def operand_text(place: Place) -> str:
    """A place inside another: in parentheses where it is a sum or an alternative."""
    inner = place_text(place)
    loose = isinstance(place, Binary) and place != LAG and place.sign in ("+", "-", "|")
    return f"({inner})" if loose else inner
