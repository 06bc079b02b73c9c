# The binary module, as cffi made it: typed by the wrappers beside it.

from typing import Any

ffi: Any
lib: Any
