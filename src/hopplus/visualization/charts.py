"""Interactive charts of a page: plotly figures with text alternatives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from hopplus.visualization.figures import COLOURS

if TYPE_CHECKING:
    from markupsafe import Markup
    from plotly.graph_objects import Figure

MOST_POINTS = 400
"""Maximum points per curve; longer curves are thinned out, as a screen cannot show more."""
LINE_COLOURS = tuple(colour for colour in COLOURS if colour != "#000000")
"""Colours of lines, without black, which is invisible on a dark page."""
HEIGHT = 340
DASHED = {"dash": "dash", "width": 1.5}


@dataclass(frozen=True)
class Curve:
    """Curve with an interval."""

    name: str
    x: Sequence[float]
    """Positions on the default x axis."""
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    other_x: Sequence[float] | None = None
    """Positions on the alternative x axis, selected by a button."""
    colour: str | None = None
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Figure with a text alternative for screen readers."""

    title: str
    figure: "Figure"
    alternative: str

    def html(self, identifier: str) -> "Markup":
        """Returns the figure as an HTML fragment for a page that contains plotly's script."""
        from markupsafe import Markup

        settings = {"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}
        return Markup(
            self.figure.to_html(
                full_html=False, include_plotlyjs=False, div_id=identifier, config=settings, default_width="100%"
            )
        )


def line_chart(title: str, curves: Sequence[Curve], x_title: str, other_x_title: str | None = None) -> Chart:
    """Returns a chart of curves with intervals.

    Args:
        title: Title of the chart.
        curves: Curves to draw.
        x_title: Title of the default x axis.
        other_x_title: Title of the alternative x axis, with buttons to switch between both; None without one.
    """
    from plotly.graph_objects import Figure, Scatter

    figure, thinned = Figure(), [_thin(curve) for curve in curves]
    x_values: list[tuple[Sequence[float], Sequence[float]]] = []
    for number, curve in enumerate(thinned):
        colour = curve.colour or LINE_COLOURS[number % len(LINE_COLOURS)]
        other = curve.x if curve.other_x is None else curve.other_x
        if curve.low is not None and curve.high is not None:
            known = [index for index, low in enumerate(curve.low) if low is not None]
            low, high = ([values[index] for index in known] for values in (curve.low, curve.high))
            band_x, band_other = ([values[index] for index in known] for values in (curve.x, other))
            band = {"x": _there_and_back(band_x), "y": [*high, *reversed(low)], "fill": "toself"}
            hidden = {"showlegend": False, "hoverinfo": "skip", "legendgroup": curve.name}
            shade = f"rgba({', '.join(str(int(colour[start : start + 2], 16)) for start in (1, 3, 5))}, 0.18)"
            figure.add_trace(Scatter(**band, **hidden, fillcolor=shade, line={"width": 0}, mode="lines"))
            x_values.append((_there_and_back(band_x), _there_and_back(band_other)))
        style = {"color": colour, **(DASHED if curve.dashed else {"width": 2})}
        mode = "lines+markers" if len(curve.x) <= 60 else "lines"
        label = {"name": curve.name, "legendgroup": curve.name, "hovertemplate": "%{y:.3f}"}
        figure.add_trace(Scatter(x=list(curve.x), y=list(curve.values), mode=mode, line=style, **label))
        x_values.append((list(curve.x), list(other)))
    _lay_out(figure, x_title)
    if other_x_title is not None and x_values:
        buttons = [
            {
                "label": label,
                "method": "update",
                "args": [{"x": [pair[which] for pair in x_values]}, {"xaxis.title.text": label}],
            }
            for which, label in enumerate((x_title, other_x_title))
        ]
        position = {"type": "buttons", "direction": "right", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
        figure.update_layout(updatemenus=[{"buttons": buttons, **position, "font": {"size": 11, "color": "#22262b"}}])
    return Chart(title, figure, _alternative(title, thinned))


def heat_map(
    title: str, rows: Sequence[str], columns: Sequence[str], values: Float[np.ndarray, "rows columns"], unit: str
) -> Chart:
    """Returns a heat map of a matrix, with the values in the cells; NaN cells are empty."""
    from plotly.graph_objects import Figure, Heatmap

    written = [[("" if np.isnan(value) else f"{value:.2f}") for value in row] for row in values]
    shown = [[None if np.isnan(value) else float(value) for value in row] for row in values]
    cells = Heatmap(
        z=shown, x=list(columns), y=list(rows), text=written, texttemplate="%{text}", colorscale="Viridis",
        colorbar={"title": unit}, hovertemplate="%{y} with %{x}: %{z:.3f}<extra></extra>",
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
    """Sets the layout; the page's script sets the colours of text for light and dark."""
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


def _thin(curve: Curve) -> Curve:
    """Returns the curve with at most `MOST_POINTS` points, including the first and the last."""
    number = len(curve.x)
    if number <= MOST_POINTS:
        return curve
    indices = places(number)

    def select(values: Sequence[Any] | None) -> list[Any] | None:
        return None if values is None else [values[index] for index in indices]

    return Curve(
        curve.name, select(curve.x) or [], select(curve.values) or [], select(curve.low), select(curve.high),
        select(curve.other_x), curve.colour, curve.dashed,
    )  # fmt: skip


def places(number: int, most: int = MOST_POINTS) -> list[int]:
    """Returns the indices of at most `most` of `number` points, evenly spaced, including the first and the last."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int)).tolist()


def _there_and_back(x: Sequence[float]) -> list[float]:
    return [*x, *reversed(x)]


def _alternative(title: str, curves: Sequence[Curve]) -> str:
    """Returns a sentence with the first and last value of each curve."""
    ends: Mapping[str, list[float]] = {
        curve.name: [value for value in curve.values if value is not None] for curve in curves
    }
    parts = [f"{name} from {known[0]:.3g} to {known[-1]:.3g}" for name, known in ends.items() if known]
    return f"{title}: {'; '.join(parts) or 'no data yet'}."
