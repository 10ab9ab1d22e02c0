"""Structured-trace events → the symbols of dynamic shapes, and what fixed them to one value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import Symbol


class Symbols:
    """Keeps the symbols of a compile until it ends: each attempt makes them anew, and some are fixed later."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Symbol]] = {}  # compile → symbol

    def take(self, event: TraceEvent) -> Iterator[Symbol]:
        """The symbols of the compile that this event ends."""
        if event.compile_id is None:
            return
        symbols = self._open.setdefault(event.compile_id, {})
        match event.kind:
            case "dynamo_start":
                symbols.clear()
            case "create_symbol" | "create_unbacked_symbol":
                symbols[event.data["symbol"]] = _made(event.compile_id, event.data)
            case "symbolic_shape_specialization":
                symbol = event.data["symbol"]
                known = symbols.get(symbol) or Symbol(compile_id=event.compile_id, symbol=symbol)
                symbols[symbol] = _fixed(known, event.data)
            case "compilation_metrics" | "bwd_compilation_metrics":
                yield from self._open.pop(event.compile_id).values()

    def finish(self) -> Iterator[Symbol]:
        """Symbols of compiles that never ended."""
        for symbols in self._open.values():
            yield from symbols.values()


def _made(compile_id: str, data: dict[str, Any]) -> Symbol:
    return Symbol(
        compile_id=compile_id,
        symbol=data["symbol"],
        source=data.get("source"),
        hint=data.get("val"),
        range=data.get("vr"),
        file=data.get("file"),
        line=data.get("line"),
    )


def _fixed(symbol: Symbol, data: dict[str, Any]) -> Symbol:
    return replace(
        symbol,
        source=symbol.source or next(iter(data.get("sources", ())), None),
        specialised_to=data.get("value"),
        reason=data.get("reason"),
        file=data.get("file") or symbol.file,
        line=data.get("line") or symbol.line,
    )
