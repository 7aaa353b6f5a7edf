"""A bar chart as SVG, for the page of results."""

from __future__ import annotations

from html import escape

BAR, GAP, LABEL, WIDTH = 22, 8, 300, 460
OURS, OTHERS = "#2563a8", "#b3b9c1"


def bars(title, figures, is_ours):
    """Horizontal bars of figures by name, longest first; those of ``is_ours`` in another colour."""
    ordered = sorted(figures.items(), key=lambda item: -item[1])
    longest = ordered[0][1]
    height = 40 + len(ordered) * (BAR + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 100}" height="{height}"'
        ' font-family="sans-serif" font-size="13">',
        f'<text x="0" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    for at, (name, figure) in enumerate(ordered):
        y = 34 + at * (BAR + GAP)
        colour = OURS if is_ours(name) else OTHERS
        length = max(1, round(WIDTH * figure / longest))
        lines += [
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{length}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{LABEL + length + 6}" y="{y + 15}">{figure:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])
