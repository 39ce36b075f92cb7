"""Charts that a reader can hover over, zoom and take lines out of: figures of plotly as parts of a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from hopplus.report.figures import COLOURS

if TYPE_CHECKING:
    from markupsafe import Markup
    from plotly.graph_objects import Figure

MOST_POINTS = 400
"""A curve of more points than this is thinned out: a screen cannot show them."""
LINE_COLOURS = tuple(colour for colour in COLOURS if colour != "#000000")
"""Black is not seen on a dark page."""
HEIGHT = 340
DASHED = {"dash": "dash", "width": 1.5}


@dataclass(frozen=True)
class Curve:
    """A line with the interval around it."""

    name: str
    x: Sequence[float]
    """Along the axis that is shown at first."""
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    other_x: Sequence[float] | None = None
    """Along the axis that is shown instead when a reader asks for it."""
    colour: str | None = None
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure with a sentence for readers who do not see it."""

    title: str
    figure: "Figure"
    alternative: str

    def html(self, identifier: str) -> "Markup":
        """The figure as part of a page that has plotly's script already."""
        from markupsafe import Markup

        settings = {"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}
        return Markup(
            self.figure.to_html(
                full_html=False, include_plotlyjs=False, div_id=identifier, config=settings, default_width="100%"
            )
        )


def line_chart(title: str, curves: Sequence[Curve], x_title: str, other_x_title: str | None = None) -> Chart:
    """Curves with their intervals; with a second title, buttons that change what lies along the bottom."""
    from plotly.graph_objects import Figure, Scatter

    figure, thin = Figure(), [_thinned(curve) for curve in curves]
    along: list[tuple[Sequence[float], Sequence[float]]] = []
    for number, curve in enumerate(thin):
        colour = curve.colour or LINE_COLOURS[number % len(LINE_COLOURS)]
        other = curve.x if curve.other_x is None else curve.other_x
        if curve.low is not None and curve.high is not None:
            known = [place for place, low in enumerate(curve.low) if low is not None]
            low, high = ([side[place] for place in known] for side in (curve.low, curve.high))
            below, beside = ([side[place] for place in known] for side in (curve.x, other))
            band = {"x": _there_and_back(below), "y": [*high, *reversed(low)], "fill": "toself"}
            hidden = {"showlegend": False, "hoverinfo": "skip", "legendgroup": curve.name}
            shade = f"rgba({', '.join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))}, 0.18)"
            figure.add_trace(Scatter(**band, **hidden, fillcolor=shade, line={"width": 0}, mode="lines"))
            along.append((_there_and_back(below), _there_and_back(beside)))
        style = {"color": colour, **(DASHED if curve.dashed else {"width": 2})}
        mode = "lines+markers" if len(curve.x) <= 60 else "lines"
        said = {"name": curve.name, "legendgroup": curve.name, "hovertemplate": "%{y:.3f}"}
        figure.add_trace(Scatter(x=list(curve.x), y=list(curve.values), mode=mode, line=style, **said))
        along.append((list(curve.x), list(other)))
    _lay_out(figure, x_title)
    if other_x_title is not None and along:
        buttons = [
            {
                "label": label,
                "method": "update",
                "args": [{"x": [pair[which] for pair in along]}, {"xaxis.title.text": label}],
            }
            for which, label in enumerate((x_title, other_x_title))
        ]
        place = {"type": "buttons", "direction": "right", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
        figure.update_layout(updatemenus=[{"buttons": buttons, **place, "font": {"size": 11, "color": "#22262b"}}])
    return Chart(title, figure, _sentence(title, thin))


def heat_map(
    title: str, rows: Sequence[str], columns: Sequence[str], values: Float[np.ndarray, "rows columns"], what: str
) -> Chart:
    """A matrix as colours, with its figures in the cells."""
    from plotly.graph_objects import Figure, Heatmap

    written = [[("" if np.isnan(value) else f"{value:.2f}") for value in row] for row in values]
    shown = [[None if np.isnan(value) else float(value) for value in row] for row in values]
    cells = Heatmap(
        z=shown, x=list(columns), y=list(rows), text=written, texttemplate="%{text}", colorscale="Viridis",
        colorbar={"title": what}, hovertemplate="%{y} with %{x}: %{z:.3f}<extra></extra>",
    )  # fmt: skip
    figure = Figure(cells)
    _lay_out(figure, "")
    figure.update_layout(height=max(HEIGHT, 120 + 40 * len(rows)), hovermode="closest")
    figure.update_yaxes(autorange="reversed")
    parts = [
        f"{row} with {column}: {text}"
        for row, line in zip(rows, written, strict=True)
        for column, text in zip(columns, line, strict=True)
        if text
    ]
    return Chart(title, figure, f"{title}. {'; '.join(parts)}.")


def _lay_out(figure: Any, x_title: str) -> None:
    """Colours of text and lines are the page's: its script sets them for light and dark."""
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 44, "r": 12, "t": 40, "b": 48},
        modebar={"bgcolor": "rgba(0,0,0,0)"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.22, "x": 0},
        font={"family": "system-ui, sans-serif", "size": 12},
    )
    figure.update_xaxes(title_text=x_title, gridcolor="rgba(128,128,128,0.25)", zeroline=False)
    figure.update_yaxes(gridcolor="rgba(128,128,128,0.25)", zeroline=False)


def _thinned(curve: Curve) -> Curve:
    """The curve with at most so many points as can be seen, the first and the last among them."""
    number = len(curve.x)
    if number <= MOST_POINTS:
        return curve
    chosen = places(number)

    def some(values: Sequence[Any] | None) -> list[Any] | None:
        return None if values is None else [values[place] for place in chosen]

    return Curve(
        curve.name, some(curve.x) or [], some(curve.values) or [], some(curve.low), some(curve.high),
        some(curve.other_x), curve.colour, curve.dashed,
    )  # fmt: skip


def places(number: int, most: int = MOST_POINTS) -> list[int]:
    """Of so many points those that are shown: all of them, or some evenly, the first and the last among them."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int)).tolist()


def _there_and_back(x: Sequence[float]) -> list[float]:
    return [*x, *reversed(x)]


def _sentence(title: str, curves: Sequence[Curve]) -> str:
    """Where each line begins and ends."""
    ends: Mapping[str, list[float]] = {
        curve.name: [value for value in curve.values if value is not None] for curve in curves
    }
    parts = [f"{name} from {known[0]:.3g} to {known[-1]:.3g}" for name, known in ends.items() if known]
    return f"{title}: {'; '.join(parts) or 'nothing yet'}."
