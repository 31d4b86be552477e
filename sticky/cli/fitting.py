"""Tables that fit a terminal: ids shortened, then spare columns left out, then the cells of each row below each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import attrs
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

SHORT = 9  #: characters of an id where there is no room for all; more where several begin alike
_GAP = 2  # blanks between two columns
_FOLDED = 16  # characters a line at the least, of a column that may take several lines
_ID = re.compile(r"(ct|sd|dp)-[A-Za-z0-9_-]{10,}")


@attrs.frozen
class Column:
    """One column. `spare`: among those the lowest is left out first; 0: never. `wrapped`: its text may take several lines."""

    name: str
    right: bool = False
    wrapped: bool = False
    spare: int = 0


@attrs.frozen
class Fitting:
    """Aligned columns without lines, as wide as they are; in a narrower terminal whatever of it fits and can still be read.

    Nothing is cut: a shortened id is one that every command takes, and what was left out is with `show` or --json.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._chosen(options.max_width)

    def _chosen(self, room: int) -> RenderableType:
        if self._width() <= room or not self.rows:
            return self._table()
        brief = self._brief()
        for column in sorted((column for column in self.columns if column.spare), key=lambda column: column.spare):
            if brief._width() <= room:
                break
            brief = brief._without(column)
        return brief._table() if brief._width() <= room else self._stacked()

    def _width(self) -> int:
        widths = []
        for number, column in enumerate(self.columns):
            longest = max((row[number].cell_len for row in self.rows), default=0)
            widths.append(max(len(column.name), min(longest, _FOLDED) if column.wrapped else longest))
        return sum(widths) + _GAP * (len(widths) - 1)

    def _brief(self) -> Fitting:
        ids = {found[0] for row in self.rows for cell in row if (found := _ID.fullmatch(cell.plain))}
        length = SHORT
        while len({one[:length] for one in ids}) < len(ids):
            length += 1
        return attrs.evolve(
            self, rows=[[cell[:length] if cell.plain in ids else cell for cell in row] for row in self.rows]
        )

    def _without(self, column: Column) -> Fitting:
        kept = [number for number, one in enumerate(self.columns) if one is not column]
        return Fitting(
            [self.columns[number] for number in kept], [[row[number] for number in kept] for row in self.rows]
        )

    def _table(self) -> Table:
        made = _bare(show_header=True)
        for column in self.columns:
            justify = "right" if column.right else "left"
            made.add_column(Text(column.name), justify=justify, no_wrap=not column.wrapped, overflow="fold")  # type: ignore[arg-type]
        _fill(made, self.rows)
        return made

    def _stacked(self) -> RenderableType:
        """A line for the first cell of each row, and the rest of them below it with their names."""
        outer = Table.grid()
        first = self.columns[0].name
        for row in self.rows:
            facts = _bare(show_header=False)
            facts.add_column(style="bold", no_wrap=True)
            facts.add_column(overflow="fold")
            _fill(facts, ([Text(column.name), cell] for column, cell in zip(self.columns[1:], row[1:], strict=True)))
            outer.add_row(Text.assemble((f"{first}  " if first else "", "bold"), row[0], overflow="fold"))
            outer.add_row(Padding(facts, (0, 0, 0, 2)))
        return outer


def _bare(*, show_header: bool) -> Table:
    return Table(
        box=None, padding=(0, _GAP, 0, 0), show_edge=False, pad_edge=False, header_style="bold", show_header=show_header
    )


def _fill(made: Table, rows: Iterable[Sequence[Text]]) -> None:
    for row in rows:
        made.add_row(*row)
