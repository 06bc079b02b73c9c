"""A fork storm: whether processes that live a millisecond are named, and memory stays."""

from __future__ import annotations

import subprocess
import time

from harness import Opd, table


def main(processes: int = 5000, rate: int = 999) -> None:
    """Run /bin/true that often and print what was named."""
    with Opd("-e", f"cpu-clock:{rate}hz") as opd:
        before = opd.ask("status")["pss_bytes"]
        started = time.monotonic()
        script = f"for i in $(seq {processes}); do /bin/true; done"
        subprocess.run(["bash", "-c", script], check=True)
        wall = time.monotonic() - started
        opd.ask("dump")
        answer = opd.ask("report", "--sort", "comm,image,symbol,mode", "--top", "0")
        after = opd.ask("status")["pss_bytes"]
    user = [row for row in answer["rows"] if row["mode"] == "user"]
    rows = []
    for title, chosen in (
        ("all user samples", user),
        ("of bash and true", [row for row in user if row["comm"] in ("bash", "true")]),
    ):
        total = sum(row["samples"] for row in chosen)
        image = sum(row["samples"] for row in chosen if row["image"] != "[unknown]")
        named = sum(
            row["samples"]
            for row in chosen
            if row["symbol"] != "[unknown]" and "!0x" not in row["symbol"]
        )
        ranged = sum(row["samples"] for row in chosen if "!0x" in row["symbol"])
        rows.append(
            [
                title,
                str(total),
                f"{100 * image / max(total, 1):.2f} %",
                f"{100 * named / max(total, 1):.2f} %",
                f"{100 * ranged / max(total, 1):.2f} %",
            ]
        )
    table(
        f"{processes} x /bin/true in {wall:.1f} s, {rate} Hz",
        ["", "samples", "with image", "leaf by symbol", "leaf by function range"],
        rows,
    )
    print(f"  PSS before {before / 1e6:.1f} MB, after {after / 1e6:.1f} MB; {answer['quality']}")
