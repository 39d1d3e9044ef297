"""Line and bar charts as SVG, without dependencies."""
import html
import math

COLORS = ["#2563c9", "#c2570c", "#12805c", "#a3358c", "#6a55d8", "#8d6a10", "#c4314b", "#3d7089", "#5b6b2f", "#1b1f24"]
WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 50, 60


def bytes_text(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count /= 1024
    return f"{count:g} GiB"


def time_text(microseconds):
    return f"{microseconds:g} us" if microseconds < 1000 else f"{microseconds / 1000:g} ms"


def ticks(low, high, about=6):
    """Returns round numbers between low and high."""
    raw = max(high - low, 1e-9) / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def spread(labels, distance):
    """Moves labels (wanted position, text, color) apart so that none covers another."""
    placed = []
    for wanted, *rest in sorted(labels):
        placed.append((max(wanted, placed[-1][0] + distance) if placed else wanted, *rest))
    excess = max(0, placed[-1][0] - (HEIGHT - BOTTOM)) if placed else 0
    return [(position - excess, *rest) for position, *rest in placed]


def draw(title, curves, x, y, x_ticks, y_ticks, more=(), emphasis=()):
    """Returns the picture of curves {name: [(x, y)]}. `x` and `y` map a value to a position between 0 and 1; ticks are
    (value, text)."""
    def across(value):
        return LEFT + x(value) * (WIDTH - LEFT - RIGHT)

    def up(value):
        return HEIGHT - BOTTOM - y(value) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="system-ui, sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="26" font-size="15" font-weight="600" fill="#1b1f24">{html.escape(title)}</text>', *more]
    for value, text in y_ticks:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value):.1f}" y2="{up(value):.1f}" stroke="#e3e6eb"/>')
        out.append(f'<text x="{LEFT - 8}" y="{up(value) + 4:.1f}" text-anchor="end" fill="#5d6673">{text}</text>')
    for value, text in x_ticks:
        out.append(f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="#5d6673">{text}</text>')
    labels = []
    for number, (name, curve) in enumerate(curves.items()):
        color, curve = COLORS[number % len(COLORS)], sorted(curve)
        dash = ' stroke-dasharray="6 3"' if number >= len(COLORS) else ""
        if len(curve) > 1:
            path = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in curve)
            out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{3.2 if name in emphasis else 1.7}"{dash}/>')
        out += [f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="3" fill="{color}"/>' for a, b in curve]
        labels.append((up(curve[-1][1]) + 4, name, color))
    for position, name, color in spread(labels, 15):
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{position:.1f}" fill="{color}">{html.escape(name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def line_chart(title, x_title, y_title, curves, emphasis=()):
    """Returns a chart with linear axes; a curve of a single point is a dot. Curves in `emphasis` are thicker."""
    points = [point for curve in curves.values() for point in curve]
    left, high = min(p[0] for p in points), max(p[1] for p in points) * 1.05
    right = max(max(p[0] for p in points), left + 1e-9)
    titles = [f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle" fill="#5d6673">{html.escape(x_title)}</text>',
              f'<text x="{LEFT}" y="{TOP - 6}" text-anchor="start" fill="#5d6673">{html.escape(y_title)}</text>']
    return draw(title, curves, lambda value: (value - left) / (right - left), lambda value: value / high,
                [(value, f"{value:g}") for value in ticks(left, right)], [(value, f"{value:g}") for value in ticks(0, high)], titles, emphasis)


def times_by_size(title, curves):
    """Returns a chart of microseconds by bytes, with logarithmic axes."""
    points = [point for curve in curves.values() for point in curve]
    sizes, times = sorted({p[0] for p in points}), [p[1] for p in points]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log2(sizes[0]), max(math.log2(sizes[-1]), math.log2(sizes[0]) + 1)
    return draw(title, curves, lambda size: (math.log2(size) - first) / (last - first),
                lambda time: (math.log10(time) - low) / max(high - low, 1),
                [(size, bytes_text(size)) for size in sizes[::max(1, len(sizes) // 8)]],
                [(10.0 ** power, time_text(10.0 ** power)) for power in range(low, high + 1)])


def bar_chart(title, groups):
    """Returns horizontal bars by group: [(heading, [(label, value, text)])]. Bars are as long as their values, relative to
    the largest one of their group. The first bar of each group is emphasised."""
    label_width, row, line = 230, 26, []
    y = TOP
    for heading, bars in groups:
        y += 24
        line.append(f'<text x="{LEFT - 50}" y="{y}" font-weight="600" fill="#1b1f24">{html.escape(heading)}</text>')
        longest = max(value for _, value, _ in bars)
        for number, (label, value, text) in enumerate(bars):
            y += row
            length = (WIDTH - label_width - 190) * value / longest
            line += [f'<text x="{label_width - 10}" y="{y}" text-anchor="end" fill="#1b1f24">{html.escape(label)}</text>',
                     f'<rect x="{label_width}" y="{y - 13}" width="{max(length, 1):.1f}" height="17" fill="{"#b8c0cc" if number else COLORS[0]}"/>',
                     f'<text x="{label_width + length + 8:.1f}" y="{y}" fill="#1b1f24">{html.escape(text)}</text>']
        y += 8
    height = y + 20
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
                      'font-family="system-ui, sans-serif" font-size="14">', f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
                      f'<text x="{LEFT - 50}" y="32" font-size="16" font-weight="600" fill="#1b1f24">{html.escape(title)}</text>',
                      *line, "</svg>"]) + "\n"
