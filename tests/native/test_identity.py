"""Identities against an independent SipHash-2-4-128 in plain Python."""

import array
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opd_native import identity

KEY = b"opd identity v1\0"
MASK = (1 << 64) - 1


def siphash128(key: bytes, data: bytes) -> bytes:
    """SipHash-2-4 with a 128-bit result, from the paper's definition."""
    k0, k1 = struct.unpack("<2Q", key)
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rotate(word: int, by: int) -> int:
        return (word << by | word >> (64 - by)) & MASK

    def half_round(a: int, b: int, c: int, d: int, by: tuple[int, int]) -> None:
        v[a] = (v[a] + v[b]) & MASK
        v[c] = (v[c] + v[d]) & MASK
        v[b] = rotate(v[b], by[0]) ^ v[a]
        v[d] = rotate(v[d], by[1]) ^ v[c]
        v[a] = rotate(v[a], 32)

    def rounds(count: int) -> None:
        for _ in range(count):
            half_round(0, 1, 2, 3, (13, 16))
            half_round(2, 1, 0, 3, (17, 21))

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return struct.pack("<2Q", low, v[0] ^ v[1] ^ v[2] ^ v[3])


def columns(
    stacks: list[tuple[int, list[tuple[int, int]]]],
) -> tuple[bytes, bytes, bytes, bytes]:
    """Pack stacks as the window's columns."""
    starts = [0]
    images: list[int] = []
    addresses: list[int] = []
    for _, frames in stacks:
        images += [image for image, _ in frames]
        addresses += [address for _, address in frames]
        starts.append(len(images))
    return (
        bytes(flags for flags, _ in stacks),
        array.array("I", starts).tobytes(),
        array.array("I", images).tobytes(),
        array.array("Q", addresses).tobytes(),
    )


def test_reference_is_siphash() -> None:
    """The Python reference gives the published vector of the empty message."""
    assert siphash128(bytes(range(16)), b"").hex() == "a3817f04ba25a8e66df67214c7550293"


@given(st.binary(max_size=100))
def test_identity_of(data: bytes) -> None:
    """An identity is SipHash-2-4-128 of the bytes under the frozen key."""
    assert identity.identity_of(data) == siphash128(KEY, data)


def test_identity_is_frozen() -> None:
    """The identity of a known string is what every stored profile holds."""
    assert identity.identity_of(b"build-id:deadbeef").hex() == "3efe95c2f8ba0bbcb513aed3db08670c"


FRAMES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, MASK)), max_size=8)


@given(st.lists(st.tuples(st.integers(0, 255), FRAMES), max_size=8), st.booleans())
def test_stack_identities(
    stacks: list[tuple[int, list[tuple[int, int]]]],
    joined: bool,  # noqa: FBT001
) -> None:
    """A stack's identity covers its flags and each frame's image and address, leaf first."""
    known = [identity.identity_of(name) for name in (b"[anon]", b"build-id:00", b"bpf:x")]
    result = identity.stack_identities(*columns(stacks), b"".join(known) if joined else known)
    expected = b"".join(
        siphash128(
            KEY,
            struct.pack("<Q", flags)
            + b"".join(known[image] + struct.pack("<Q", address) for image, address in frames),
        )
        for flags, frames in stacks
    )
    assert result == expected


def test_wrong_columns() -> None:
    """Columns that do not fit each other raise ValueError and read nothing outside."""
    known = [identity.identity_of(b"one")]
    flags, starts, images, addresses = columns([(1, [(0, 5), (0, 6)]), (2, [(0, 7)])])
    call = identity.stack_identities
    assert len(call(flags, starts, images, addresses, known)) == 32
    with pytest.raises(ValueError, match="out of range"):
        call(flags, starts, images, addresses, [])
    with pytest.raises(ValueError, match="out of range"):
        call(flags, array.array("I", [0, 3, 2]).tobytes(), images, addresses, known)
    with pytest.raises(ValueError, match="out of range"):
        call(flags, array.array("I", [0, 2, 4]).tobytes(), images, addresses, known)
    with pytest.raises(ValueError, match="of starts for 2 stacks"):
        call(flags, starts[4:], images, addresses, known)
    with pytest.raises(ValueError, match="of addresses"):
        call(flags, starts, images, addresses[1:], known)
    with pytest.raises(ValueError, match="of images"):
        call(flags, starts, images[1:], addresses, known)
    with pytest.raises(ValueError, match="16 bytes each"):
        call(flags, starts, images, addresses, known[0][1:])
    with pytest.raises(ValueError, match="16 bytes long"):
        call(flags, starts, images, addresses, [b"short"])
