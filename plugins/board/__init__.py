"""What the processes on one port have in memory together: a row for each, which only that process writes."""

from plugins.board.memory import BOARD, Board, BoardError, inherited, own_place
from plugins.board.ring import NUMBERS, Record, Reel, Ring
from plugins.board.slots import Slots, load_bytes, loads_in

__all__ = [
    "BOARD",
    "NUMBERS",
    "Board",
    "BoardError",
    "Record",
    "Reel",
    "Ring",
    "Slots",
    "inherited",
    "load_bytes",
    "loads_in",
    "own_place",
]
