"""The text of `show` → Kernel, through the same verbs that lowerings use, so what is read is checked like what is written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from contractor.errors import TileError
from contractor.tile import expression as e
from contractor.tile import ops
from contractor.tile.build import Builder
from contractor.tile.kernel import Kernel, Span, Via
from contractor.tile.rules import ACC, I32, Axes

SIGNS: Mapping[type[ast.AST], e.Sign] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Eq: "==", ast.GtE: ">=", ast.Gt: ">", ast.Lt: "<", ast.LtE: "<=",
}  # fmt: skip
UNARY: Mapping[str, e.Function] = {"exp2": "exp2", "log2": "log2", "sqrt": "sqrt", "rsqrt": "rsqrt", "abs": "abs"}
REDUCTIONS: Mapping[str, e.Reduction] = {"sum": "sum", "max": "max", "cumsum": "cumsum"}
PAIRS: Mapping[str, e.Sign] = {"cdiv": "cdiv", "least": "least", "most": "most"}


def read(text: str) -> Kernel:
    """The kernel of a text that `show` wrote. Raises TileError for any other text."""
    try:
        lines = ast.parse(text).body
    except SyntaxError as error:
        raise TileError(f"line {error.lineno} is no kernel text") from None
    return Reader(lines).kernel()


class Reader:
    """Reads the lines of one kernel into a Builder."""

    def __init__(self, lines: list[ast.stmt]) -> None:
        self.lines = lines
        self.tiles: dict[str, e.Expr] = {}
        top = [line.value for line in lines if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)]
        self.heads = {name(call.func): call for call in top}
        says = self.heads["kernel"].args[1]
        axes = {str(word.arg): name(word.value) for word in self.heads["axes"].keywords}
        scalars = tuple(name(one) for one in self.heads["scalars"].args)
        self.k = Builder(name(self.heads["kernel"].args[0]), ast.literal_eval(says), axes, scalars)

    def kernel(self) -> Kernel:
        """The kernel."""
        self.k.programs = self.value(self.heads["programs"].args[0])
        for line in self.lines:
            self.statement(line)
        return self.k.done()

    def statement(self, line: ast.stmt) -> None:
        """Reads one line, or a loop with what is in it."""
        match line:
            case ast.For(target=ast.Name(id=counter), iter=ast.Call(args=[stop])):
                with self.k.loop(counter, self.value(stop)) as tile:
                    self.tiles[counter] = tile
                    for inner in line.body:
                        self.statement(inner)
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                self.assignment(target, value)
            case ast.Expr(value=ast.Call(func=ast.Name(id="note"), args=[ast.Constant(value=str(words))])):
                self.k.note(words)
            case ast.Expr(value=ast.Call(func=ast.Name(id="store")) as call):
                target = self.k.buffers[name(call.args[0])]
                self.k.store(target, *map(self.index, call.args[1:]), value=self.value(keywords(call)["value"]))
            case ast.Expr(value=ast.Call(func=ast.Name(id="kernel" | "axes" | "scalars" | "programs"))):
                pass
            case _:
                raise TileError(f"line {line.lineno} is no statement of a kernel")

    def assignment(self, target: str, value: ast.expr) -> None:
        """Reads a line that gives a name to something."""
        match value:
            case ast.Call(func=ast.Name(id="buffer")):
                more = keywords(value)
                via: Via = "descriptor" if name(more["via"]) == "descriptor" else "pointer"
                self.k.buffer(target, *map(name, value.args), dtype=name(more["dtype"]), via=via)
            case ast.Call(func=ast.Name(id="fill")):
                self.tiles[target] = self.k.full(target, *map(name, value.args), value=float(signed(keywords(value)["value"])))
            case ast.Call(func=ast.Name(id="carry"), args=[first]):
                self.tiles[target] = self.k.carry(target, self.value(first))
            case ast.Call(func=ast.Name(id="update"), args=[new]):
                self.k.update(self.tiles[target], self.value(new))
            case ast.Call(func=ast.Name(id="load"), args=[source, *index]):
                order = axes_of(keywords(value)["order"])
                self.tiles[target] = self.k.load(target, self.k.buffers[name(source)], *map(self.index, index), order=order)
            case _:
                self.tiles[target] = self.k.let(target, self.value(value))

    def index(self, node: ast.expr) -> e.Expr | Span:
        """One dimension of an access."""
        match node:
            case ast.Call(func=ast.Name(id="span"), args=[axes, first, places]):
                more = {word: self.value(value) for word, value in keywords(node).items()}
                return Span(axes_of(axes), self.value(first), self.value(places), more.get("inside"), more.get("block"))
            case _:
                return self.value(node)

    def value(self, node: ast.expr) -> e.Expr:
        """An expression."""
        match node:
            case ast.Constant() | ast.UnaryOp():
                return e.number(signed(node))
            case ast.Name(id=word):
                return self.tiles[word] if word in self.tiles else e.size(word)
            case ast.BinOp(left=left, op=sign, right=right):
                return e.binary(SIGNS[type(sign)], self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return e.binary(SIGNS[type(sign)], self.value(left), self.value(right))
            case ast.Call(func=ast.Name(id=function)):
                return self.call(function, node)
            case _:
                raise TileError(f"{ast.unparse(node)} is no expression of a kernel")

    def call(self, function: str, node: ast.Call) -> e.Expr:
        """A function of tiles."""
        arguments = node.args
        if function in UNARY:
            return ops.unary(UNARY[function], self.value(arguments[0]))
        if function in REDUCTIONS:
            return ops.reduce(REDUCTIONS[function], self.value(arguments[0]), name(arguments[1]))
        if function in PAIRS:
            return e.binary(PAIRS[function], *map(self.value, arguments))
        if function == "program_id":
            return e.Program((), I32, True)
        if function in self.special:
            return self.special[function](node)
        raise TileError(f"{function} is no function of a kernel")

    @property
    def special(self) -> Mapping[str, Callable[[ast.Call], e.Expr]]:
        """The functions whose arguments are more than tiles."""
        return {
            "real": lambda node: e.size(name(node.args[0]), ACC),
            "iota": lambda node: ops.iota(name(node.args[0])),
            "cast": lambda node: ops.cast(self.value(node.args[0]), name(node.args[1])),
            "select": lambda node: ops.select(*map(self.value, node.args)),
            "rename": lambda node: ops.rename(self.value(node.args[0]), **{old: name(new) for old, new in keywords(node).items()}),
            "dot": self.dot,
        }

    def dot(self, node: ast.Call) -> e.Expr:
        """A product."""
        more = keywords(node)
        into = self.value(more["into"]) if "into" in more else None
        precision = PRECISIONS[name(more["precision"])] if "precision" in more else None
        return ops.dot(self.value(node.args[0]), self.value(node.args[1]), into, precision)


PRECISIONS: Mapping[str, e.Precision] = {"ieee": "ieee", "tf32x3": "tf32x3", "tf32": "tf32"}


def name(node: ast.expr) -> str:
    """A bare word."""
    if isinstance(node, ast.Name):
        return node.id
    raise TileError(f"{ast.unparse(node)} where a name is wanted")


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The named arguments of a call."""
    return {str(word.arg): word.value for word in call.keywords}


def axes_of(node: ast.expr) -> Axes:
    """A tuple of axes."""
    return tuple(name(one) for one in node.elts) if isinstance(node, ast.Tuple) else (name(node),)


def signed(node: ast.expr) -> int | float:
    """A number written out, with its sign."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case _:
            raise TileError(f"{ast.unparse(node)} is no number")
