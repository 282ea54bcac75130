"""A plot of resources over time, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.soak.resources import Resources

WIDTH, HEIGHT, LEFT, GAP = 820, 92, 150, 22
MEBI = 1 << 20
PANELS: Sequence[tuple[str, Callable[[Resources], float | None]]] = (
    ("server, MiB", lambda r: r.server_bytes / MEBI),
    ("Spark's JVM, MiB", lambda r: r.jvm_bytes / MEBI),
    ("live objects of the JVM, MiB", lambda r: None if r.jvm_live_bytes is None else r.jvm_live_bytes / MEBI),
    ("Spark's blocks", lambda r: r.jvm_blocks),
    ("log, MiB", lambda r: r.log_bytes / MEBI),
    ("files", lambda r: r.files),
    ("descriptors of the server", lambda r: r.server_descriptors),
    ("threads of the server", lambda r: r.server_threads),
    ("threads of the JVM", lambda r: r.jvm_threads),
)


def plot(samples: Sequence[tuple[float, Resources]], sessions: int) -> str:
    """One panel for each resource, from 0 to its maximum. `samples`: seconds and resources."""
    end = max((seconds for seconds, _ in samples), default=1.0)
    height = len(PANELS) * (HEIGHT + GAP) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (name, value) in enumerate(PANELS):
        top = number * (HEIGHT + GAP) + 10
        points = [(seconds, found) for seconds, sample in samples if (found := value(sample)) is not None]
        parts.append(_panel(name, points, end, top))
    caption = f"0 to {end / 60:.0f} minutes, {sessions} sessions; each panel begins at 0"
    parts.append(f'<text x="{LEFT}" y="{height - 10}">{caption}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(name: str, points: Sequence[tuple[float, float]], end: float, top: float) -> str:
    highest = max((value for _, value in points), default=0.0) or 1.0
    bottom = top + HEIGHT
    line = " ".join(
        f"{LEFT + seconds / end * WIDTH:.1f},{bottom - value / highest * HEIGHT:.1f}" for seconds, value in points
    )
    return (
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="#f6f8fa" stroke="#d0d7de"/>\n'
        f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{highest:,.0f}</text>\n'
        f'<text x="{LEFT - 8}" y="{top + 34}" text-anchor="end" font-size="10">{name}</text>\n'
        f'<polyline points="{line}" fill="none" stroke="#0969da" stroke-width="1.5"/>'
    )
