"""Draws charts as SVG: bars, dots on a logarithmic axis, and lines over time.

Text stays text. Colours are CSS classes with values for light and dark mode; the background is opaque, so that a page
in the other mode than the reader's system is readable too. Widths of text are estimated: no font is read.
"""

import math
from html import escape

WIDTH, MARGIN, SIZE = 760, 16, 13
# Estimated width of a character, in parts of the font's size. Wide fonts, such as DejaVu Sans, need this much.
CHARACTER = 0.61
BAR, GAP, ROW_GAP, HEADING = 14, 3, 10, 26
DOT_ROW = 24

# (light, dark) of each class.
COLOURS = {
    "background": ("#ffffff", "#0d1117"),
    "text": ("#1f2328", "#e6edf3"),
    "faint": ("#59636e", "#9198a1"),
    "grid": ("#d1d9e0", "#3d444d"),
    "orange": ("#bc4c00", "#f0883e"),
    "green": ("#0f766e", "#2dd4bf"),
    "blue": ("#0969da", "#58a6ff"),
    "grey": ("#818b98", "#7d8590"),
    "purple": ("#8250df", "#bc8cff"),
}


def text_width(text, size=SIZE):
    return len(text) * size * CHARACTER


class Canvas:
    """A picture under construction, from top to bottom. `y` is the end of what is drawn."""

    def __init__(self, title, note):
        self.title, self.note, self.parts, self.y = title, note, [], 27
        self.text(MARGIN, self.y, title, weight=600, size=16)

    def text(self, x, y, text, colour="text", anchor="start", size=SIZE, weight=400):
        style = f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += f' font-size="{size}"' if size != SIZE else ""
        style += f' font-weight="{weight}"' if weight != 400 else ""
        self.parts.append(f'<text class="{colour}" x="{x:.1f}" y="{y:.1f}"{style}>{escape(text, quote=False)}</text>')

    def rect(self, x, y, width, height, colour):
        self.parts.append(f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>')

    def line(self, points, colour, width=1.0):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{colour} line" stroke-width="{width:g}" points="{path}"/>')

    def dot(self, x, y, series, colour):
        """A mark whose shape, too, depends on the series: circle, square, triangle."""
        if series % 3 == 0:
            self.parts.append(f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
        elif series % 3 == 1:
            self.rect(x - 4.5, y - 4.5, 9, 9, colour)
        else:
            corners = f"{x:.1f},{y - 5.5:.1f} {x + 6:.1f},{y + 5:.1f} {x - 6:.1f},{y + 5:.1f}"
            self.parts.append(f'<polygon class="{colour}" points="{corners}"/>')

    def legend(self, series, mark):
        """One entry for each series, in as many lines as they need. Nothing if there is one series."""
        if len(series) < 2:
            return
        x, self.y = MARGIN, self.y + 24
        for at, (name, colour) in enumerate(series):
            if x > MARGIN and x + 18 + text_width(name) > WIDTH - MARGIN:
                x, self.y = MARGIN, self.y + 20
            mark(x + 6, self.y - 4.5, at, colour)
            self.text(x + 18, self.y, name)
            x += 18 + text_width(name) + 16

    def svg(self):
        height = self.y + 26
        self.text(MARGIN, height - 10, self.note, "faint", size=11)
        light, dark = (
            "".join(f".{name}{{color:{colours[mode]}}}" for name, colours in COLOURS.items())
            for mode in (0, 1)
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif" font-size="{SIZE}" role="img" '
            'aria-labelledby="title">',
            f'<title id="title">{escape(self.title, quote=False)}</title>',
            f"<style>{light}",
            f"@media (prefers-color-scheme: dark){{{dark}}}",
            "text,rect,circle,polygon{fill:currentColor}.line{fill:none;stroke:currentColor}</style>",
            f'<rect class="background" width="{WIDTH}" height="{height:.0f}"/>',
        )
        return "\n".join([*head, *self.parts, "</svg>", ""])


class Axis:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    def __init__(self, low, high, start, end, logarithmic=False):
        self.low, self.high, self.start, self.end, self.logarithmic = low, high, start, end, logarithmic

    def at(self, value):
        if self.logarithmic:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, wanted=5):
        """Multiples of 1, 2 or 5 times a power of ten; on a logarithmic axis, these numbers themselves."""
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            every = [step * 10.0**power for power in powers for step in (1, 2, 5)]
            return [tick for tick in every if self.low * 0.999 <= tick <= self.high]
        power = 10 ** math.floor(math.log10((self.high - self.low) / wanted))
        step = next(step * power for step in (1, 2, 5, 10) if (self.high - self.low) / (step * power) <= wanted)
        return [self.low + step * at for at in range(int((self.high - self.low) / step + 1e-9) + 1)]


def plain(value):
    return f"{value:,.0f}"


def values_of(rows):
    return [value for _, values in rows for value in values or [] if isinstance(value, (int, float))]


def bars(title, note, unit, series, rows, form=plain, stacked=False):
    """Horizontal bars. `series` are (name, colour), `rows` are (label, a value for each series).

    A value is a number, a text that is shown in place of a bar, or None. A row without values is a heading. If
    `stacked`, the bars of a row continue each other, and one more value is shown at their end.
    """
    canvas = Canvas(title, note)
    canvas.legend(series, lambda x, y, _, colour: canvas.rect(x - 6, y - 6, 12, 12, colour))
    left = MARGIN + 12 + max(text_width(label) for label, values in rows if values)
    highest = max(sum(values[: len(series)]) for _, values in rows if values) if stacked else max(values_of(rows))
    axis = Axis(0, highest, left, WIDTH - MARGIN - text_width(form(highest)) - 8)
    behind, top = len(canvas.parts), canvas.y + 12
    y = top + 4
    for label, values in rows:
        if not values:
            y = heading(canvas, y, label)
            continue
        shown = [(at, value) for at, value in enumerate(values) if value is not None]
        height = BAR if stacked else len(shown) * (BAR + GAP) - GAP
        canvas.text(left - 10, y + height / 2 + 4.5, label, anchor="end")
        if stacked:
            stack(canvas, axis, y, series, values, form)
        else:
            for place, (at, value) in enumerate(shown):
                bar(canvas, axis, y + place * (BAR + GAP), series[at][1], value, form)
        y += height + (7 if stacked else ROW_GAP)
    scale(canvas, axis, behind, top, y, unit, plain)
    return canvas.svg()


def heading(canvas, y, label):
    """A heading that hides the grid behind it. Returns its end."""
    canvas.rect(MARGIN, y, text_width(label) + 8, HEADING, "background")
    canvas.text(MARGIN, y + 16, label, weight=600)
    return y + HEADING


def bar(canvas, axis, y, colour, value, form):
    if isinstance(value, str):
        canvas.text(axis.start + 4, y + 11.5, value, "faint", size=12)
        return
    end = max(axis.at(value), axis.start + 1.5)
    canvas.rect(axis.start, y, end - axis.start, BAR, colour)
    canvas.text(end + 5, y + 11.5, form(value), size=12)


def stack(canvas, axis, y, series, values, form):
    below = 0
    for (_, colour), value in zip(series, values):
        canvas.rect(axis.at(below), y, axis.at(below + value) - axis.at(below), BAR, colour)
        below += value
    canvas.text(axis.at(below) + 5, y + 11.5, form(values[-1]), size=12)


def dots(title, note, unit, series, rows, form):
    """Dots on a logarithmic axis, with rows as in `bars`."""
    canvas = Canvas(title, note)
    canvas.legend(series, canvas.dot)
    left = MARGIN + 12 + max(text_width(label) for label, values in rows if values)
    every = values_of(rows)
    axis = Axis(10 ** math.floor(math.log10(min(every))), max(every) * 1.25, left + 8, WIDTH - MARGIN - 24, True)
    behind, top = len(canvas.parts), canvas.y + 12
    y = top + 2
    for label, values in rows:
        if not values:
            y = heading(canvas, y, label)
            continue
        middle = y + DOT_ROW / 2
        canvas.text(left - 10, middle + 4.5, label, anchor="end")
        numbers = [axis.at(value) for value in values if isinstance(value, (int, float))]
        if numbers:
            canvas.line([(min(numbers), middle), (max(numbers), middle)], "grey", 1.5)
        for at, value in enumerate(values):
            if isinstance(value, str):
                canvas.rect(axis.start - 8, y, text_width(value) + 16, DOT_ROW, "background")
                canvas.text(axis.start, middle + 4.5, value, "faint", size=12)
            elif value is not None:
                canvas.dot(axis.at(value), middle, at, series[at][1])
        y += DOT_ROW
    scale(canvas, axis, behind, top, y, unit, form)
    return canvas.svg()


def scale(canvas, axis, behind, top, bottom, unit, form):
    """The horizontal axis below the rows, and its grid behind them. Moves `canvas.y` below the axis."""
    rows, canvas.parts = canvas.parts[behind:], canvas.parts[:behind]
    for tick in axis.ticks():
        canvas.line([(axis.at(tick), top), (axis.at(tick), bottom)], "grid")
        canvas.text(axis.at(tick), bottom + 16, form(tick), "faint", "middle", size=12)
    canvas.parts += rows
    canvas.text(axis.end, bottom + 34, unit, "faint", "end", size=12)
    canvas.y = bottom + 34


def lines(title, note, units, series, samples, height=250):
    """Lines over time. `samples` are (x, a value for each series); the last value of each series is shown."""
    canvas = Canvas(title, note)
    canvas.legend(series, lambda x, y, _, colour: canvas.line([(x - 6, y), (x + 6, y)], colour, 3))
    highest = max(max(values) for _, values in samples)
    left = MARGIN + text_width(plain(highest)) + 8
    x = Axis(0, samples[-1][0], left, WIDTH - MARGIN - text_width(plain(highest)) - 8)
    canvas.text(MARGIN, canvas.y + 26, units[1], "faint", size=12)
    top = canvas.y + 38
    y = Axis(0, highest, top + height, top)
    for tick in y.ticks():
        canvas.line([(x.start, y.at(tick)), (x.end, y.at(tick))], "grid")
        canvas.text(left - 8, y.at(tick) + 4.5, plain(tick), "faint", "end", size=12)
    for tick in x.ticks(8):
        canvas.line([(x.at(tick), y.start), (x.at(tick), y.start + 5)], "faint")
        canvas.text(x.at(tick), y.start + 20, plain(tick), "faint", "middle", size=12)
    for at, (_, colour) in enumerate(series):
        canvas.line([(x.at(time), y.at(values[at])) for time, values in samples], colour, 2.5)
        last = samples[-1][1][at]
        canvas.text(x.end + 8, y.at(last) + 4.5, plain(last), colour, weight=600)
    canvas.text(x.end, y.start + 38, units[0], "faint", "end", size=12)
    canvas.y = y.start + 38
    return canvas.svg()
