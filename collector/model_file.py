"""A model given to `fusionscope record`: a Python file with a `build()`, or one of the sample models."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fusionscope.collector.commands import CommandError, ModelFailed
from fusionscope.collector.script import own_frames, show
from fusionscope.collector.targets.values import value_read

CONFIGS = {
    "inductor": "torch._inductor.config",
    "dynamo": "torch._dynamo.config",
    "functorch": "torch._functorch.config",
}


@dataclass(frozen=True, slots=True)
class Build:
    """What `build()` returns: the callable to compile, its inputs, and the arguments of torch.compile."""

    model: Callable[..., Any]
    inputs: tuple[Any, ...]
    compile_kwargs: dict[str, Any] | None  # None: the model compiles by itself what it wants compiled


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A module with a `build()`, and what else it may define."""

    name: str
    path: str
    module: ModuleType
    builder: Callable[[], Any]

    @property
    def backward(self) -> bool:
        """BACKWARD: a step is a forward and a backward."""
        return bool(getattr(self.module, "BACKWARD", False))

    @property
    def config(self) -> dict[str, Any]:
        """CONFIG: settings of torch, such as {"inductor.max_fusion_size": 64}."""
        return dict(getattr(self.module, "CONFIG", {}))

    @property
    def ranks(self) -> int:
        """RANKS: how many processes record it, as one group."""
        return int(getattr(self.module, "RANKS", 1))

    def build(self) -> Build:
        """Call the module's `build()`; raises CommandError where it does not return what it should."""
        built = self.builder()
        match built:
            case (model, tuple() | list() as inputs, dict() | None as kwargs) if callable(model):
                return Build(model, tuple(inputs), kwargs)
        raise CommandError(f"{self.builder.__name__}() of {self.path} must return (callable, inputs, compile_kwargs)")

    def drive(self, compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        """Use the compiled model: the module's own `drive(compiled, inputs)`, else two steps, grad mode untouched."""
        if own := getattr(self.module, "drive", None):
            own(compiled, inputs)
            return
        from fusionscope.collector.measure.step import loss_of

        for _ in range(2):
            output = compiled(*inputs)
            if self.backward:
                loss_of(output).backward()  # type: ignore[no-untyped-call]


def load(target: str) -> ModelFile:
    """Import `FILE.py`, `FILE.py:build` or the sample NAME. Raises CommandError, ModelFailed."""
    file, _, function = target.partition(":")
    is_file = file.endswith(".py") or os.sep in file
    module = _import_file(Path(file)) if is_file else _import_sample(target)
    builder = getattr(module, function or "build", None)
    if not callable(builder):
        raise CommandError(f"{file} has no {function or 'build'}(): it must return (callable, inputs, compile_kwargs)")
    return ModelFile(module.__name__.rpartition(".")[2], str(Path(module.__file__ or file).resolve()), module, builder)


@contextmanager
def models_own_code(doing: str) -> Iterator[None]:
    """Run the model's code: what it raises is shown as python shows it, and becomes ModelFailed."""
    try:
        yield
    except CommandError:
        raise
    except Exception as error:  # a model may raise anything
        show(error.with_traceback(own_frames(error.__traceback__) or error.__traceback__))
        sentence = value_read(doing, error) or f"{doing} failed with {type(error).__name__}: {error}".splitlines()[0]
        raise ModelFailed(sentence) from error


@contextmanager
def configured(config: dict[str, Any]) -> Iterator[None]:
    """Set torch's own settings, named "inductor.…", "dynamo.…" or "functorch.…", inside the context."""
    with ExitStack() as stack:
        for setting, value in config.items():
            kind, _, name = setting.partition(".")
            module: Any = importlib.import_module(CONFIGS[kind]) if kind in CONFIGS else None
            if not hasattr(module, name):
                raise CommandError(f"CONFIG names {setting}, which is no setting of this torch")
            stack.enter_context(module.patch({name: value}))
        yield


@contextmanager
def default_device(name: str | None) -> Iterator[None]:
    """Make new tensors on a device, where one is named; raises CommandError where torch cannot use it."""
    import torch

    with ExitStack() as stack:
        if name is not None:
            try:
                torch.empty(0, device=name)
            except (RuntimeError, AssertionError) as error:
                raise CommandError(f"torch cannot use the device {name!r}: {str(error).splitlines()[0]}") from error
            stack.enter_context(torch.device(name))
        yield


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CommandError(f"there is no file {path}")
    if path.stem in sys.modules:
        raise CommandError(f"{path} bears the name of a module that is already in use: rename the file")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise CommandError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # Dynamo and pickle look a function's module up there
    with models_own_code(f"importing {path}"):
        spec.loader.exec_module(module)
    return module


def _import_sample(name: str) -> ModuleType:
    from fusionscope.sample_models import SAMPLES

    if name not in SAMPLES:
        raise CommandError(f"there is no sample model {name!r}: give a file, or one of {', '.join(SAMPLES)}")
    return importlib.import_module(SAMPLES[name])
