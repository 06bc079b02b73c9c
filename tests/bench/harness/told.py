"""What opd itself says of its losses and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.harness.section import Context


def losses(context: Context, key: str, status: dict[str, Any]) -> None:
    """Add the samples, the losses by reason, what was degraded, and what was refused."""
    quality = status["quality"]
    context.figure(
        f"{key}.hz_effective", quality["hz_effective"], "Hz", "the governor may lower it"
    )
    context.figure(f"{key}.samples", status["samples"], "samples")
    for reason, count in quality["lost"].items():
        context.figure(f"{key}.lost.{reason}", count, "samples")
    samples = max(int(status["samples"]), 1)
    for reason in ("no_mapping", "unnamed"):
        share = 100 * quality["degraded"][reason] / samples
        context.figure(f"{key}.{reason}", share, "%", "of samples")
    context.figure(f"{key}.windows_missing", quality["windows"]["missing"], "windows")
    drain = status["drain"]
    context.figure(f"{key}.sideband_lost", drain["sideband_lost"], "records")
    for what, count in drain["refused"].items():
        if count:
            context.figure(f"{key}.refused.{what}", count, "")
