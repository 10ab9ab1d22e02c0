"""Records what torch.compile decides. Importing this does not import torch yet: `record` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusionscope.collector.recorder import AlreadyRecording, Recording, StopRecording, record

__all__ = ["AlreadyRecording", "Recording", "StopRecording", "record"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fusionscope.collector import recorder

    return getattr(recorder, name)
