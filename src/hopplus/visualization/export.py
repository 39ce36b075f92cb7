"""Export of results for other tools: tables as CSV, arrays as NPZ, written atomically."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hopplus.core.files import write_bytes, write_text


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows with equal keys; a nested mapping becomes columns `outer_inner`."""
    flat = [_flat(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]) if flat else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    write_text(path, text.getvalue())


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name."""
    data, named = io.BytesIO(), dict[str, Any](arrays)
    np.savez_compressed(data, **named)
    write_bytes(path, data.getvalue())


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, value in row.items():
        columns.update(_flat(value, f"{prefix}{name}_") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return columns
