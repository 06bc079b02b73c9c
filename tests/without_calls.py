"""Run a command that some system calls are refused: ``without_calls.py ERRNO CALL+… COMMAND…``.

As a container's seccomp filter does it. Calls are of x86-64.
"""

import ctypes
import errno
import os
import struct
import sys

CALLS = {"mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239}
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF: ld word, jeq constant, ret constant
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def refuse(numbers, error):
    """Have these calls fail with ``error`` from now on, in children too."""
    steps = [(_LOAD, 0, 0, 0)]  # seccomp_data.nr
    steps += [(_EQUAL, len(numbers) - at, 0, nr) for at, nr in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | error)]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps), code)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


if __name__ == "__main__":
    refuse([CALLS[name] for name in sys.argv[2].split("+")], getattr(errno, sys.argv[1]))
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606
