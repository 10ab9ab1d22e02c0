"""Tells how another torch changes what the hooks observe; its wheel is only read (`make drift TORCH=2.14.1`)."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from pathlib import Path

import torch

from fusionscope.collector import hooks


def main(version: str) -> None:
    """Compare the installed torch with another one, target by target."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(download(version, Path(folder))) as archive:
        changes = {
            (hook, target): difference(find(installed, target), find(lambda path: archive.read(path).decode(), target))
            for hook, target in targets()
        }
    changed = {key: change for key, change in changes.items() if change}
    print(f"torch {torch.__version__} → {version}: {len(changed)} of {len(changes)} targets changed")  # noqa: T201
    for (hook, target), change in changed.items():
        print(f"{hook:18} {target}: {change}")  # noqa: T201


def download(version: str, folder: Path) -> Path:
    """Fetch the wheel of torch alone."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, f"torch=={version}"], check=True)
    return next(folder.glob("*.whl"))


def installed(path: str) -> str:
    """A source of the torch that runs this."""
    return (Path(torch.__file__).parent.parent / path).read_text()


def targets() -> Iterator[tuple[str, str]]:
    """Each hook's name with each of its targets."""
    for module in pkgutil.iter_modules(hooks.__path__):
        hook = importlib.import_module(f"{hooks.__name__}.{module.name}")
        yield from ((hook.NAME, target) for target in hook.TARGETS)


def find(read: Callable[[str], str], target: str) -> ast.stmt | None:
    """The statement that defines "module:Class.attribute", or None. `read` gives the text of torch/_inductor/ir.py."""
    module, _, path = target.partition(":")
    try:
        body = ast.parse(read(f"{module.replace('.', '/')}.py")).body
    except (OSError, KeyError):  # no such file, or not in the wheel
        return None
    found = None
    for name in path.split("."):
        found = named(body, name)
        body = getattr(found, "body", [])
    return found


def named(body: list[ast.stmt], name: str) -> ast.stmt | None:
    """The statement of a body that defines a name; of `name = other` in a class, the one that defines the other."""
    match found := next((statement for statement in body if name in defined(statement)), None):
        case ast.Assign(value=ast.Name(id=other)):
            return named(body, other) or found
    return found


def defined(statement: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=names):
            return [name.id for name in names if isinstance(name, ast.Name)]
        case ast.ImportFrom(names=aliases):
            return [alias.asname or alias.name for alias in aliases]
    return []


def difference(here: ast.stmt | None, there: ast.stmt | None) -> str:
    """What changed, in a few words; empty where nothing did."""
    if here is None or there is None:
        return "" if here is there else "gone" if there is None else "new"
    before, after = lines(here), lines(there)
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    changed = sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in blocks if kind != "equal")
    words = [] if signature(here) == signature(there) else [f"({signature(here)}) → ({signature(there)})"]
    return ", ".join(words + [f"{changed} of {len(before)} lines"] * bool(changed))


def signature(statement: ast.stmt) -> str:
    """The parameters of a function, without their types."""
    return ast.unparse(Bare().visit(statement).args) if isinstance(statement, ast.FunctionDef) else ""


def lines(statement: ast.stmt) -> list[str]:
    """The code of a statement without docstrings, comments and types."""
    return ast.unparse(Bare().visit(statement)).splitlines()


class Bare(ast.NodeTransformer):
    """Drops what does not run: docstrings, and the types of parameters and results."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """A bare string becomes `pass`, since a body may hold nothing else."""
        return ast.Pass() if isinstance(node.value, ast.Constant) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """No type of the result."""
        node.returns = None
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """No type of the parameter."""
        node.annotation = None
        return node


if __name__ == "__main__":
    main(sys.argv[1])
