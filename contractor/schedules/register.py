"""The register of schedules: an order of evaluation is one file here and one line below."""

from __future__ import annotations

from contractor.schedules.chunked import Chunked
from contractor.schedules.delta import Delta
from contractor.schedules.diagonal import Diagonal
from contractor.schedules.entrywise import Entrywise
from contractor.schedules.family import Family
from contractor.schedules.quadratic import Quadratic
from contractor.schedules.recurrent import Recurrent
from contractor.schedules.schedule import Schedule

ORDERS: tuple[Schedule, ...] = (
    Quadratic(),
    Recurrent(),
    Family("chunked", (Chunked(), Diagonal(), Delta())),
    Entrywise(),
)
SCHEDULES: dict[str, Schedule] = {one.name: one for one in ORDERS}
