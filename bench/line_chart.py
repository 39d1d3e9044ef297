"""A chart of lines with linear axes as SVG; needs nothing but Python."""
import html
import math

from plot_collectives import COLORS, spread

WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 50, 60


def ticks(low, high, about=6):
    """Round numbers between low and high."""
    raw = max(high - low, 1e-9) / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def chart(title, x_title, y_title, curves, emphasis=()):
    """`curves`: {name: [(x, y)]}; one with a single point is a dot. Those in `emphasis` are drawn thicker."""
    points = [point for curve in curves.values() for point in curve]
    left, right = min(p[0] for p in points), max(p[0] for p in points)
    low, high = 0, max(p[1] for p in points) * 1.05
    right = max(right, left + 1e-9)

    def x(value):
        return LEFT + (value - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def y(value):
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="system-ui, sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="26" font-size="15" font-weight="600" fill="#1b1f24">{html.escape(title)}</text>',
           f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle" fill="#5d6673">{html.escape(x_title)}</text>',
           f'<text x="{LEFT}" y="{TOP - 6}" text-anchor="start" fill="#5d6673">{html.escape(y_title)}</text>']
    for value in ticks(low, high):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e3e6eb"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#5d6673">{value:g}</text>')
    for value in ticks(left, right):
        out.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="#5d6673">{value:g}</text>')
    labels = []
    for number, (name, curve) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        curve = sorted(curve)
        if len(curve) > 1:
            path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in curve)
            out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{3.2 if name in emphasis else 1.6}"/>')
        out += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{color}"/>' for a, b in curve]
        labels.append((y(curve[-1][1]) + 4, name, color))
    for position, name, color in spread(labels, 15):
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{position:.1f}" fill="{color}">{html.escape(name)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
