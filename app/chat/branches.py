"""The tree of a conversation's turns: which branch is shown, which others there are, how to get from one to another.

Owns the walking. Every function takes a conversation and gives another; no turn is ever lost on the way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from app.chat.conversation import Conversation, Turn
from app.chat.plain_text import one_line


@dataclass(frozen=True, kw_only=True)
class TreeLine:
    """One turn of the drawn tree. `depth` counts the forks before it; `is_shown`: it is on the branch that is shown.

    `words` is its text on one line; `num_shared`: so many characters of it begin another turn in its place too;
    `is_repeated`: another one has the very same words.
    """

    turn: Turn
    words: str
    num_shared: int
    is_repeated: bool
    depth: int
    is_shown: bool


def branch_to(turns: Sequence[Turn], leaf: str | None) -> tuple[Turn, ...]:
    """The turns from the first to the leaf (None: the one written last). Where a link is lost, all turns in order."""
    by_id = {turn.id: turn for turn in turns}
    branch: list[Turn] = []
    current = leaf if leaf is not None or not turns else turns[-1].id
    while current is not None and current in by_id and len(branch) <= len(turns):
        branch.append(by_id[current])
        current = by_id[current].parent
    return tuple(reversed(branch)) if current is None else tuple(turns)


def ending_at(conversation: Conversation, leaf: str | None) -> Conversation:
    """The conversation as it stands when its last turn is `leaf`; None: before its first."""
    everything = conversation.all_turns
    branch = branch_to(everything, leaf) if leaf is not None else ()
    kept_ids = {turn.id for turn in branch}
    return replace(conversation, turns=branch, others=tuple(turn for turn in everything if turn.id not in kept_ids))


def showing(conversation: Conversation, turn_id: str) -> Conversation:
    """The branch that goes through this turn, and on from it along what was written last."""
    children = _children(conversation.all_turns)
    leaf = turn_id
    while following := children.get(leaf):
        leaf = max(following, key=lambda turn: turn.created_at).id
    return ending_at(conversation, leaf)


def without(conversation: Conversation, turn: Turn) -> Conversation:
    """The conversation without this turn alone: what followed it, on any branch, follows the turn before it now.

    Where nothing followed, the branch ends before it, or shows another version of it where there is one.
    """
    others = [other for other in siblings(conversation, turn) if other.id != turn.id]
    rest = [replace(kept, parent=turn.parent) if kept.parent == turn.id else kept for kept in conversation.all_turns]
    whole = replace(conversation, turns=(), others=tuple(kept for kept in rest if kept.id != turn.id))
    if turn.id == conversation.window_start:
        behind = conversation.turns[conversation.first_seen + 1 :]
        whole = replace(whole, window_start=behind[0].id if behind else None)
    if conversation.leaf != turn.id:
        return ending_at(whole, conversation.leaf)
    return showing(whole, others[-1].id) if others else ending_at(whole, turn.parent)


def with_again(conversation: Conversation, turn: Turn, followers: Iterable[str], leaf: str | None) -> Conversation:
    """The conversation with a turn that was taken out put back before those that followed it; `leaf` is shown last."""
    moved = set(followers)
    rest = [replace(kept, parent=turn.id) if kept.id in moved else kept for kept in conversation.all_turns]
    return ending_at(replace(conversation, turns=(), others=(*rest, turn)), leaf)


def with_turns_of(conversation: Conversation, newer: Conversation) -> Conversation:
    """The conversation with its turns as they stand in another copy of it, and those that only that one has."""
    found = {turn.id: turn for turn in newer.all_turns}
    turns = tuple(found.pop(turn.id, turn) for turn in conversation.turns)
    others = tuple(found.pop(turn.id, turn) for turn in conversation.others)
    return replace(conversation, turns=turns, others=(*others, *found.values()))


def siblings(conversation: Conversation, turn: Turn) -> list[Turn]:
    """The turns that stand in the same place, this one among them, the oldest first."""
    same_place = [other for other in conversation.all_turns if other.parent == turn.parent and other.role is turn.role]
    return sorted(same_place, key=lambda other: other.created_at)


def places(conversation: Conversation) -> dict[str, tuple[int, int]]:
    """For each turn shown that has others in its place: the number it has among them, and how many there are."""
    if not conversation.others:
        return {}
    found: dict[str, tuple[int, int]] = {}
    for turn in conversation.turns:
        same_place = siblings(conversation, turn)
        if len(same_place) > 1:
            found[turn.id] = ([other.id for other in same_place].index(turn.id) + 1, len(same_place))
    return found


def tree_lines(conversation: Conversation) -> list[TreeLine]:
    """All turns, each behind its parent: a turn with several answers is followed by each branch, one level deeper."""
    children = _children(conversation.all_turns)
    known = {turn.id for turn in conversation.all_turns}
    shown = {turn.id for turn in conversation.turns}
    roots = [turn for turn in conversation.all_turns if turn.parent is None or turn.parent not in known]
    words = {turn.id: one_line(turn.text) for turn in conversation.all_turns}
    shared = _shared(words, roots) | {
        turn_id: num for same_place in children.values() for turn_id, num in _shared(words, same_place).items()
    }
    same_place: dict[str | None, list[Turn]] = {turn.parent: roots for turn in roots} | children
    lines: list[TreeLine] = []
    depth_of_roots = 1 if len(roots) > 1 else 0
    waiting = [(root, depth_of_roots) for root in reversed(roots)]
    while waiting:
        turn, depth = waiting.pop()
        lines.append(
            TreeLine(
                turn=turn,
                words=words[turn.id],
                num_shared=shared[turn.id],
                is_repeated=any(
                    other.id != turn.id and words[other.id] == words[turn.id] for other in same_place[turn.parent]
                ),
                depth=depth,
                is_shown=turn.id in shown,
            )
        )
        following = children.get(turn.id, [])
        deeper = depth + (1 if len(following) > 1 else 0)
        waiting += [(child, deeper) for child in reversed(following)]
    return lines


def _children(turns: Sequence[Turn]) -> dict[str, list[Turn]]:
    children: dict[str, list[Turn]] = {}
    for turn in sorted(turns, key=lambda turn: turn.created_at):
        if turn.parent is not None:
            children.setdefault(turn.parent, []).append(turn)
    return children


def _shared(words: Mapping[str, str], turns: Sequence[Turn]) -> dict[str, int]:
    """How many characters of each turn begin another of these turns too: the most, over all the others."""
    num_shared = {turn.id: 0 for turn in turns}
    # The nearest of all in the order of letters stands beside it.
    for one, other in pairwise(sorted(turns, key=lambda turn: words[turn.id])):
        num = len(os.path.commonprefix([words[one.id], words[other.id]]))
        num_shared[one.id], num_shared[other.id] = max(num_shared[one.id], num), num
    return num_shared
