"""Real programs and libraries, compiled once a session."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # test folders are no packages

from elf_rule import PROGRAM_FLAGS

PROGRAM = """
#include <stdio.h>
#include <string.h>
__attribute__((noinline)) int exported(int x) { return (int)strlen("abc") + x * 3; }
__attribute__((noinline)) static int hidden_static(int x) { puts("x"); return exported(x) ^ x; }
extern int alias_weak(int) __attribute__((weak, alias("exported")));
extern int __alias_global(int) __attribute__((alias("exported")));
int asm_labels(void);
int asm_second(void);
__asm__(".text\\n.globl asm_labels\\nasm_labels:\\n nop\\n nop\\n nop\\n nop\\n"
        ".globl asm_second\\nasm_second:\\n ret\\n nop\\n nop\\n ret\\n");
int main(int argc, char **argv)
{
    return hidden_static(argc) + alias_weak(1) + __alias_global(2);
}
"""

LIBRARY = """
#include <stdlib.h>
#include <string.h>
int old_call(int x) { return x + 1; }
int new_call(int x)
{
    char *p = malloc((size_t)x);
    int r = p ? (int)strlen(p) : 0;
    free(p);
    return r;
}
__asm__(".symver old_call,call@V_1");
__asm__(".symver new_call,call@@V_2");
static int inner(int x) { return x * 5; }
int outer(int x) { return inner(x) + new_call(x); }
"""


@pytest.fixture(scope="session")
def compiler():
    """The C compiler; without one there is nothing to read."""
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture(scope="session")
def build(compiler, tmp_path_factory):
    """Compile a source with flags; the same call gives the same file again."""
    known = {}

    def compile_source(source, *flags):
        key = (source, flags)
        if key not in known:
            folder = tmp_path_factory.mktemp("binary")
            path = folder / "program"
            text = folder / "source.c"
            text.write_text(source)
            subprocess.run([compiler, "-O1", *flags, str(text), "-o", str(path)], check=True)
            known[key] = path
        return known[key]

    return compile_source


@pytest.fixture(scope="session")
def program(build):
    """The test program built one of the ways of PROGRAM_FLAGS."""
    return lambda way: build(PROGRAM, *PROGRAM_FLAGS[way])


@pytest.fixture(scope="session")
def library(build, tmp_path_factory):
    """A shared library with two versions of one symbol."""
    script = tmp_path_factory.mktemp("script") / "versions"
    script.write_text("V_1 { global: call; outer; local: *; };\nV_2 { } V_1;\n")
    return build(LIBRARY, "-shared", "-fPIC", "-Wl,--build-id", f"-Wl,--version-script={script}")


@pytest.fixture
def opened():
    """Open descriptors that are closed behind the test."""
    descriptors = []

    def open_file(path):
        descriptors.append(os.open(path, os.O_RDONLY))
        return descriptors[-1]

    yield open_file
    for descriptor in descriptors:
        os.close(descriptor)
