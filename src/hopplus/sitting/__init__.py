"""A person takes a seat: who sits with them, turn after turn, what is kept of it, and what everybody believed."""

from hopplus.sitting.guests import Guest, guests_of
from hopplus.sitting.record import Record, begin_record, is_record, open_record
from hopplus.sitting.review import review_of
from hopplus.sitting.setup import Setup, company_of
from hopplus.sitting.table import Table

__all__ = [
    "Guest",
    "Record",
    "Setup",
    "Table",
    "begin_record",
    "company_of",
    "guests_of",
    "is_record",
    "open_record",
    "review_of",
]
