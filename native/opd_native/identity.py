"""Stable 128-bit identities of images and stacks (contract: opd/identity.h)."""

from collections.abc import Sequence

from opd_native._core import ffi, lib

SIZE = 16
"""Bytes of an identity."""


def identity_of(data: bytes) -> bytes:
    """Return the 16-byte identity of `data`, e.g. of an image's canonical string."""
    identity = ffi.new("uint8_t[]", SIZE)
    lib.opd_identity_of(data, len(data), identity)
    return bytes(ffi.buffer(identity))


def stack_identities(
    flags: bytes,
    starts: bytes,
    images: bytes,
    addresses: bytes,
    image_identities: Sequence[bytes] | bytes,
) -> bytes:
    """Return the identities of n stacks, 16 bytes each, in one native call.

    Packed columns of native byte order: `flags` u8[n], `starts` u32[n + 1] into the frame
    arrays, `images` u32[frames] (an index into `image_identities`), `addresses` u64[frames] (ELF
    addresses), leaf first. `image_identities` is a sequence of 16-byte identities or their
    concatenation. Raises ValueError when a column's length, a start or an index is wrong.
    """
    if not isinstance(image_identities, bytes):
        if any(len(identity) != SIZE for identity in image_identities):
            raise ValueError("an image identity is not 16 bytes long")
        image_identities = b"".join(image_identities)
    stacks = len(flags)
    frames, rest = divmod(len(images), 4)
    if rest or len(addresses) != 8 * frames:
        raise ValueError(f"{len(images)} bytes of images, {len(addresses)} of addresses")
    if len(starts) != 4 * (stacks + 1):
        raise ValueError(f"{len(starts)} bytes of starts for {stacks} stacks")
    if len(image_identities) % SIZE:
        raise ValueError("the image identities are not 16 bytes each")
    identities = ffi.new("uint8_t[]", SIZE * stacks)
    rc = lib.opd_identity_of_stacks(
        flags,
        ffi.from_buffer("uint32_t[]", starts),
        stacks,
        ffi.from_buffer("uint32_t[]", images),
        ffi.from_buffer("uint64_t[]", addresses),
        frames,
        image_identities,
        len(image_identities) // SIZE,
        identities,
    )
    if rc != 0:
        raise ValueError("a start or an image index is out of range")
    return bytes(ffi.buffer(identities))
