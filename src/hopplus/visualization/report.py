"""Report: one self-contained HTML page about a run, or about several runs side by side."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hopplus
from hopplus.core.errors import InputError
from hopplus.core.files import write_text
from hopplus.core.formatting import short_names
from hopplus.visualization.charts import MOST_POINTS
from hopplus.visualization.replay import SETS
from hopplus.visualization.report_sections import ReportSection, compare_runs, read_figures, section_of

if TYPE_CHECKING:
    from hopplus.training.run import Run

NAME = "report.html"
ASSETS = ("page.html", "page.css", "page.js")
SETS_OF_SEVERAL = 1
"""Held-out sets in the replays of each run if the page shows several runs, to limit its size."""
LARGEST_PAGE = 10_000_000
"""Bytes that can be sent by mail. Pictures, then replays, are dropped from a larger page."""
FEWEST_POINTS = 50
"""Minimum points per curve; several runs on one page share `MOST_POINTS`."""


def write_report(runs: Sequence["Run"], path: Path, sets: int | None = SETS) -> Path:
    """Writes the report of some runs.

    Args:
        runs: Runs to show.
        path: File to write.
        sets: Held-out sets shown in replays beside self-play; None for no replays.

    Returns:
        `path`.

    Raises:
        InputError: The files of a run cannot be read.
    """
    write_text(path, page_of(runs, sets))
    return path


def page_of(runs: Sequence["Run"], sets: int | None = SETS) -> str:
    """Returns the report as HTML (see `write_report`)."""
    from jinja2 import Environment
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    names = short_names([run.path for run in runs])
    replay_sets = sets if sets is None or len(runs) == 1 else min(sets, SETS_OF_SEVERAL)
    figures = [read_figures(run, name) for run, name in zip(runs, names, strict=True)]
    points = max(FEWEST_POINTS, MOST_POINTS // len(runs))
    sections = [section_of(run_figures, replay_sets, points) for run_figures in figures]
    comparison = compare_runs(figures, points) if len(runs) > 1 else None
    assets = {name: (resources.files("hopplus.visualization") / "assets" / name).read_text("utf-8") for name in ASSETS}
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: Markup(_script_safe_json(value))
    template = environment.from_string(assets["page.html"])

    def render() -> str:
        return template.render(
            title=f"{' and '.join(names[:3])}{' and others' if len(names) > 3 else ''}",
            version=hopplus.__version__,
            runs=sections,
            comparison=comparison,
            style=Markup(assets["page.css"]),
            script=Markup(assets["page.js"]),
            plotly=Markup(get_plotlyjs()),
        )

    page = render()
    while (excess := len(page.encode()) - LARGEST_PAGE) > 0:
        if not drop_content(sections, excess):
            raise InputError(f"the report would have {(LARGEST_PAGE + excess) / 1e6:.0f} MB: choose fewer runs")
        page = render()
    return page


def drop_content(sections: Sequence[ReportSection], excess: int) -> bool:
    """Drops pictures, then replays, the last ones first, until `excess` bytes are freed, and adds remarks about it.

    Returns:
        False if neither pictures nor replays are left.
    """
    freed = 0
    for kind in ("pictures", "replays"):
        for section in reversed(sections):
            items, count = getattr(section, kind), 0
            while items and freed < excess:
                freed += len(_script_safe_json(items.pop()))
                count += 1
            if count:
                section.remarks.append(f"Omitted to limit the size of the page: {count} {kind}.")
    return freed > 0


def _script_safe_json(value: Any) -> str:
    """Returns JSON that cannot end the script element that contains it."""
    from hopplus.training.run import as_json

    return as_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
