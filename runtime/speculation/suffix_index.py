"""Where in a text its own end stood before: the longest match, found without searching.

Owns the index.  Does not know what tokens mean, or what becomes of a match.  Kept up token by token: each adds an
entry to a table of pairs; places of the same pair are chained, the latest first (as in Ziv and Lempel's compressors).
Prompt lookup: Saxena, "Prompt lookup decoding", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_MATCH = 2
MAX_MATCH = 64
# Of a pair that is everywhere, only the latest places are looked at.
_MOST_PLACES = 128
_NOWHERE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The last `length` tokens stood before `end` already: what followed there is at `end`."""

    end: int
    length: int


class SuffixIndex:
    """An index of one text that grows at its end."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, int], int] = {}  # pair -> the position behind it
        self._earlier: list[int] = []  # position behind a pair -> the same of the pair's previous place

    def match(self, token_ids: Sequence[int]) -> Match | None:
        """The longest earlier occurrence of the text's end, of equal ones the latest; takes new tokens up.

        token_ids: the text of the last call, and perhaps more.  Matches longer than MAX_MATCH count as that long.
        """
        length = len(token_ids)
        self._take_up(token_ids, length)
        if length < MIN_MATCH + 1:
            return None
        place = self._latest.get((token_ids[length - 2], token_ids[length - 1]), _NOWHERE)
        best: Match | None = None
        best_length = MIN_MATCH - 1
        for _ in range(_MOST_PLACES):
            if place == _NOWHERE:
                break
            # Only a place that also agrees where the best match ended can be better.
            if best_length < place and token_ids[place - 1 - best_length] == token_ids[length - 1 - best_length]:
                found = _agreement(token_ids, place, length)
                if found > best_length:
                    best, best_length = Match(end=place, length=found), found
                    if found == MAX_MATCH:
                        break
            place = self._earlier[place]
        return best

    def _take_up(self, token_ids: Sequence[int], length: int) -> None:
        """Enters all pairs but the last: the end of the text shall not match itself."""
        earlier = self._earlier
        for end in range(len(earlier), length):
            if end < MIN_MATCH:
                earlier.append(_NOWHERE)
                continue
            pair = (token_ids[end - 2], token_ids[end - 1])
            earlier.append(self._latest.get(pair, _NOWHERE))
            self._latest[pair] = end


def _agreement(token_ids: Sequence[int], place: int, length: int) -> int:
    """How many tokens before `place` equal those before `length`."""
    found = 0
    most = min(place, MAX_MATCH)
    while found < most and token_ids[place - 1 - found] == token_ids[length - 1 - found]:
        found += 1
    return found
