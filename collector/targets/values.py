"""Tells a model that reads values of tensors, which a GPU that is not there cannot compute."""

from __future__ import annotations

from fusionscope.collector.targets.presence import present

_NO_VALUES = "is not supported for tensor subclasses"  # .tolist() and .numpy(): torch/csrc/autograd/python_variable…


def value_read(doing: str, error: BaseException) -> str | None:
    """The sentence for an error that comes of reading a value of a tensor; None for any other error, or no target."""
    target = present()
    if target is None or not any(_reads_a_value(cause) for cause in _causes(error)):
        return None
    return (
        f"{doing} failed: the code reads a value of a tensor ({str(error).splitlines()[0]}), but on the {target.name}, "
        "which is not here, tensors have shapes only"
    )


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found


def _reads_a_value(error: BaseException) -> bool:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    return isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)) or _NO_VALUES in str(error)
