"""Cells through their wrapper: columns, orders, blocks, functions by address, errors."""

from __future__ import annotations

import errno
import math
from array import array

import pytest

from opd_native.dto import (
    ITERATIONS_MOST,
    KERNELS,
    Arm,
    Cell,
    DtoError,
    Functions,
    Hold,
    Op,
    Round,
    blocks_of,
    kernels,
    order_of,
    quantum_of,
)
from opd_native.errors import NativeError


def test_a_round_has_a_column_for_each_arm():
    """All arms of all iterations, with the order they ran in."""
    libc = kernels("libc")
    cell = Cell(libc, libc, op=Op.MEMCPY, size=1000, warmup=3, seed=5)
    taken = cell.round(300, verify=True)
    assert (taken.iterations, len(taken.ticks), len(taken.order)) == (300, 1200, 300)
    assert taken.column(Arm.B) == taken.ticks[300:600]
    assert taken.seed == 5
    assert taken.moved in range(1200)
    effect, null = blocks_of(taken, 100, mean=True)
    assert len(effect) == len(null) == 3
    facts = cell.facts()
    assert facts.bytes >= 2000
    assert facts.huge_bytes == 0
    cell.close()


def test_orders_are_the_permutations():
    """Each number is another order of the four."""
    orders = {order_of(number) for number in range(24)}
    assert len(orders) == 24
    assert all(sorted(order) == list(Arm) for order in orders)


def test_blocks_pair_both_arms_of_each():
    """B and its repeat against A and its repeat; A's repeat against A."""
    columns = [1000] * 250 + [1100] * 250 + [1000] * 250 + [1100] * 250
    taken = Round(array("Q", columns), bytes(250), 250, 1, 0, 0, 0, 0, 0, 1, 0.0)
    for mean in (False, True):
        effect, null = blocks_of(taken, 250, mean=mean)
        assert effect == [pytest.approx(math.log(1.1))]
        assert null == [0.0]
    still = taken._replace(ticks=array("Q", bytes(8000)))
    with pytest.raises(NativeError) as caught:
        blocks_of(still, 250, mean=False)
    assert caught.value.errno == errno.EDOM
    assert quantum_of(array("Q", [10, 40, 25, 10])) == 15


def test_functions_of_others_are_taken_by_address():
    """What a loader found is called as it is; what is not there is none."""
    libc = kernels("libc")
    taken = Functions.at(libc.addresses[:3] + (0,))
    assert taken.addresses == (*libc.addresses[:3], 0)
    assert taken.has(Op.MEMSET)
    assert not taken.has(Op.MEMCMP)
    with pytest.raises(DtoError, match="baseline has no memcmp"):
        Cell(taken, libc, op=Op.MEMCMP, size=64)
    cell = Cell(libc, libc, op=Op.MEMCPY, size=64)
    cell.exchange(libc, taken)
    assert cell.round(10).iterations == 10


def test_kernels_are_those_of_this_cpu():
    """Unknown names and missing instructions are told apart."""
    codes = {}
    for name in KERNELS:
        try:
            codes[name] = 0 if kernels(name).has(Op.MEMCPY) else -1
        except NativeError as error:
            codes[name] = error.errno
    assert set(codes.values()) <= {0, errno.EOPNOTSUPP}
    assert codes["libc"] == 0
    with pytest.raises(NativeError) as caught:
        kernels("avx1024")
    assert caught.value.errno == errno.ENOENT


def test_what_is_wrong_is_said():
    """Sizes, iterations and settings that cannot be."""
    libc = kernels("libc")
    with pytest.raises(DtoError, match="a size of 0"):
        Cell(libc, libc, op=Op.MEMCPY, size=0)
    cell = Cell(libc, libc, op=Op.MEMCPY, size=64)
    with pytest.raises(DtoError, match="1 to 10000 iterations"):
        cell.round(ITERATIONS_MOST + 1)
    with pytest.raises(DtoError, match=r"/no/such/file: No such file"):
        Hold([("/no/such/file", "1")])
