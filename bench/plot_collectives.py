#!/usr/bin/env python3
"""Draws what `rondo bench collectives --json FILE` measured: time by size, both axes logarithmic, a line for each
algorithm and channel, one picture for each operation and number of ranks. Writes SVG and needs nothing but Python.

    rondo bench collectives --algorithm all --channel shm,tcp --ranks 4 --peers --json algorithms.json
    bench/plot_collectives.py algorithms.json docs/images/algorithms --channel shm
"""
import argparse
import html
import json
import math
import pathlib
import sys

COLORS = ["#2563c9", "#c2570c", "#12805c", "#a3358c", "#6a55d8", "#8d6a10", "#c4314b", "#3d7089", "#5b6b2f", "#1b1f24"]
WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 220, 50, 50


def bytes_text(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count /= 1024
    return f"{count:g} GiB"


def time_text(microseconds):
    return f"{microseconds:g} us" if microseconds < 1000 else f"{microseconds / 1000:g} ms"


def title_of(row):
    if row["system"] != "rondo":
        return f"{row['system']} {row['channel']}"
    if row["algorithm"] == "auto":
        through_work = row["registered"] and row["operation"] == "all_reduce" and row.get("call") == "work"
        return "rondo's engine" + (", registered" if row["registered"] else "") + (", Work" if through_work else "")
    return f"{row['algorithm']} {row['channel']}"


def curves_of(rows):
    """{title: [(bytes, p50 in us)]}, in the order of the rows."""
    curves = {}
    for row in rows:
        if row["correct"] and row["p50_us"] > 0:
            curves.setdefault(title_of(row), []).append((row["bytes"], row["p50_us"]))
    return {title: sorted(points) for title, points in curves.items()}


def spread(labels, distance):
    """Moves labels (wanted position, text, color), sorted, apart so that none covers another."""
    placed = []
    for wanted, *rest in sorted(labels):
        placed.append((max(wanted, placed[-1][0] + distance) if placed else wanted, *rest))
    excess = max(0, placed[-1][0] - (HEIGHT - BOTTOM)) if placed else 0
    return [(position - excess, *rest) for position, *rest in placed]


def picture(title, curves):
    points = [point for curve in curves.values() for point in curve]
    sizes, times = [p[0] for p in points], [p[1] for p in points]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log2(min(sizes)), max(math.log2(max(sizes)), math.log2(min(sizes)) + 1)

    def x(size):
        return LEFT + (math.log2(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(time):
        return HEIGHT - BOTTOM - (math.log10(time) - low) / max(high - low, 1) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="system-ui, sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="26" font-size="15" font-weight="600" fill="#1b1f24">{html.escape(title)}</text>']
    for power in range(low, high + 1):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(10 ** power):.1f}" y2="{y(10 ** power):.1f}" stroke="#e3e6eb"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(10 ** power) + 4:.1f}" text-anchor="end" fill="#5d6673">{time_text(10.0 ** power)}</text>')
    shown = sorted(set(sizes))
    for size in shown[::max(1, len(shown) // 8)]:
        out.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="#5d6673">{bytes_text(size)}</text>')
    labels = []
    for number, (name, curve) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        dash = ' stroke-dasharray="6 3"' if number >= len(COLORS) else ""
        path = " ".join(f"{x(size):.1f},{y(time):.1f}" for size, time in curve)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"{dash}/>')
        labels.append((y(curve[-1][1]) + 4, name, color))
    for position, name, color in spread(labels, 15):
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{position:.1f}" fill="{color}">{html.escape(name)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="what --json wrote")
    parser.add_argument("prefix", help="pictures are PREFIX-OPERATION-RANKS.svg")
    parser.add_argument("--channel", help="only algorithms over this channel, beside the engine and the peers")
    arguments = parser.parse_args()
    rows = json.loads(pathlib.Path(arguments.results).read_text())
    if arguments.channel:
        rows = [row for row in rows if row["algorithm"] == "auto" or row["channel"] == arguments.channel]
    groups = {}
    for row in rows:
        if row["operation"] != "barrier":
            groups.setdefault((row["operation"], row["ranks"]), []).append(row)
    if not groups:
        sys.exit(f"{arguments.results} has no rows to draw")
    for (operation, ranks), group in groups.items():
        curves = curves_of(group)
        if not curves:
            sys.exit(f"{arguments.results}: no correct result of {operation}")
        target = pathlib.Path(f"{arguments.prefix}-{operation}-{ranks}.svg")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(picture(f"{operation}, {ranks} ranks on one host, {group[0]['dtype']}: p50 by size", curves))
        print(target)


if __name__ == "__main__":
    main()
