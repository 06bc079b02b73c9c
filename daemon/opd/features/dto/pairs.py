"""Both sides in the process that measures, kept apart, in as many layouts as are wanted."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opd.errors import OperationFailedError
from opd.features.dto.leftovers import COPY, LINKS, clear_left, own_directory
from opd.features.dto.libraries import Kind
from opd.features.dto.linking import FUNCTIONS, Linker, Side, table
from opd.features.dto.sides import SIDES, cache, find_both, own_kernel
from opd_native.dto import Functions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opd.features.dto.libraries import Library
    from opd.features.dto.sides import Found, Sources, Tell

LAYOUTS_MOST = 64
_PREFIXES = ("opd_baseline_", "opd_current_")


class Pair:
    """Both sides in this process. Its libraries stay until the process ends.

    ``layouts``: how many ways there are in which the two lie in memory;
    ``how``: by what they were kept apart, for each side.
    """

    def __init__(
        self, found: tuple[Found, Found], needed: Sequence[str], *, layouts: int, link: str = ""
    ) -> None:
        """Load what does not change with the layout. Raises OpdError."""
        self.found = found
        self._needed = needed
        self._fixed: list[Functions | None] = [None, None]
        self._linker: Linker | None = None
        self._directory = contextlib.ExitStack()
        self._loaded: dict[int, tuple[Functions, Functions]] = {}
        self.how = ["own", "own"]
        self.notes: list[str] = []
        linked: list[Side] = []
        for at, one in enumerate(found):
            if one.library is None:
                self._fixed[at] = own_kernel(one.name)
            elif one.library.kind is Kind.SHARED:
                self._fixed[at], self.how[at] = _load_apart(one.library, needed)
            else:
                linked.append(Side(_PREFIXES[at], one.library))
                self.how[at] = "linked"
        self.layouts = max(1, min(layouts, LAYOUTS_MOST)) if linked else 1
        if linked:
            place = cache()
            clear_left(place)
            with contextlib.ExitStack() as stack:
                directory = stack.enter_context(own_directory(LINKS, place))
                self._linker = Linker(linked, directory, link.split())
                self._directory = stack.pop_all()

    def functions(self, layout: int) -> tuple[Functions, Functions]:
        """Baseline and current in one of the layouts, from 0. Raises OpdError."""
        if layout not in self._loaded:
            first, second = self._fixed
            if self._linker is not None:
                from opd_native.dto_load import Library as Loaded
                from opd_native.dto_load import LibraryLoadError

                path = self._linker.layout(layout)
                try:
                    loaded = Loaded(str(path), own_namespace=False)
                except LibraryLoadError as error:
                    raise OperationFailedError(
                        f"the linked builds do not load: {error.reason}", hint=_load_hint(error)
                    ) from error
                path.unlink()
                tables = [
                    Functions.at(loaded.table(table(prefix), 4)) if how == "linked" else None
                    for prefix, how in zip(_PREFIXES, self.how, strict=True)
                ]
                first, second = tables[0] or first, tables[1] or second
            assert first is not None  # noqa: S101 - each side is linked or was loaded
            assert second is not None  # noqa: S101
            self._loaded[layout] = (first, second)
        return self._loaded[layout]

    def details(self) -> dict[str, Any]:
        """What was compared, for the result."""
        return {
            side: one.described() | {"kept_apart_by": how}
            for side, one, how in zip(SIDES, self.found, self.how, strict=True)
        } | {"layouts": self.layouts}

    def close(self) -> None:
        """Delete files; what is loaded stays."""
        self._directory.close()


def open_pair(
    sources: Sources, needed: Sequence[str], *, layouts: int = 1, tell: Tell | None = None
) -> Pair:
    """Bring both sides into this process, built where they are not yet. Raises OpdError.

    ``needed``: names of the functions that will be called. ``layouts``: of
    builds that are linked; others have one.
    """
    found = find_both(sources, needed, tell or (lambda _words: None))
    return Pair(found, needed, layouts=layouts, link=sources.link)


def _load_apart(library: Library, needed: Sequence[str]) -> tuple[Functions, str]:
    """Load a shared library: in a namespace of its own, else as a copy of the file."""
    from opd_native.dto_load import Library as Loaded
    from opd_native.dto_load import LibraryLoadError

    how = "namespace"
    try:
        loaded = Loaded(library.path, own_namespace=True)
    except LibraryLoadError as full:
        if not full.is_full:
            raise _not_loaded(library, full) from full
        how = "copy"
        try:
            with own_directory(COPY) as place:
                # Another file is another library to the loader, whatever its name.
                copy = shutil.copyfile(library.path, f"{place}/{Path(library.path).name}")
                loaded = Loaded(copy, own_namespace=False)
        except LibraryLoadError as error:
            raise _not_loaded(library, error) from error
        except OSError as error:
            raise OperationFailedError(f"{library.path}: {error.strerror}") from error
    cells = [loaded.address(name) if name in library.functions else 0 for name in FUNCTIONS]
    for name, cell in zip(FUNCTIONS, cells, strict=True):
        if name in needed and not cell:
            raise OperationFailedError(f"{library.path}: its {name} resolves to nothing")
    return Functions.at(cells, loaded), how


def _not_loaded(library: Library, error: Any) -> OperationFailedError:
    return OperationFailedError(
        f"{library.path} does not load: {error.reason}", hint=_load_hint(error)
    )


def _load_hint(error: Any) -> str | None:
    if "static TLS" in error.reason:
        return (
            "build it with -ftls-model=global-dynamic, or set"
            " GLIBC_TUNABLES=glibc.rtld.optional_static_tls=8192"
        )
    return None
