"""Streams of addresses that were hit, in the order they were: recorded ones and Zipf's.

A stream's file (``tests/data/streams/NAME.stream``) is the eight bytes
``OPDADDR1`` and then, deflated (zlib), unsigned LEB128 numbers:

    rate in Hz, CPUs,
    distinct addresses, each as zigzag difference from the one before,
        the most frequent first,
    for each CPU: hits, then for each hit the number of its address

Addresses are bytes from the kernel's ``_stext``, so that no file tells where a
kernel was loaded.
"""

from __future__ import annotations

import itertools
import random
import zlib
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAGIC = b"OPDADDR1"
FOLDER = Path(__file__).parents[2] / "data/streams"
LARGEST = 16 << 20  # bytes of one stream, inflated


@dataclass(frozen=True)
class Stream:
    """Hits of each CPU in their order, as offsets from ``_stext``; ``rate`` in Hz, 0: none."""

    name: str
    rate: int
    cpus: list[list[int]]

    @property
    def hits(self) -> int:
        """Give how many there are on all CPUs."""
        return sum(map(len, self.cpus))

    def slots(self, shift: int) -> Counter[int]:
        """Count the hits of every slot of a profile buffer with steps of ``1 << shift`` bytes."""
        return Counter(address >> shift for cpu in self.cpus for address in cpu)


def encode(stream: Stream) -> bytes:
    """Give the file of a stream."""
    counted = Counter(itertools.chain.from_iterable(stream.cpus))
    addresses = [address for address, _ in sorted(counted.items(), key=lambda i: (-i[1], i[0]))]
    number = {address: at for at, address in enumerate(addresses)}
    values = [stream.rate, len(stream.cpus), len(addresses)]
    before = 0
    for address in addresses:
        difference = address - before
        values.append(difference * 2 if difference >= 0 else -difference * 2 - 1)
        before = address
    for cpu in stream.cpus:
        values.append(len(cpu))
        values += [number[address] for address in cpu]
    return MAGIC + zlib.compress(bytes(_leb128(values)), 9)


def decode(data: bytes, name: str = "") -> Stream:
    """Give the stream of a file; ValueError says what is wrong with it."""
    if not data.startswith(MAGIC):
        raise ValueError(f"{name}: not a stream of addresses, which begins with {MAGIC.decode()}")
    inflate = zlib.decompressobj()
    try:
        plain = inflate.decompress(data[len(MAGIC) :], LARGEST)
    except zlib.error as error:
        raise ValueError(f"{name}: {error}") from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError(f"{name}: cut off, larger than {LARGEST} bytes, or followed by others")
    numbers = _numbers(plain, name)
    try:
        rate, cpus, distinct = next(numbers), next(numbers), next(numbers)
        addresses: list[int] = []
        for _ in range(distinct):
            zigzag = next(numbers)
            difference = -(zigzag + 1) // 2 if zigzag & 1 else zigzag // 2
            addresses.append((addresses[-1] if addresses else 0) + difference)
        hits = [[addresses[next(numbers)] for _ in range(next(numbers))] for _ in range(cpus)]
    except StopIteration:
        raise ValueError(f"{name}: ends in the middle") from None
    except IndexError:
        raise ValueError(f"{name}: a hit at an address that it does not list") from None
    if next(numbers, None) is not None:
        raise ValueError(f"{name}: more numbers than it says")
    return Stream(name, rate, hits)


def recorded() -> list[Stream]:
    """Give the streams that are kept with the tests, by name."""
    return [decode(path.read_bytes(), path.stem) for path in sorted(FOLDER.glob("*.stream"))]


def zipf(exponent: float, slots: int = 65536, hits: int = 40000, step: int = 16) -> Stream:
    """Give two CPUs' hits on addresses whose frequencies fall by Zipf's law; always the same."""
    dice = random.Random(f"zipf {exponent} {slots}")
    weights = list(itertools.accumulate(1 / rank**exponent for rank in range(1, slots + 1)))
    places = [place * step for place in range(slots)]
    dice.shuffle(places)
    cpus = [dice.choices(places, cum_weights=weights, k=hits // 2) for _ in range(2)]
    return Stream(f"zipf-{exponent:g}", 0, cpus)


def write_slots(stream: Stream, shift: int, folder: Path) -> list[Path]:
    """Write a file for every CPU that has hits: slots as little-endian u32; their paths."""
    paths = []
    for number, cpu in enumerate(stream.cpus):
        if cpu:
            path = folder / f"{stream.name}-{number}.slots"
            values = array("I", (address >> shift for address in cpu))
            path.write_bytes(_little_endian(values))
            paths.append(path)
    return paths


def _little_endian(values: array[int]) -> bytes:
    import sys

    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _leb128(values: Iterable[int]) -> Iterator[int]:
    for value in values:
        rest = value
        while rest >= 0x80:
            yield rest & 0x7F | 0x80
            rest >>= 7
        yield rest


def _numbers(data: Sequence[int], name: str) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise ValueError(f"{name}: a number of more than 63 bits")
        if not byte & 0x80:
            yield value
            value = shift = 0
    if shift:
        raise ValueError(f"{name}: ends inside a number")
