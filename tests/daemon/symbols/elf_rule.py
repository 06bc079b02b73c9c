"""The rule for a name once more, in plain Python over readelf's output."""

import re
import subprocess
from typing import NamedTuple

# How the test program is built: linkers lay the same code out in many ways.
PROGRAM_FLAGS = {
    "pie": ("-fPIE", "-pie", "-Wl,--build-id"),
    "no_pie": ("-fno-PIE", "-no-pie", "-Wl,--build-id"),
    "static": ("-static", "-Wl,--build-id"),
    "separate_code": ("-Wl,-z,separate-code", "-Wl,--build-id"),
    "noseparate_code": ("-Wl,-z,noseparate-code", "-Wl,--build-id"),
    "no_build_id": ("-Wl,--build-id=none",),
    "ibt": ("-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"),
    "no_plt": ("-fno-plt",),
}


class Symbol(NamedTuple):
    """A line of readelf's symbol table."""

    value: int
    size: int
    kind: str
    binding: str
    visibility: str
    section: str
    name: str


def read_symbols(path, table):
    """All symbols of .symtab or .dynsym, as readelf prints them."""
    out = subprocess.run(
        ["readelf", "-W", "--symbols", "--dyn-syms", str(path)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    symbols, inside = [], False
    for line in out.splitlines():
        if line.startswith("Symbol table '"):
            inside = f"'{table}'" in line
            continue
        fields = line.split()
        if not inside or len(fields) < 7 or not fields[0].rstrip(":").isdigit():
            continue
        size = int(fields[2], 0)
        name = fields[7] if len(fields) > 7 else ""
        symbols.append(Symbol(int(fields[1], 16), size, *fields[3:7], name))
    return symbols


def executable_sections(path):
    """Index of each section that holds code, with its address range."""
    out = subprocess.run(
        ["readelf", "-WS", str(path)], capture_output=True, text=True, check=True
    ).stdout
    found = {}
    for match in re.finditer(
        r"\[ *(\d+)\] \S+ +\S+ +([0-9a-f]{16}) [0-9a-f]{6,} ([0-9a-f]{6,}) [0-9a-f]+ +(\w*)", out
    ):
        index, address, size, flags = match.groups()
        if "X" in flags:
            found[index] = (int(address, 16), int(address, 16) + int(size, 16))
    return found


class Rule:
    """Names addresses of a file by its .symtab, else its .dynsym."""

    def __init__(self, path):
        sections = executable_sections(path)
        symbols = read_symbols(path, ".symtab") or read_symbols(path, ".dynsym")
        self.functions = [
            symbol._replace(name=re.sub(r"(?<!^)@.*", "", symbol.name))
            for symbol in symbols
            if symbol.section in sections and symbol.name and self._is_function(symbol)
        ]
        self.sections = sections
        self.starts = sorted({symbol.value for symbol in self.functions})

    @staticmethod
    def _is_function(symbol):
        return symbol.kind in ("FUNC", "IFUNC") or (
            symbol.kind == "NOTYPE" and symbol.visibility not in ("HIDDEN", "INTERNAL")
        )

    @staticmethod
    def _order(symbol):
        rank = {"WEAK": 1, "LOCAL": 2}.get(symbol.binding, 0)
        underscores = len(symbol.name) - len(symbol.name.lstrip("_"))
        return rank, underscores, -len(symbol.name)

    def names(self, address):
        """Every name the rule allows (more than one only for a full tie); empty: none."""
        covering = [s for s in self.functions if s.value <= address < s.value + s.size]
        if not covering:
            covering = [
                s for s in self.functions if s.size == 0 and s.value <= address < self._reach(s)
            ]
        if not covering:
            return set()
        best = min(self._order(s) for s in covering)
        return {s.name for s in covering if self._order(s) == best}

    def _reach(self, symbol):
        after = [start for start in self.starts if start > symbol.value]
        return min([self.sections[symbol.section][1], *after[:1]])
