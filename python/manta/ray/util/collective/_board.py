"""What a driver declares of a group, where the group's actors find it: an actor with a name, which ends with its declarer
or with the group."""
from __future__ import annotations

import hashlib
import os
from typing import Any, Optional

import manta
from manta.ray import _worker, exceptions
from manta.ray.actor import ActorClass

Place = tuple[int, int, int, str]        # rank, size, timeout, token


class _Board:
    """Which actor has which rank."""

    def __init__(self, ranks: dict[str, int], timeout_ms: int) -> None:
        self._ranks, self._timeout_ms = ranks, timeout_ms
        self._token = os.urandom(8).hex()       # groups of one name, one after the other, do not meet

    def token(self) -> str:
        return self._token

    def place(self, actor: str) -> Optional[Place]:
        if actor not in self._ranks:
            return None
        return self._ranks[actor], len(self._ranks), self._timeout_ms, self._token


_mine: dict[str, Any] = {}      # boards that this process has declared, by the group's name


def _name(group: str) -> str:
    return "collective." + hashlib.sha256(group.encode()).hexdigest()[:24]


def _found(group: str) -> Any:
    try:
        return _worker.get_actor(_name(group))
    except ValueError:
        return None


def declare(group: str, ranks: dict[str, int], timeout_ms: int) -> None:
    """RuntimeError: a group of that name is declared already."""
    while True:
        try:
            board = ActorClass(_Board, {"num_cpus": 0, "name": _name(group)}).remote(ranks, timeout_ms)
            manta.get(board.place.remote(""))       # from here on others find it
            _mine[group] = board
            return
        except exceptions.ActorAlreadyExistsError:
            there = _found(group)
        try:
            if there is not None:
                manta.get(there.place.remote(""))
        except exceptions.RayActorError:
            continue                # it was about to end
        if there is not None:
            raise RuntimeError(f"create_collective_group(): a group {group!r} is declared already; destroy_collective_group() ends it")


def place_of(group: str, actor: str) -> Optional[Place]:
    """Of an actor that was declared to be in the group; None: there is no such group, or it is not."""
    board = _found(group)
    if board is None:
        return None
    try:
        place: Optional[Place] = manta.get(board.place.remote(actor))
    except exceptions.RayActorError:
        return None             # the group was destroyed meanwhile
    return place


def remove(group: str, token: Optional[str] = None) -> bool:
    """Takes the declaration back; whether there was one. token: only that of this group, and no later one of its name."""
    board = _mine.get(group) or _found(group)
    if board is None or token is not None and not _has_token(board, token):
        return False
    _mine.pop(group, None)
    _worker.kill(board)
    return True


def _has_token(board: Any, token: str) -> bool:
    try:
        return bool(manta.get(board.token.remote()) == token)
    except exceptions.RayActorError:
        return False            # somebody else has taken it back
