"""Numbers and tables as plain text: for the terminal, and for conclusions in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTHING = "–"  # not recorded


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns set under their heads: numbers to the right, None as a dash."""
    cells = [list(head), *(list(map(or_dash, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [len(cells) > 1 and all(_numeric(row[i]) for row in cells[1:]) for i in range(len(head))]
    forms = [f"{{:{'>' if flag else '<'}{width}}}" for width, flag in zip(widths, right, strict=True)]
    return "\n".join("  ".join(forms).format(*row).rstrip() for row in cells)


def or_dash(value: object) -> str:
    """The value as text on one line, without control characters; a dash where it was not recorded."""
    return NOTHING if value is None else "".join(c if c.isprintable() else " " for c in str(value))


def shortened(name: str, most: int = 44) -> str:
    """`name` in at most `most` characters, the middle left out."""
    head = (most - 1) // 2
    return name if len(name) <= most else f"{name[:head]}…{name[head + 1 - most :]}"


def bytes_(value: float | None) -> str | None:
    """Bytes by powers of 1024, three significant digits."""
    return None if value is None else _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def nearly(a: float | None, b: float | None) -> bool:
    """Whether two quantities differ by so little that three digits hide it."""
    return a is not None and b is not None and a != b and abs(a - b) < 0.01 * max(abs(a), abs(b))


def microseconds(value: float | None) -> str | None:
    """A time, three significant digits."""
    return None if value is None else _scaled(value, 1000, ("µs", "ms", "s"))


def ratio(value: float | None) -> str | None:
    """A speed-up."""
    return None if value is None else f"{_digits(value)}×"


def change(before: str | None, after: str | None) -> str | None:
    """Eager → compiled, where either is known."""
    return None if before is None and after is None else f"{before or NOTHING} → {after or NOTHING}"


def count(value: float | None) -> str | None:
    """A count that may have been averaged."""
    return None if value is None else f"{value:g}"


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    rank = 0
    while abs(value) >= base and rank < len(units) - 1:
        value, rank = value / base, rank + 1
    return f"{_digits(value)} {units[rank]}"


def _digits(value: float) -> str:
    """Three significant digits without an exponent; a whole number as it is."""
    decimals = max(0, 3 - len(str(int(abs(value))))) if value % 1 else 0
    return f"{value:.{decimals}f}"


def _numeric(cell: str) -> bool:
    return cell == NOTHING or cell.partition(" ")[0].rstrip("×").replace(".", "").isdigit()
