# ---- the data of figures, as a part of kernel.py
import math
import re

CHART = "application/vnd.hutch.chart+json"
MAX_CHARTS = 32  # of a figure
MAX_ELEMENTS = 200  # of a chart
MAX_POINTS = 1000  # of an element, and ticks of an axis
MAX_LABEL = 200  # characters

def chart(figure):
    """Returns the content of a matplotlib figure as data: one chart, or several."""
    kind = type(figure)
    if kind.__name__ != "Figure" or kind.__module__ != "matplotlib.figure":
        return None
    try:
        charts = [axes_chart(a) for a in figure.axes[:MAX_CHARTS] if a.get_label() != "<colorbar>"]
        if len(charts) == 1:
            return charts[0]
        title = figure._suptitle.get_text() if figure._suptitle else None
        return {"type": "superchart", "title": label(title), "elements": charts} if charts else None
    except Exception:
        return None


def axes_chart(axes):
    for kind, elements in (
        ("pie", pie_elements), ("box_and_whisker", box_elements), ("bar", bar_elements),
        ("line", line_elements), ("scatter", scatter_elements),
    ):
        found = elements(axes)[:MAX_ELEMENTS]
        if found:
            break
    else:
        kind = "unknown"
    data = {"type": kind, "title": label(axes.get_title()), "elements": found}
    if kind not in ("pie", "unknown"):
        for name, axis in ("x", axes.xaxis), ("y", axes.yaxis):
            data.update({f"{name}_{k}": v for k, v in axis_data(axis, kind in ("line", "scatter")).items()})
    return data


def axis_data(axis, points):
    text = label(axis.get_label_text())
    unit = re.search(r"[(\[]([^()\[\]]+)[)\]]\s*$", text or "")
    data = {"label": text, "unit": unit and unit[1]}
    if points:
        data["ticks"] = [number(v) for v in axis.get_majorticklocs()[:MAX_POINTS]]
        data["tick_labels"] = [label(t.get_text()) for t in axis.get_majorticklabels()[:MAX_POINTS]]
        data["scale"] = "categorical" if categories(axis) else "datetime" if axis.have_units() and is_date(axis) else axis.get_scale()
    return data


def is_date(axis):
    return "date" in type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__.lower()


def categories(axis):
    """Returns the names of an axis's categories, by position."""
    names = getattr(axis.units, "_mapping", None)
    return {at: name for name, at in names.items()} if isinstance(names, dict) else {}


def pie_elements(axes):
    return [
        {"label": legend(w), "angle": number(w.theta2 - w.theta1), "radius": number(w.r)}
        for w in axes.patches[:MAX_ELEMENTS] if type(w).__name__ == "Wedge"
    ]


def bar_elements(axes):
    found = []
    for bars in axes.containers:
        if type(bars).__name__ != "BarContainer":
            continue
        flat = getattr(bars, "orientation", None) == "horizontal"
        names = bar_names(axes.yaxis if flat else axes.xaxis)
        for bar in bars.patches[: MAX_ELEMENTS - len(found)]:
            at = bar.get_y() + bar.get_height() / 2 if flat else bar.get_x() + bar.get_width() / 2
            found.append({
                "label": nearest(names, float(at)) or f"{float(at):g}",
                "value": number(bar.get_width() if flat else bar.get_height()), "group": legend(bars),
            })
    return found


def bar_names(axis):
    """Returns the texts below bars, by position."""
    names = {float(at): label(name) for at, name in categories(axis).items()}
    if not names and type(axis.get_major_formatter()).__name__ in ("FixedFormatter", "FuncFormatter"):
        ticks = zip(axis.get_majorticklocs()[:MAX_POINTS], axis.get_majorticklabels()[:MAX_POINTS])
        names = {float(at): label(tick.get_text()) for at, tick in ticks}
    return names


def nearest(names, at):
    """Returns the name of the category at a position; the bars of a group are beside it."""
    place = min(names, key=lambda n: abs(n - at), default=math.inf)
    return names[place] if abs(place - at) < 0.5 else None


def box_elements(axes):
    return [
        {
            "label": label(b.get("label")), "min": number(b["whislo"]), "first_quartile": number(b["q1"]), "median": number(b["med"]),
            "third_quartile": number(b["q3"]), "max": number(b["whishi"]), "outliers": [number(v) for v in b.get("fliers", ())[:MAX_POINTS]],
        }
        for b in getattr(axes, "_hutch_boxes", [])[:MAX_ELEMENTS]
    ]


def remember_boxes():
    """Makes axes keep the numbers of box plots, which cannot be read from their lines."""
    from matplotlib.axes import Axes
    draw = Axes.bxp

    @functools.wraps(draw)
    def bxp(self, bxpstats, *args, **kwargs):
        with contextlib.suppress(Exception):
            self._hutch_boxes = (getattr(self, "_hutch_boxes", []) + list(bxpstats))[:MAX_ELEMENTS]
        return draw(self, bxpstats, *args, **kwargs)

    Axes.bxp = bxp


def line_elements(axes):
    return [points(axes, line, *line.get_data(orig=True)) for line in axes.lines[:MAX_ELEMENTS] if line.get_linestyle() not in ("None", " ", "")]


def scatter_elements(axes):
    found = [points(axes, line, *line.get_data(orig=True)) for line in axes.lines[:MAX_ELEMENTS]]
    for dots in axes.collections[:MAX_ELEMENTS]:
        if type(dots).__name__ == "PathCollection":
            at = dots.get_offsets()[: MAX_POINTS + 1]
            found.append(points(axes, dots, at[:, 0], at[:, 1], len(dots.get_offsets())))
    return found


def points(axes, artist, x, y, total=None):
    total = min(len(x), len(y)) if total is None else total
    xs, ys = categories(axes.xaxis), categories(axes.yaxis)
    first = zip(x[:MAX_POINTS], y[:MAX_POINTS])
    element = {"label": legend(artist), "points": [[xs.get(number(a)) or number(a), ys.get(number(b)) or number(b)] for a, b in first]}
    if total > MAX_POINTS:
        element["total"] = total
    return element


def number(value):
    """Converts a value for JSON: a number that JSON does not have becomes null."""
    if type(value).__name__ == "datetime64":
        return label(value)
    value = getattr(value, "item", lambda: value)()
    if isinstance(value, (bool, int)) and abs(value) < 1 << 63:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return label(value.isoformat() if hasattr(value, "isoformat") else value)


def label(text):
    text = "" if text is None else str(text)
    return (text if len(text) <= MAX_LABEL else text[:MAX_LABEL] + "…") or None


def legend(artist):
    """Returns the name of an element in the legend. Names that begin with _ are matplotlib's own."""
    name = artist.get_label()
    return None if str(name).startswith("_") else label(name)
