"""Every kind of mask in the register: its law gives its entries; transitions compose; the algebra of masks; formulas by hand."""

# ruff: noqa: ARG001, ARG005 (formulas take t, s and lag, whichever they read)

from __future__ import annotations

import cmath
import math
import random
import zlib

import pytest
import torch

from contractor.errors import ContractorError
from contractor.program.dense import Grid, dense_mask
from contractor.program.expression import (
    Constant,
    Flipped,
    Leaf,
    Mask,
    MaskProduct,
    MaskSum,
    Named,
    Number,
    Reversed,
    Scaled,
    Variable,
)
from contractor.program.laws import is_matrix, terms
from contractor.program.masks import MASKS
from contractor.program.place import LAG, behind
from contractor.program.values import Value
from tests.program.mask_cases import Case, extra_axes, full, is_square, law_entries, random_leaf

torch.set_num_threads(1)
SHAPES = ((4, 4), (5, 5), (3, 5), (5, 3), (1, 1), (1, 4), (0, 0), (0, 3), (2, 0))


def seeded(*parts: object) -> random.Random:
    seed = zlib.crc32(repr(parts).encode())
    print(f"seed {seed} of {parts}")
    torch.manual_seed(seed)
    return random.Random(seed)


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


# ---- laws over the register ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", MASKS)
def test_law_gives_the_entries(kind: str, shape: tuple[int, int], seed: int) -> None:
    rng = seeded(kind, shape, seed)
    case = Case(*shape, rng)
    axes = extra_axes(kind, rng)
    leaf = random_leaf(kind, case, axes)
    if is_square(leaf) and case.targets != case.sources:
        case = Case(shape[1], shape[1], rng)
        leaf = random_leaf(kind, case, axes)
    found = full(case, dense_mask(leaf, case.grid()), axes)
    if 0 in shape:
        assert found.shape[2:4] == (case.targets, case.sources)
        return
    close(found, law_entries(case, MASKS[kind].law(leaf), axes, MASKS[kind].matrix))


@pytest.mark.parametrize("kind", [kind for kind in MASKS if MASKS[kind].shifts])
@pytest.mark.parametrize("seed", range(4))
def test_transitions_compose(kind: str, seed: int) -> None:
    rng = seeded("compose", kind, seed)
    case = Case(5, 5, rng)
    axes = extra_axes(kind, rng)
    drawn = random_leaf(kind, case, axes, plain=True)
    leaf = Leaf(kind, drawn.arguments, axes, 0)
    entries = full(case, dense_mask(leaf, case.grid()), axes)
    for t in range(5):
        for m in range(t + 1):
            for s in range(m + 1):
                late, early = entries[:, :, t, m], entries[:, :, m, s]
                close(late @ early if MASKS[kind].matrix else late * early, entries[:, :, t, s])


@pytest.mark.parametrize("kind", MASKS)
def test_kinds_describe_themselves(kind: str) -> None:
    known = MASKS[kind]
    assert known.name == kind and known.says and all(parameter.says for parameter in known.parameters)
    names = [parameter.name for parameter in known.parameters]
    assert len(set(names)) == len(names) and all(set(choice) <= set(names) for choice in known.choices)
    law = known.law(random_leaf(kind, Case(4, 4, seeded(kind)), extra_axes(kind, random.Random(0))))
    assert not known.shifts or law.support in (behind(0), behind(1))
    assert known.matrix == any(type(step).__name__ != "Fade" for step in law.steps)


# ---- the algebra --------------------------------------------------------------------------------------------------------------

SCALARS = (
    "full",
    "causal",
    "decay",
    "semiseparable",
    "window",
    "dilated",
    "blocks",
    "prefix",
    "documents",
    "matrix",
    "toeplitz",
    "fourier",
)


def random_mask(rng: random.Random, case: Case, depth: int, matrix: bool) -> Mask:
    axes = ("N", "M") if matrix else ("N",)
    roll = rng.random() if depth else 1.0
    if roll < 0.15:
        return Reversed(random_mask(rng, case, depth - 1, matrix), axes)
    if roll < 0.3:
        return Flipped(random_mask(rng, case, depth - 1, matrix), axes)
    if roll < 0.4:
        return Scaled(Constant(rng.choice((2, 0.5))), random_mask(rng, case, depth - 1, matrix), axes)
    if roll < 0.5:
        return Named("L", random_mask(rng, case, depth - 1, matrix), axes)
    if roll < 0.7:
        return MaskSum(random_mask(rng, case, depth - 1, matrix), random_mask(rng, case, depth - 1, matrix), axes)
    if roll < 1.0:
        return MaskProduct(random_mask(rng, case, depth - 1, matrix), random_mask(rng, case, depth - 1, matrix), axes)
    kind = rng.choice(("delta", "product", "delta", *SCALARS)) if matrix else rng.choice(SCALARS)
    if not matrix:
        return random_leaf(kind, case, axes)
    return same_shift(random_leaf(kind, case, axes if MASKS[kind].matrix else (rng.choice(axes),)))


def same_shift(leaf: Leaf) -> Leaf:
    return Leaf(leaf.kind, leaf.arguments, leaf.axes, 0)


@pytest.mark.parametrize("matrix", (False, True))
@pytest.mark.parametrize("seed", range(100))
def test_terms_add_up_to_the_mask(seed: int, matrix: bool) -> None:
    rng = seeded("terms", seed, matrix)
    for _ in range(100):
        case = Case(4, 4, rng)
        mask = random_mask(rng, case, 3, matrix)
        axes = mask.axes
        try:
            found = terms(mask)
            dense = full(case, dense_mask(mask, case.grid()), axes)
        except ContractorError:
            continue
        if len(found) <= 4:
            break
    total = torch.zeros_like(dense)
    for one in found:
        part = law_entries(case, one.law, axes, is_matrix(mask), one.direction)
        for factor in one.coefficient:
            part = part * case.value(factor).tensor
        total = total + part
        own = any(type(step).__name__ != "Fade" for step in one.law.steps)
        assert one.identity == (axes if is_matrix(mask) and not own else ())
    close(dense, total)


def leaf(kind: str, **arguments: Variable | Constant) -> Leaf:
    return Leaf(kind, tuple(arguments.items()), ())


def gate(name: str = "a", number: Number = Number.REAL) -> Variable:
    return Variable(name, ("S",), number)


def test_too_many_terms_are_refused() -> None:
    mask: Mask = leaf("causal")
    for _ in range(6):
        mask = MaskSum(mask, mask, ())
    assert len(terms(mask)) == 64
    for refused in (MaskSum(mask, leaf("causal"), ()), MaskProduct(mask, MaskSum(leaf("causal"), leaf("full"), ()), ())):
        with pytest.raises(ContractorError, match="at most 64"):
            terms(refused)


def test_directions() -> None:
    gated = leaf("semiseparable", a=gate())
    (reverse,) = terms(Reversed(gated, ()))
    assert reverse.direction == "future" and reverse.law.support == behind(0) and not reverse.carries()
    (flip,) = terms(Flipped(gated, ()))
    assert flip.direction == "flipped"
    (back,) = terms(Reversed(Reversed(gated, ()), ()))
    assert back.direction == "past"
    (fixed,) = terms(Flipped(leaf("decay", gamma=Constant(0.5)), ()))
    assert fixed.direction == "future" and fixed.law.support == behind(0)
    (both,) = terms(Reversed(Flipped(leaf("causal"), ()), ()))
    assert both.direction == "past" and both.law.support == (LAG >= 0)
    (turned,) = terms(Reversed(Flipped(gated, ()), ()))
    assert turned.direction == "turned" and turned.exchanged and turned.mirrored
    with pytest.raises(ContractorError, match="by definition only"):
        terms(MaskProduct(Reversed(gated, ()), Flipped(gated, ()), ()))


def test_supports_are_joined_without_repeats() -> None:
    (term,) = terms(MaskProduct(leaf("causal"), MaskProduct(leaf("decay", gamma=Constant(0.5)), leaf("semiseparable", a=gate()), ()), ()))
    assert term.law.support == (LAG >= 0) and len(term.law.steps) == 2 and not term.carries()


def test_reasons_for_no_state() -> None:
    number = Constant(3)
    ids = Variable("ids", ("S",), Number.INT)
    table = Variable("M", ("T", "S"), Number.REAL)
    without = (
        leaf("window", w=number),
        leaf("dilated", d=number),
        leaf("blocks", b=number),
        leaf("prefix", n=number),
        leaf("documents", ids=ids),
        leaf("matrix", M=table),
        leaf("toeplitz", alpha=Variable("alpha", ("R",), Number.REAL)),
        leaf("fourier"),
    )
    for one in without:
        for mask in (one, MaskProduct(leaf("semiseparable", a=gate()), one, ())):
            assert all(term.carries().startswith(one.kind) for term in terms(mask))
    (met,) = terms(MaskProduct(leaf("causal"), Reversed(leaf("causal"), ()), ()))
    assert "diagonal" in met.carries()
    for one in (leaf("full"), leaf("causal"), leaf("decay", gamma=Constant(0.5)), leaf("semiseparable", a=gate())):
        assert terms(one)[0].carries() == ""


# ---- formulas -----------------------------------------------------------------------------------------------------------------


def dense(mask: Mask, targets: int, sources: int, **tensors: tuple[torch.Tensor, tuple[str, ...]]) -> torch.Tensor:
    """The mask of batch 0 and head 0; tensors come without batch and head."""

    def value(expression: Variable | Constant) -> Value:
        if isinstance(expression, Constant):
            return Value(torch.tensor(expression.value, dtype=torch.float64), ())
        tensor, axes = tensors[expression.name]
        return Value(tensor[None, None], axes)

    found = dense_mask(mask, Grid(targets, sources, value))  # type: ignore[arg-type]
    return found.tensor[0, 0]


def entries(targets: int, sources: int, formula) -> torch.Tensor:
    """formula(t, s, lag) for every entry, t in the targets' own coordinates; 0 for a target before the first source."""
    table = [
        [formula(t, s, t + sources - targets - s) if t + sources - targets >= 0 else 0.0 for s in range(sources)] for t in range(targets)
    ]
    return torch.tensor(table, dtype=torch.complex128).reshape(targets, sources)


SIZES = ((5, 5), (3, 5), (5, 3), (1, 1))


@pytest.mark.parametrize("sizes", SIZES)
def test_masks_of_the_lag(sizes: tuple[int, int]) -> None:
    two = Constant(2)
    formulas = {
        leaf("causal"): lambda t, s, lag: float(lag >= 0),
        leaf("window", w=two): lambda t, s, lag: float(0 <= lag < 2),
        leaf("dilated", d=two): lambda t, s, lag: float(lag >= 0 and lag % 2 == 0),
        leaf("prefix", n=two): lambda t, s, lag: float(s < 2 or lag >= 0),
        leaf("decay", gamma=Constant(0.5)): lambda t, s, lag: 0.5**lag if lag >= 0 else 0.0,
        leaf("decay", gamma=Constant(0.0)): lambda t, s, lag: float(lag == 0),
        leaf("decay", log=Constant(-0.7)): lambda t, s, lag: math.exp(-0.7 * lag) if lag >= 0 else 0.0,
        Leaf("decay", (("gamma", Constant(0.5)),), (), 1): lambda t, s, lag: 0.5 ** (lag - 1) if lag >= 1 else 0.0,
    }
    for mask, formula in formulas.items():
        close(dense(mask, *sizes) + 0j, entries(*sizes, formula))
    assert dense(leaf("full"), *sizes).eq(1).all()


def test_blocks_documents_and_the_transform() -> None:
    close(dense(leaf("blocks", b=Constant(2)), 5, 5) + 0j, entries(5, 5, lambda t, s, lag: float(t // 2 == s // 2)))
    close(dense(leaf("fourier"), 5, 5), entries(5, 5, lambda t, s, lag: cmath.exp(-2j * math.pi * t * s / 5)))
    ids = [0, 0, 1, 1, 0]
    given = {"ids": (torch.tensor(ids), ("S",)), "other": (torch.tensor([1, 0]), ("T",))}
    one = Variable("ids", ("S",), Number.INT)
    close(dense(leaf("documents", ids=one), 5, 5, **given) + 0j, entries(5, 5, lambda t, s, lag: float(ids[t] == ids[s])))
    two = leaf("documents", ids=Variable("other", ("T",), Number.INT), ids_s=one)
    close(dense(two, 2, 5, **given) + 0j, entries(2, 5, lambda t, s, lag: float([1, 0][t] == ids[s])))
    table = torch.randn(2, 3, dtype=torch.float64)
    close(dense(leaf("matrix", M=Variable("M", ("T", "S"), Number.REAL)), 2, 3, M=(table, ("T", "S"))), table)


@pytest.mark.parametrize("sizes", SIZES)
def test_toeplitz(sizes: tuple[int, int]) -> None:
    alpha, beta = torch.randn(3, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
    given = {"alpha": (alpha, ("R",)), "beta": (beta, ("R",))}
    name = Variable("alpha", ("R",), Number.REAL)
    behind_only = leaf("toeplitz", alpha=name)
    close(dense(behind_only, *sizes, **given) + 0j, entries(*sizes, lambda t, s, lag: float(alpha[lag]) if 0 <= lag < 3 else 0.0))
    both = leaf("toeplitz", alpha=name, ahead=Variable("beta", ("R",), Number.REAL))

    def formula(t: int, s: int, lag: int) -> float:
        if lag >= 0:
            return float(alpha[lag]) if lag < 3 else 0.0
        return float(beta[-lag]) if -lag < 2 else 0.0

    close(dense(both, *sizes, **given) + 0j, entries(*sizes, formula))


@pytest.mark.parametrize("shift", (0, 1))
@pytest.mark.parametrize("sizes", SIZES)
def test_semiseparable(sizes: tuple[int, int], shift: int) -> None:
    torch.manual_seed(1)
    sources = sizes[1]
    a = torch.randn(sources, dtype=torch.complex128)
    write = torch.randn(sources, dtype=torch.float64)
    left, right = torch.randn(sizes[0], 2, dtype=torch.float64), torch.randn(sources, 2, dtype=torch.float64)
    given = {"a": (a, ("S",)), "w": (write, ("S",)), "c": (left, ("T", "R")), "b": (right, ("S", "R")), "log": (a.log(), ("S",))}

    def product(t: int, s: int, lag: int) -> complex:
        place = s + lag
        return math.prod((complex(a[j]) for j in range(s + 1, place + 1 - shift)), start=1 + 0j) if lag >= shift else 0j

    c, b = Variable("c", ("T", "R"), Number.REAL), Variable("b", ("S", "R"), Number.REAL)
    formulas = {
        Leaf("semiseparable", (("a", gate()),), (), shift): product,
        Leaf("semiseparable", (("log", gate("log")),), (), shift): product,
        Leaf("semiseparable", (("log", gate("log")), ("write", gate("w"))), (), shift): lambda t, s, lag: (
            product(t, s, lag) * math.exp(write[s])
        ),
        Leaf("semiseparable", (("a", gate()), ("left", c), ("right", b)), (), shift): lambda t, s, lag: (
            product(t, s, lag) * complex((left[t] * right[s]).sum())
        ),
    }
    for mask, formula in formulas.items():
        close(dense(mask, *sizes, **given), entries(*sizes, formula))


def test_closed_gates_are_exact() -> None:
    logs = torch.tensor([-0.1, -math.inf, -0.2, -0.3, -math.inf], dtype=torch.float64, requires_grad=True)
    found = dense(leaf("semiseparable", log=gate("g")), 5, 5, g=(logs, ("S",)))
    assert found[1, 0] == 0 and found[1, 1] == 1 and found[3, 0] == 0 and found.isfinite().all()
    close(found[3, 1], torch.tensor(math.exp(-0.5), dtype=torch.float64))
    found.sum().backward()
    assert logs.grad is not None and logs.grad.isfinite().all() and logs.grad[1] == 0


def test_gradient_of_a_zero_decay() -> None:
    gamma = torch.zeros((), dtype=torch.float64, requires_grad=True)
    dense(leaf("decay", gamma=Variable("gamma", (), Number.REAL)), 4, 4, gamma=(gamma, ())).sum().backward()
    assert gamma.grad == 3.0


# ---- matrices -----------------------------------------------------------------------------------------------------------------

NM = ("N", "M")


def steps_of(beta: torch.Tensor, key: torch.Tensor, log: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    identity = torch.eye(2, dtype=torch.float64)
    return [identity - b * torch.outer(k, k) for b, k in zip(beta, key, strict=True)], [torch.diag(g.exp()) for g in log]


def chained(steps: list[torch.Tensor]) -> torch.Tensor:
    """The product of matrices, the last of the list on the left."""
    total = torch.eye(2, dtype=torch.float64)
    for step in steps:
        total = step @ total
    return total


def test_ordered_products() -> None:
    torch.manual_seed(2)
    beta, key, log = (
        torch.rand(4, dtype=torch.float64),
        torch.randn(4, 2, dtype=torch.float64),
        -torch.rand(4, 2, dtype=torch.float64),
    )
    given = {"beta": (beta, ("S",)), "k": (key, ("S", "N")), "g": (log, ("S", "N"))}
    rule = Leaf("delta", (("beta", gate("beta")), ("K", Variable("k", ("S", "N"), Number.REAL))), NM)
    fade = Leaf("semiseparable", (("log", Variable("g", ("S", "N"), Number.REAL)),), ("N",))
    rules, fades = steps_of(beta, key, log)
    both = MaskProduct(rule, fade, NM)
    joint = [a @ b for a, b in zip(rules, fades, strict=True)]
    shifted = Leaf(rule.kind, rule.arguments, NM, 1)
    for t in range(4):
        for s in range(4):
            past = range(s + 1, t + 1)
            wanted = chained([rules[j] for j in past]) if t >= s else torch.zeros(2, 2, dtype=torch.float64)
            close(dense(rule, 4, 4, **given)[t, s], wanted)
            wanted = chained([joint[j] for j in past]) if t >= s else torch.zeros(2, 2, dtype=torch.float64)
            close(dense(both, 4, 4, **given)[t, s], wanted)
            wanted = chained([rules[j] for j in range(s + 1, t)]) if t > s else torch.zeros(2, 2, dtype=torch.float64)
            close(dense(shifted, 4, 4, **given)[t, s], wanted)
            wanted = chained([joint[j] for j in range(s, t, -1)]) if t <= s else torch.zeros(2, 2, dtype=torch.float64)
            close(dense(Reversed(both, NM), 4, 4, **given)[t, s], wanted)
            wanted = chained([joint[j] for j in range(s - 1, t - 1, -1)]) if t <= s else torch.zeros(2, 2, dtype=torch.float64)
            close(dense(Flipped(both, NM), 4, 4, **given)[t, s], wanted)


def test_delta_with_its_own_decay_and_erase() -> None:
    torch.manual_seed(3)
    beta, log = torch.rand(4, 2, dtype=torch.float64), -torch.rand(4, 2, dtype=torch.float64)
    key, erase = torch.randn(4, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    given = {"beta": (beta, ("S", "M")), "k": (key, ("S", "M")), "e": (erase, ("S", "M")), "g": (log, ("S", "N"))}
    names = {name: Variable(name, axes, Number.REAL) for name, (_, axes) in given.items()}
    rule = Leaf("delta", (("beta", names["beta"]), ("K", names["k"]), ("erase", names["e"]), ("log", names["g"])), NM)
    steps = [torch.diag(log[j].exp()) - torch.outer(beta[j] * key[j], erase[j]) for j in range(4)]
    close(dense(rule, 4, 4, **given)[3, 0], chained(steps[1:]))
    close(dense(rule, 2, 4, **given)[0, 1], chained(steps[2:3]))


def test_a_scalar_beside_a_matrix_is_a_multiple_of_the_identity() -> None:
    key = Variable("k", ("S", "N"), Number.REAL)
    given = {"k": (torch.randn(3, 2, dtype=torch.float64), ("S", "N")), "beta": (torch.rand(3, dtype=torch.float64), ("S",))}
    rule = Leaf("delta", (("beta", gate("beta")), ("K", key)), NM)
    total = dense(MaskSum(rule, Scaled(Constant(2), leaf("full"), NM), NM), 3, 3, **given)
    close(total - dense(rule, 3, 3, **given), 2 * torch.eye(2, dtype=torch.float64).expand(3, 3, 2, 2))
    assert [term.identity for term in terms(MaskSum(rule, leaf("full"), NM))] == [(), NM]
    table = Leaf("toeplitz", (("alpha", Variable("alpha", ("R", "N"), Number.REAL)),), NM)
    with pytest.raises(ContractorError, match="beside a matrix"):
        terms(MaskProduct(rule, table, NM))


def test_rank_of_a_reversed_mask_changes_sides() -> None:
    left, right = Variable("c", ("T", "R"), Number.REAL), Variable("b", ("S", "R"), Number.REAL)
    mask = Leaf("semiseparable", (("a", gate()), ("write", gate("w")), ("left", left), ("right", right)), ())
    (term,) = terms(Reversed(mask, ()))
    (rank,) = term.law.ranks
    assert rank.left.axes == ("T", "R") and rank.right.axes == ("S", "R") and term.law.write[0].axes == ("T",)
    with pytest.raises(ContractorError, match="letters of their own"):
        terms(MaskProduct(mask, mask, ()))
    with pytest.raises(ContractorError, match="left and right together"):
        MASKS["semiseparable"].law(Leaf("semiseparable", (("a", gate()), ("left", left)), ()))
