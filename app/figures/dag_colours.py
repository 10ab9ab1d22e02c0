"""Colours of the fusion graph: by kind of work, or by a figure on a scale that colour-blind readers can order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fusionscope.app import style
from fusionscope.app.figures.dag_items import Item
from fusionscope.storage.queries.fusion_facts import GroupCost

# Cividis (Nuñez, Anderton and Renslow 2018): even steps of lightness, for normal and colour-deficient vision alike.
SEQUENTIAL = ("#00224E", "#35456C", "#666970", "#948E77", "#C8B866", "#FEE838")
DIVERGING = (style.GAIN, "#7FB4D6", "#BDBDBD", "#E7A57B", style.LOSS)  # fewer, equal, more
UNKNOWN = "#BDBDBD"
MIXED = "#A8A49B"  # an item with several kinds of work
WIDE, DECADES = 50.0, 1000.0  # a scale over more than the first is logarithmic, and reaches down by the second


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure by which groups can be coloured: how it is read off, written, and added up over an item's groups."""

    title: str
    write: Callable[[float | None], str]
    read: Callable[[GroupCost], float | None]
    join: Callable[[list[float]], float]  # of the groups of an item
    per_call: bool = False  # shared by the groups of a kernel call: counted once
    diverging: bool = False


def _largest(values: list[float]) -> float:
    return max(values)


FIGURES: dict[str, Figure] = {
    "time": Figure("time of one call", style.duration, lambda cost: cost.time_us, sum, per_call=True),
    "bytes": Figure("bytes read and written", style.size, lambda cost: cost.bytes, sum),
    "registers": Figure("registers of a thread", style.number, lambda cost: cost.registers, _largest),
    "spills": Figure("spilled bytes of a thread", style.size, lambda cost: cost.spill_bytes, _largest),
    "occupancy": Figure("theoretical occupancy", style.percent, lambda cost: cost.occupancy, min),
    "peak": Figure("share of the peak", style.percent, lambda cost: cost.peak_share, sum),
}


def change_of(figure: str) -> Figure:
    """The relative change of a figure against another run."""
    return Figure(f"change of {figure}", _signed_percent, lambda _: None, _mean, per_call=True, diverging=True)


def _signed_percent(value: float | None) -> str:
    return style.MISSING if value is None else style.signed(style.percent(value), value)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


@dataclass(slots=True)
class Paint:
    """Colour and written figure of each item; without a figure, the colour of its kind of work.

    `values`: by group id, with the prefix of the graph. An item that nothing is known of is grey and says so by a dash.
    """

    figure: Figure | None = None
    values: Mapping[str, float | None] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)  # written instead of the figure, by group id

    @property
    def by_kind(self) -> bool:
        """Whether colours mean kinds of work."""
        return self.figure is None

    def of(self, item: Item) -> tuple[str, str | None]:
        """Fill colour, and the text that takes the second line."""
        if self.figure is None:
            return style.KIND_COLOURS.get(item.work, MIXED), None
        if item.kind == "op":
            value = self.value(item)
            return self._colour(value), None
        value = self.value(item)
        word = self.words.get(item.prefix + item.groups[0].group_id) if len(item.groups) == 1 else None
        return self._colour(value), word or self.figure.write(value)

    def value(self, item: Item) -> float | None:
        """The figure of an item: of its groups together."""
        assert self.figure is not None
        once = {group.call if self.figure.per_call else group.group_id: group for group in item.groups}
        known = [
            value for group in once.values() if (value := self.values.get(item.prefix + group.group_id)) is not None
        ]
        return self.figure.join(known) if known else None

    @property
    def _range(self) -> tuple[float, float]:
        known = [value for value in self.values.values() if value is not None]
        return (min(known), max(known)) if known else (0.0, 0.0)

    @property
    def _most(self) -> float:
        """The end of a diverging scale: twice as much is the last colour."""
        return min(1.0, max(map(abs, self._range))) or 1.0

    def _colour(self, value: float | None) -> str:
        assert self.figure is not None
        if value is None:
            return UNKNOWN
        low, high = self._range
        if self.figure.diverging:
            return _blend(DIVERGING, 0.5 + value / self._most / 2)
        return _blend(SEQUENTIAL, _share(value, low, high))

    def legend(self, works: set[str]) -> list[dict[str, str]]:
        """The kinds that the picture has, in the order of the palette; or the scale with its ends."""
        if self.figure is None:
            return [
                {"colour": colour, "name": style.KIND_NAMES[kind]}
                for kind, colour in style.KIND_COLOURS.items()
                if kind in works
            ]
        low, high = self._range
        if self.figure.diverging:
            low, high = -self._most, self._most
        stops = DIVERGING if self.figure.diverging else SEQUENTIAL
        wide = not self.figure.diverging and _is_wide(low, high)
        least = f"≤ {self.figure.write(high / DECADES)}" if wide and high / low > DECADES else self.figure.write(low)
        entry = {"ramp": ", ".join(stops), "low": least, "high": self.figure.write(high)}
        name = f"{self.figure.title}{', logarithmic' if wide else ''}"
        return [entry | {"name": name}, {"colour": UNKNOWN, "name": "not recorded"}]


def _is_wide(low: float, high: float) -> bool:
    return low > 0 and high / low > WIDE


def _share(value: float, low: float, high: float) -> float:
    """Where a value stands between the ends, from 0 to 1."""
    if high <= low:
        return 0.5
    if _is_wide(low, high):
        low = max(low, high / DECADES)
        return math.log(max(value, low) / low) / math.log(high / low)
    return min(1.0, (value - low) / (high - low))


def _blend(stops: tuple[str, ...], share: float) -> str:
    """The colour at `share` of the way along the stops."""
    position = min(1.0, max(0.0, share)) * (len(stops) - 1)
    left = min(int(position), len(stops) - 2)
    a, b = (_channels(stops[left]), _channels(stops[left + 1]))
    mixed = (round(x + (y - x) * (position - left)) for x, y in zip(a, b, strict=True))
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
