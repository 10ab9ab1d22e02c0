"""What a wrapper that Inductor wrote does, read from its text alone: calls, buffers, and what is alive when."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

DTYPES = {"float32": 4, "int64": 8, "float64": 8, "bfloat16": 2, "float16": 2, "bool": 1, "uint8": 1, "int32": 4}
CHECKS = ("assert_size_stride", "assert_tensor_metadata")


@dataclass
class Wrapper:
    """One output code, carried out on paper."""

    calls: list[str] = field(default_factory=list)  # kernels in the order of their calls
    sources: dict[str, str] = field(default_factory=dict)  # generated kernel -> its text
    live: list[dict[str, int]] = field(default_factory=list)  # after each line: buffers that it made, by name -> bytes
    freed: list[int] = field(default_factory=list)  # after each line: bytes of its arguments that it has let go

    @property
    def totals(self) -> list[int]:
        """Bytes above those at the entry, after each line."""
        return [sum(alive.values()) - freed for alive, freed in zip(self.live, self.freed, strict=True)]

    @property
    def peak(self) -> dict[str, int]:
        """What of its own is alive the first time that most bytes are."""
        return self.live[self.totals.index(max(self.totals))]


def read(code: str) -> Wrapper:
    """Carry a wrapper out; a size that is a symbol is as large as in the wrapper's own example arguments."""
    tree = ast.parse(code)
    wrapper = Wrapper(sources=dict(_sources(tree)))
    (call,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call"]
    sizes = _symbols(tree, call)
    known = _asserted_sizes(call, sizes)
    alive: dict[str, int] = {}
    given, freed = _given(tree), 0
    for statement in _statements(call.body):
        wrapper.calls += _kernels_called(statement, wrapper.sources)
        _carry_out(statement, alive, known | given, sizes)
        freed += sum(given.pop(name, 0) for name in _let_go(statement))
        wrapper.live.append(dict(alive))
        wrapper.freed.append(freed)
    return wrapper


def _sources(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        value = getattr(node, "value", None)
        if isinstance(value, ast.Call) and ast.unparse(value.func).startswith("async_compile."):
            texts = [a.value for a in value.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if isinstance(node, ast.Assign) and texts:
                yield ast.unparse(node.targets[0]), max(texts, key=len)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _statements(statement.body)
        else:
            yield statement


def _kernels_called(statement: ast.stmt, generated: dict[str, str]) -> list[str]:
    value = getattr(statement, "value", None)
    if not isinstance(statement, (ast.Assign, ast.Expr)) or not isinstance(value, ast.Call):
        return []
    name = ast.unparse(value.func).removesuffix(".run")
    return [name] if name in generated or name.startswith(("extern_kernels.", "torch.ops.aten.")) else []


def _let_go(statement: ast.stmt) -> list[str]:
    """Names that a statement deletes, or whose memory another name takes over."""
    if isinstance(statement, ast.Delete):
        return list(map(ast.unparse, statement.targets))
    return [source] if isinstance(statement, ast.Assign) and (source := _renamed(statement.value)) else []


def _renamed(value: ast.expr) -> str | None:
    """The buffer of `buf0` or `reinterpret_tensor(buf0, …)`."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "reinterpret_tensor":
        value = value.args[0]
    return value.id if isinstance(value, ast.Name) else None


def _carry_out(statement: ast.stmt, alive: dict[str, int], known: dict[str, int], sizes: dict[str, int]) -> None:
    """Allocate, rename or free, as the statement does; what the call found is no allocation."""
    if isinstance(statement, ast.Delete):
        for target in statement.targets:
            alive.pop(ast.unparse(target), None)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        name, value = statement.targets[0].id, statement.value
        source = _renamed(value) or ""
        if isinstance(value, ast.Call) and ast.unparse(value.func).startswith("empty_strided_"):
            alive[name] = _bytes(value.args, sizes)
        elif source in alive:
            alive[name] = alive.pop(source)  # `buf1 = buf0; del buf0  # reuse`
        elif source in known or (name.startswith("buf") and name in known):
            alive[name] = known[source if source in known else name]  # takes over an argument, or holds a result


def _given(tree: ast.Module) -> dict[str, int]:
    """Arguments that die with their last use here: what the forward saved; the model holds its weights and inputs."""
    return {
        ast.unparse(node.targets[0]): _bytes([*node.value.args, *(word.value for word in node.value.keywords)], {})
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "rand_strided"
        and not ast.unparse(node.targets[0]).startswith(("arg", "primals_"))
    }


def _symbols(tree: ast.Module, call: ast.FunctionDef) -> dict[str, int]:
    """`arg0_1 = 16` among the example arguments and `s77 = arg0_1` in the call: s77 is 16."""
    examples = {
        ast.unparse(node.targets[0]): node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
    }
    named = (node for node in call.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name))
    return {ast.unparse(n.targets[0]): examples[n.value.id] for n in named if n.value.id in examples}  # type: ignore[attr-defined]


def _asserted_sizes(call: ast.FunctionDef, sizes: dict[str, int]) -> dict[str, int]:
    """Buffers that library calls return, by the assertion that follows them; of float32 where it names no dtype."""
    found = {}
    for node in ast.walk(call):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CHECKS:
            name = ast.unparse(node.args[0])
            if name.startswith("buf"):
                found[name] = _bytes(node.args[1:], sizes)
    return found


def _bytes(arguments: list[ast.expr], sizes: dict[str, int]) -> int:
    """The memory of `(shape, stride, dtype)`."""
    shape, stride = (eval(ast.unparse(part), {}, dict(sizes)) for part in arguments[:2])
    dtype = next((text for text in map(ast.unparse, arguments[2:]) if text.startswith("torch.")), "")
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if prod(shape) else 0
    return extent * DTYPES.get(dtype.removeprefix("torch."), 4)


def texts_of(wrapper: Wrapper, kernels: set[str]) -> Counter[str]:
    """The calls of these kernels by what they run: the text of a generated one, the name of a library's."""
    return Counter(wrapper.sources.get(name, name).replace(name, "kernel") for name in wrapper.calls if name in kernels)
