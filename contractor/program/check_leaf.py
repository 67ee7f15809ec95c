"""One kind of mask with its arguments, read against its row of parameters in the register of masks."""

from __future__ import annotations

from contractor.errors import ContractorError, Span
from contractor.program.check_scope import Read, Scope, Tensor, did_you_mean, features_of, has, listed, plural, positions_of, shown
from contractor.program.expression import Axes, Constant, Expression, Leaf, Number, Size, Variable
from contractor.program.masks import MASKS
from contractor.program.masks.mask import Kind, Parameter
from contractor.text import spec

LARGEST = 2**31 - 1
Given = dict[str, spec.Expression]


def read_leaf(scope: Scope, node: spec.Call, extra: Axes, matrix: bool, read: Read) -> Leaf | None:
    """`semiseparable(log = g, shift = 1)` in a mask over [T, S, *extra]."""
    kind = MASKS[node.function.text]
    before = len(scope.mistakes)
    if node.over or node.under is not None:
        return scope.wrong(f"{kind.name}() is a mask: it has no `over` and no `under`", node.span)
    given, shift = bind(scope, kind, node)
    values: dict[str, Expression] = {}
    for parameter in kind.parameters:
        if parameter.name in given:
            value = argument(scope, kind, parameter, given[parameter.name], read)
            if value is not None:
                values[parameter.name] = value
    if len(scope.mistakes) > before or len(values) < len(given):
        return None
    own = own_axes(kind, values, extra)
    for parameter in kind.parameters:
        if parameter.name in values:
            check_features(scope, kind, parameter, values[parameter.name], given[parameter.name].span, extra, matrix, own)
    leaf = Leaf(kind.name, tuple(values.items()), extra, shift)
    if len(scope.mistakes) > before or not is_lawful(scope, kind, leaf, node.span):
        return None
    scope.self_mixing |= kind.law(leaf).square
    return leaf


def is_lawful(scope: Scope, kind: Kind, leaf: Leaf, span: Span) -> bool:
    """True if the kind accepts the leaf; what it refuses itself is reported in its own words."""
    try:
        kind.law(leaf)
    except ContractorError as error:
        scope.wrong(str(error), span, hint=usage(kind))
        return False
    return True


def usage(kind: Kind) -> str:
    """How a kind is called."""
    return f"{kind.name}({', '.join(f'{one.name} = …' if one.keyword else one.name for one in kind.parameters)}): {kind.says}"


# ---- which argument is which --------------------------------------------------------------------------------------------------


def bind(scope: Scope, kind: Kind, node: spec.Call) -> tuple[Given, int]:
    """Arguments by parameter, and the shift; every mistake of the call is written down."""
    in_order = [parameter.name for parameter in kind.parameters if not parameter.keyword]
    given: Given = dict(zip(in_order, node.arguments, strict=False))
    if len(node.arguments) > len(in_order):
        takes = f"takes {plural(len(in_order), 'argument')} in order"
        scope.wrong(
            f"{kind.name}() {takes}, not {len(node.arguments)}",
            *(one.span for one in node.arguments[len(in_order) :]),
            hint=usage(kind),
        )
    shift = 0
    names = [parameter.name for parameter in kind.parameters]
    for option in node.options:
        name = option.name.text
        if name == "shift" and name not in names:
            shift = read_shift(scope, kind, option)
        elif name not in names:
            allowed = [*names, *(["shift"] if kind.shifts else [])]
            scope.wrong(f"{kind.name}() has no argument `{name}`", option.name.span, hint=did_you_mean(name, allowed) or usage(kind))
        elif name in given:
            scope.wrong(f"{kind.name}() is given `{name}` twice", given[name].span, option.span)
        else:
            given[name] = option.value
    complete(scope, kind, node, given)
    return given, shift


def read_shift(scope: Scope, kind: Kind, option: spec.Option) -> int:
    """`shift = 0` or `shift = 1`."""
    if not kind.shifts:
        takes = [name for name, other in MASKS.items() if other.shifts]
        scope.wrong(f"{kind.name}() has no shift", option.span, hint=f"shift belongs to {listed(takes)}" if takes else "")
        return 0
    if isinstance(option.value, spec.Constant) and option.value.value in (0, 1):
        return int(option.value.value)
    scope.wrong("shift is 0 or 1", option.value.span)
    return 0


def complete(scope: Scope, kind: Kind, node: spec.Call, given: Given) -> None:
    """Exactly one of each choice, and every positional argument that is in no choice."""
    chosen = {name for choice in kind.choices for name in choice}
    for choice in kind.choices:
        found = [name for name in choice if name in given]
        if len(found) > 1:
            scope.wrong(f"{kind.name}() takes {listed(choice, 'or')}, not both", *(given[name].span for name in found))
        elif not found:
            scope.wrong(f"{kind.name}() needs {listed(choice, 'or')}", node.span, hint=usage(kind))
    for parameter in kind.parameters:
        if not (parameter.keyword or parameter.optional or parameter.name in chosen or parameter.name in given):
            scope.wrong(f"{kind.name}() needs `{parameter.name}`", node.span, hint=usage(kind))


# ---- what an argument may be ----------------------------------------------------------------------------------------------------


def argument(scope: Scope, kind: Kind, parameter: Parameter, node: spec.Expression, read: Read) -> Expression | None:
    """The value of an argument, its positions checked."""
    value = read(scope, node, None)
    if value is None:
        return None
    if parameter.integer:
        return value if is_whole(scope, kind, parameter, value, node.span) else None
    have = set(positions_of(value.axes))
    if have not in [set(allowed) for allowed in parameter.positions]:
        wanted = " or ".join(f"over {shown(allowed)}" if allowed else "without positions" for allowed in parameter.positions)
        message = f"`{parameter.name}` of {kind.name}() is {wanted}; this {has(value.axes)}"
        return scope.wrong(message, node.span, hint=usage(kind))
    return value


def is_whole(scope: Scope, kind: Kind, parameter: Parameter, value: Expression, span: Span) -> bool:
    """True for a positive integer, a size, or an int param."""
    match value:
        case Constant(value=int(number)) if 0 < number <= LARGEST:
            return True
        case Size():
            return True
        case Variable(axes=(), number=Number.INT):
            symbol = scope.symbols.get(value.name)
            if isinstance(symbol, Tensor) and symbol.role == "param":
                return True
        case _:
            pass
    hint = "an int param is declared `param w [] : int`"
    scope.wrong(f"`{parameter.name}` of {kind.name}() is a positive integer, a size or an int param", span, hint=hint)
    return False


def own_axes(kind: Kind, values: dict[str, Expression], extra: Axes) -> Axes:
    """The axes that arguments of this leaf have for themselves (the lag, the rank): letters that are not the mask's."""
    own = (values[one.name].axes for one in kind.parameters if one.features == "own" and one.name in values)
    return tuple(dict.fromkeys(axis for axes in own for axis in features_of(axes) if axis not in extra))


def check_features(
    scope: Scope, kind: Kind, parameter: Parameter, value: Expression, span: Span, extra: Axes, matrix: bool, own: Axes
) -> None:
    """The feature axes of an argument against the mask's extra axes."""
    features = features_of(value.axes)
    called = f"`{parameter.name}` of {kind.name}()"
    beside = "; beside a matrix a gate is a scalar or a diagonal" if matrix else ""
    strange = [axis for axis in features if axis not in extra and axis not in own]
    match parameter.features:
        case "own" if len([axis for axis in features if axis not in extra]) != 1:
            hint = "its letter is not one of the mask's extra axes"
            scope.wrong(f"{called} has one axis of its own; this {has(value.axes)}", span, hint=hint)
        case "matrix" if set(features) != set(extra):
            scope.wrong(f"{called} is a matrix over {shown(extra)}; this {has(value.axes)}", span)
        case "side" if len(features) != 1 or strange:
            scope.wrong(f"{called} has one of the axes {shown(extra)}; this {has(value.axes)}", span)
        case "none" if features:
            scope.wrong(f"{called} has no feature axis; this {has(value.axes)}", span)
        case "extra" if strange:
            hint = f"add {strange[0]} to the left side of the mask"
            scope.wrong(f"{called} has the axis {strange[0]}, which is not on the left {shown(('T', 'S', *extra))}", span, hint=hint)
        case "extra" if matrix and len([axis for axis in features if axis in extra]) > 1:
            scope.wrong(f"{called} has the axes {shown(value.axes)}{beside}", span)
        case _:
            pass
