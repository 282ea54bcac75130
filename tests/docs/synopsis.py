"""The synopses of the documentation, as a grammar that generates statements.

The notation is that of PostgreSQL's manual. A statement begins in column 1 and continues in the indented lines. `x is:`
and the indented lines after it define the part x.

    [ a ]       nothing or a
    { a | b }   one of them; `[ a | b ]`: one of them, or nothing
    [, ...]     what precedes, again, after a comma
    [...]       what precedes, again
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"\$\$|\[, \.\.\.\]|\[\.\.\.\]|\[|\]|\{|\}|\||'[^']*'|\"[^\"]*\"|[A-Za-z_0-9]+|[^\s\w]")
_DEFINITION = re.compile(r"(\w+) is:")


@dataclass(frozen=True, eq=False)
class Word:
    """A keyword, a symbol, a value, or the name of a part."""

    text: str


@dataclass(frozen=True, eq=False)
class Choice:
    """One of several sequences. An empty one is the absence of something optional."""

    options: tuple[Sequence, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """An item once or several times."""

    item: Item
    separator: str


Item = Word | Choice | Repeat
Sequence = tuple[Item, ...]


@dataclass
class Synopses:
    statements: list[tuple[str, Sequence]] = field(default_factory=list)
    """The text of each synopsis and its parts."""
    parts: dict[str, Sequence] = field(default_factory=dict)

    def add(self, block: str) -> None:
        """Reads a block. ValueError for a part that is defined twice, and for unbalanced brackets."""
        for entry in re.split(r"\n(?=\S)", block.strip("\n")):
            head, _, rest = entry.partition("\n")
            if defined := _DEFINITION.fullmatch(head):
                if defined[1] in self.parts:
                    raise ValueError(f"{defined[1]} is defined twice")
                self.parts[defined[1]] = parsed(rest)
            else:
                self.statements.append((entry.strip(), parsed(entry)))

    def words(self) -> set[str]:
        """All keywords and symbols, in small letters."""
        sequences = [*(sequence for _, sequence in self.statements), *self.parts.values()]
        return {word.text.lower() for sequence in sequences for word in _words(sequence)}

    def choices(self, sequence: Sequence, seen: frozenset[str] = frozenset()) -> Iterator[tuple[Choice, int]]:
        """All options of all choices that a sequence can lead to."""
        for item in sequence:
            if isinstance(item, Word):
                if item.text in self.parts and item.text not in seen:
                    yield from self.choices(self.parts[item.text], seen | {item.text})
            elif isinstance(item, Repeat):
                yield from self.choices((item.item,), seen)
            else:
                for number, option in enumerate(item.options):
                    yield item, number
                    yield from self.choices(option, seen)

    def repeats(self, sequence: Sequence, seen: frozenset[str] = frozenset()) -> Iterator[Repeat]:
        """All repetitions that a sequence can lead to."""
        for item in sequence:
            if isinstance(item, Word):
                if item.text in self.parts and item.text not in seen:
                    yield from self.repeats(self.parts[item.text], seen | {item.text})
            elif isinstance(item, Repeat):
                yield item
                yield from self.repeats((item.item,), seen)
            else:
                for option in item.options:
                    yield from self.repeats(option, seen)

    def path_to(self, sequence: Sequence, wanted: Choice | Repeat) -> dict[Choice, int] | None:
        """The options to choose on the way to an item; None if the sequence does not lead to it."""
        return self._path(sequence, wanted, frozenset())

    def _path(self, sequence: Sequence, wanted: Item, seen: frozenset[str]) -> dict[Choice, int] | None:
        for item in sequence:
            if item is wanted:
                return {}
            found: dict[Choice, int] | None = None
            if isinstance(item, Word) and item.text in self.parts and item.text not in seen:
                found = self._path(self.parts[item.text], wanted, seen | {item.text})
            elif isinstance(item, Repeat):
                found = self._path((item.item,), wanted, seen)
            elif isinstance(item, Choice):
                for number, option in enumerate(item.options):
                    if (inner := self._path(option, wanted, seen)) is not None:
                        found = {item: number, **inner}
                        break
            if found is not None:
                return found
        return None

    def text(
        self,
        sequence: Sequence,
        values: Mapping[str, str],
        choose: Callable[[Choice], int],
        repeated: Callable[[Repeat], bool],
        inside: frozenset[str] = frozenset(),
    ) -> str:
        """A statement. `values`: those of names and values. `choose` and `repeated` decide.

        A part within itself has the first option of each choice and no repetition. `inside`: the parts around it.
        """
        out: list[str] = []
        for item in sequence:
            if isinstance(item, Choice):
                out.append(self.text(item.options[choose(item)], values, choose, repeated, inside))
            elif isinstance(item, Repeat):
                one = self.text((item.item,), values, choose, repeated, inside)
                out.append(f"{one}{item.separator} {one}" if repeated(item) else one)
            elif item.text in inside:
                part = self.parts[item.text]
                out.append(self.text(part, values, lambda choice: 0, lambda repeat: False, inside))
            elif item.text in self.parts:
                part = self.parts[item.text]
                out.append(self.text(part, values, choose, repeated, inside | {item.text}))
            else:
                out.append(values.get(item.text, item.text))
        return " ".join(filter(None, out))


def parsed(text: str) -> Sequence:
    tokens = _TOKEN.findall(text)
    sequence, rest = _sequence(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"unexpected {tokens[rest]}: {text}")
    return sequence


def _sequence(tokens: list[str], index: int) -> tuple[Sequence, int]:
    items: list[Item] = []
    while index < len(tokens) and tokens[index] not in ("]", "}", "|"):
        token = tokens[index]
        if token in ("[, ...]", "[...]"):
            items[-1:] = [Repeat(_repeated(items), "," if token == "[, ...]" else "")]
            index += 1
        elif token in ("[", "{"):
            options: list[Sequence] = []
            index += 1
            while True:
                option, index = _sequence(tokens, index)
                options.append(option)
                if tokens[index] != "|":
                    break
                index += 1
            if tokens[index] != {"[": "]", "{": "}"}[token]:
                raise ValueError(f"unbalanced {token}: {' '.join(tokens)}")
            index += 1
            items.append(Choice(((), *options) if token == "[" else tuple(options)))
        else:
            items.append(Word(token))
            index += 1
    return tuple(items), index


def _repeated(items: list[Item]) -> Item:
    """The item that `...` repeats: a list in parentheses as a whole, with its name and the optional parts after it."""
    first = len(items) - 1
    depth = 0
    while first >= 0:
        item = items[first]
        text = item.text if isinstance(item, Word) else ""
        depth += (text == ")") - (text == "(")
        is_optional = isinstance(item, Choice) and item.options[0] == ()
        if depth == 0 and not is_optional and text not in (".", "*") and not _continues(items, first):
            break
        first -= 1
    group = tuple(items[first:])
    del items[first + 1 :]
    return group[0] if len(group) == 1 else Choice((group,))


def _continues(items: list[Item], index: int) -> bool:
    """Whether an item belongs to the one before it: `table.column`, `name ( ... )`, `window AS ( ... )`."""
    item, before = items[index], items[index - 1] if index else None
    if not isinstance(item, Word) or not isinstance(before, Word):
        return False
    if item.text == "(":
        return before.text.islower() or before.text == "AS"
    return before.text == "." or (item.text == "AS" and before.text.islower())


def _words(items: Iterable[Item]) -> Iterator[Word]:
    for item in items:
        if isinstance(item, Word):
            yield item
        elif isinstance(item, Repeat):
            yield from _words((item.item,))
        else:
            for option in item.options:
                yield from _words(option)
