"""The Gantt chart of pages: an SVG element whose bars say what they are when pointed at."""

from __future__ import annotations

from html import escape

from dovetail.model import Record, Result
from dovetail.report import wording
from dovetail.report.gantt import ink_on
from dovetail.report.intervals import label
from dovetail.report.lanes import Bar, Lanes, Tones, failed, lanes, tick_text, ticks

__all__ = ["gantt_svg"]

WIDTH = 1000


def gantt_svg(result: Result) -> str:
    """The chart and its legend; for clusters of some dozens of units, O(bars)."""
    made = lanes(result)
    tones = Tones(result.records)
    left = 14 + 6.6 * max((len(name) for name in made.names), default=0)
    inner = WIDTH - left - 46
    lane = 30 if len(made.names) <= 16 else 20 if len(made.names) <= 32 else 14
    height = lane * len(made.names) + 26
    parts = [
        f'<svg class="gantt" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(f"Gantt chart of {label(result)}")}" xmlns="http://www.w3.org/2000/svg">'
    ]
    for row, (name, bars, busy) in enumerate(zip(made.names, made.bars, made.busy, strict=True)):
        top = row * lane
        base = f"{top + lane / 2 + 4:.0f}"
        parts.append(
            f'<text class="lane" x="{left - 8:.0f}" y="{base}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="ground" x="{left:.0f}" y="{top + 2}" width="{inner:.0f}" height="{lane - 4}"/>'
        )
        parts += [_bar(bar, (top, lane), (left, inner), made, tones) for bar in bars]
        parts.append(f'<text class="busy" x="{left + inner + 6:.0f}" y="{base}">{busy:.0%}</text>')
    parts.append(_axis(made, left, inner, lane * len(made.names)))
    parts.append("</svg>")
    entries = "".join(
        f'<li><span class="swatch" style="background:{colour}"></span>{escape(name)}</li>'
        for name, colour in tones.legend()
    )
    if any(failed(r) for r in result.records):
        entries += '<li><span class="swatch failed"></span>did not complete</li>'
    return f'<div class="chart">{"".join(parts)}</div><ul class="legend">{entries}</ul>'


def _bar(bar: Bar, rows: tuple[int, int], across: tuple[float, float], made: Lanes, tones: Tones) -> str:
    (top, lane), (left, inner) = rows, across
    span = made.last - made.first or 1.0
    x = left + (bar.start - made.first) / span * inner
    wide = max(0.6, (bar.end - bar.start) / span * inner)
    tall = (lane - 4) * (bar.high - bar.low)
    y = top + lane - 2 - bar.low * (lane - 4) - tall
    colour = tones.of(bar.record)
    mark = ' class="failed"' if failed(bar.record) else ""
    name = wording.printable(bar.record.job.id)
    text = ""
    size = min(12.0, tall * 0.72)
    if size >= 7 and len(name) * size * 0.6 < wide - 6:
        text = (
            f'<text class="name" x="{x + wide / 2:.1f}" y="{y + tall / 2 + size * 0.35:.1f}" '
            f'font-size="{size:.1f}" fill="{ink_on(colour)}">{escape(name)}</text>'
        )
    return (
        f'<g{mark}><title>{escape(about(bar.record))}</title><rect class="bar" x="{x:.1f}" y="{y:.1f}" '
        f'width="{wide:.1f}" height="{tall:.1f}" fill="{colour}"/>{text}</g>'
    )


def about(record: Record) -> str:
    """What became of a job, in a few lines."""
    lines = [f"{wording.printable(record.job.id)}: {record.job.app.name}"]
    if record.implementation is not None:
        lines[0] += f" ({record.implementation.name})"
    lines.append(f"{record.state}, from {_at(record.start)} to {_at(record.end)}")
    lines.append(f"ran {wording.seconds(record.run_time)}")
    if record.predicted is not None:
        lines[-1] += f", predicted {wording.seconds(record.predicted.expected)} ({record.predicted.basis})"
    if record.start is not None:
        lines.append(f"waited {wording.seconds(record.start - record.job.submit_time)}")
    return "\n".join(lines)


def _at(value: float | None) -> str:
    return wording.seconds(value).split(" (")[0]


def _axis(made: Lanes, left: float, inner: float, top: int) -> str:
    span = made.last - made.first
    if span <= 0:
        return ""
    at = ticks(made.first, made.last, 9)
    step = at[1] - at[0] if len(at) > 1 else span
    parts = [
        f'<line class="axis" x1="{left:.0f}" x2="{left + inner:.0f}" y1="{top + 2:.0f}" y2="{top + 2:.0f}"/>'
    ]
    for tick in at:
        x = left + (tick - made.first) / span * inner
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 2}" y2="{top + 6}"/>')
        text = tick_text(tick - made.first, step)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{top + 19}">{text}</text>')
    return "".join(parts)
