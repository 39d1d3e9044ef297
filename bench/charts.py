"""Line and bar charts as SVG, without dependencies, readable on light and dark pages and on a phone."""
import html
import math

# Colours on light and on dark pages.
COLORS = [("#2563c9", "#6ea3f7"), ("#c2570c", "#f0965a"), ("#12805c", "#45c496"), ("#a3358c", "#e07fcb"), ("#6a55d8", "#a597ff"),
          ("#8d6a10", "#d9b04a"), ("#c4314b", "#f0717f"), ("#3d7089", "#7fb7d2"), ("#5b6b2f", "#a9bd6f"), ("#4b5563", "#c4cad3")]
DASHES = ["", "9 4", "3 3", "12 4 3 4"]
WIDTH, PLOT_HEIGHT = 640, 300
LEFT, RIGHT, TOP, BELOW = 78, 20, 76, 52
FONT, ROW = 15, 24


def style():
    light = " ".join(f"--c{number}: {colors[0]};" for number, colors in enumerate(COLORS))
    dark = " ".join(f"--c{number}: {colors[1]};" for number, colors in enumerate(COLORS))
    return ("<style>\n"
            f"svg {{ --page: #ffffff; --text: #1b1f24; --muted: #5d6673; --grid: #e3e6eb; {light} }}\n"
            f"@media (prefers-color-scheme: dark) {{ svg {{ --page: #161b22; --text: #e6e9ee; --muted: #9aa4b2; --grid: #323a45; {dark} }} }}\n"
            "text { fill: var(--text); } .muted { fill: var(--muted); } .page { fill: var(--page); } .grid { stroke: var(--grid); }\n"
            "polyline { fill: none; }\n"
            "</style>")


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


def lines_of(text, width):
    """Breaks a text into lines of at most so many characters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def legend(curves, looks, top):
    """Returns a legend below the plot, two entries a row, from the highest curve to the lowest, and its height."""
    ordered = sorted(curves, key=lambda name: -sum(y for _, y in curves[name]) / len(curves[name]))
    out = []
    for place, name in enumerate(ordered):
        x, y = LEFT + (place % 2) * (WIDTH - LEFT - RIGHT) / 2, top + place // 2 * ROW
        out.append(f'<line x1="{x:.0f}" x2="{x + 34:.0f}" y1="{y - 5}" y2="{y - 5}" {looks[name]}/>')
        out.append(f'<text x="{x + 42:.0f}" y="{y}">{html.escape(name)}</text>')
    return out, -(-len(ordered) // 2) * ROW


def draw(title, curves, x, y, x_ticks, y_ticks, x_title="", y_title="", emphasis=()):
    """Returns the picture of curves {name: [(x, y)]}. `x` and `y` map a value to a position between 0 and 1; ticks are
    (value, text). Curves in `emphasis` are bold and lie on the others."""
    heading = lines_of(title, 62)
    top = TOP + (len(heading) - 1) * 22

    def across(value):
        return LEFT + x(value) * (WIDTH - LEFT - RIGHT)

    def up(value):
        return top + (1 - y(value)) * PLOT_HEIGHT

    looks = {}
    for number, name in enumerate(curves):
        bold = name in emphasis
        dash = DASHES[(number // 3 + number) % len(DASHES)] if not bold else ""
        looks[name] = (f'style="stroke: var(--c{number % len(COLORS)})" stroke-width="{3.6 if bold else 1.8}"'
                       + (f' stroke-dasharray="{dash}"' if dash else "") + (' opacity="0.75"' if emphasis and not bold else ""))
    below = top + PLOT_HEIGHT
    entries, entries_height = legend(curves, looks, below + BELOW + (22 if x_title else 0))
    height = below + BELOW + entries_height + (22 if x_title else 0)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           f'font-family="system-ui, sans-serif" font-size="{FONT}">', f"<title>{html.escape(title)}</title>", style(),
           f'<rect class="page" width="{WIDTH}" height="{height}"/>']
    out += [f'<text x="16" y="{28 + 22 * number}" font-size="17" font-weight="600">{html.escape(line)}</text>' for number, line in enumerate(heading)]
    out.append(f'<text class="muted" x="16" y="{top - 16}">{html.escape(y_title)}</text>')
    out.append(f'<text class="muted" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{below + 46}" text-anchor="middle">{html.escape(x_title)}</text>')
    for value, text in y_ticks:
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value):.1f}" y2="{up(value):.1f}"/>')
        out.append(f'<text class="muted" x="{LEFT - 8}" y="{up(value) + 5:.1f}" text-anchor="end">{text}</text>')
    for value, text in x_ticks:
        out.append(f'<text class="muted" x="{across(value):.1f}" y="{below + 22}" text-anchor="middle">{text}</text>')
    for name, curve in sorted(curves.items(), key=lambda item: item[0] in emphasis):
        curve = sorted(curve)
        if len(curve) > 1:
            path = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in curve)
            out.append(f'<polyline points="{path}" {looks[name]}/>')
        fill = f"var(--c{list(curves).index(name) % len(COLORS)})"
        out += [f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="{4 if name in emphasis else 3}" style="fill: {fill}"/>' for a, b in curve]
    return "\n".join([*out, *entries, "</svg>"]) + "\n"


def line_chart(title, x_title, y_title, curves, emphasis=()):
    """Returns a chart with linear axes that begin near the smallest value; a curve of a single point is a dot. Curves in
    `emphasis` are bold."""
    points = [point for curve in curves.values() for point in curve]
    left, right = min(p[0] for p in points), max(p[0] for p in points)
    right = max(right, left + 1e-9)
    low, high = min(p[1] for p in points), max(p[1] for p in points)
    room = 0.08 * ((high - low) or high or 1)
    low, high = (max(0, low - room) if low >= 0 else low - room), high + room
    return draw(title, curves, lambda value: (value - left) / (right - left), lambda value: (value - low) / (high - low),
                [(value, f"{value:g}") for value in ticks(left, right)], [(value, f"{value:,g}") for value in ticks(low, high)],
                x_title, y_title, emphasis)


def times_by_size(title, curves, emphasis=()):
    """Returns a chart of microseconds by bytes, with logarithmic axes. Curves in `emphasis` are bold."""
    points = [point for curve in curves.values() for point in curve]
    sizes, times = sorted({p[0] for p in points}), [p[1] for p in points]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log2(sizes[0]), max(math.log2(sizes[-1]), math.log2(sizes[0]) + 1)
    return draw(title, curves, lambda size: (math.log2(size) - first) / (last - first),
                lambda time: (math.log10(time) - low) / max(high - low, 1),
                [(size, bytes_text(size)) for size in sizes[::max(1, len(sizes) // 6)]],
                [(10.0 ** power, time_text(10.0 ** power)) for power in range(low, high + 1)], "size", "time", emphasis)


def bar_chart(title, groups):
    """Returns horizontal bars by group: [(heading, [(label, value, text)])]. Bars are as long as their values, relative to
    the largest one of their group. The first bar of each group is emphasised."""
    heading_lines = lines_of(title, 62)
    label_width, row, lines, y = 230, 26, [], 18 + 22 * len(heading_lines)
    for heading, bars in groups:
        y += 24
        lines.append(f'<text x="16" y="{y}" font-weight="600">{html.escape(heading)}</text>')
        longest = max(value for _, value, _ in bars)
        for number, (label, value, text) in enumerate(bars):
            y += row
            length = (WIDTH - label_width - 130) * value / longest
            look = "fill: var(--muted); opacity: 0.45" if number else "fill: var(--c0)"
            lines += [f'<text x="{label_width - 10}" y="{y}" text-anchor="end">{html.escape(label)}</text>',
                      f'<rect x="{label_width}" y="{y - 13}" width="{max(length, 1):.1f}" height="17" style="{look}"/>',
                      f'<text x="{label_width + length + 8:.1f}" y="{y}">{html.escape(text)}</text>']
        y += 8
    height = y + 20
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
                      f'font-family="system-ui, sans-serif" font-size="{FONT}">', f"<title>{html.escape(title)}</title>", style(),
                      f'<rect class="page" width="{WIDTH}" height="{height}"/>',
                      *[f'<text x="16" y="{28 + 22 * number}" font-size="17" font-weight="600">{html.escape(line)}</text>'
                        for number, line in enumerate(heading_lines)], *lines, "</svg>"]) + "\n"
