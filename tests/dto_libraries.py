"""Small C libraries that define memcpy and its like, and git trees of them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

# Each works; `extra` is put in, so that one can be slow, crash or hang.
SOURCE = r"""
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int turns;
int one_name(void) { return turns; }
%(before)s
void *memcpy(void *d, const void *s, size_t n) {
    unsigned char *a = d; const unsigned char *b = s;
    %(in_copy)s
    for (size_t i = 0; i < n; i++) { a[i] = b[i]; __asm__ volatile("" ::: "memory"); }
    return d;
}
void *memmove(void *d, const void *s, size_t n) {
    unsigned char *a = d; const unsigned char *b = s;
    if (a <= b || a >= b + n) return memcpy(d, s, n);
    while (n--) { a[n] = b[n]; __asm__ volatile("" ::: "memory"); }
    return d;
}
void *memset(void *d, int c, size_t n) {
    unsigned char *a = d;
    for (size_t i = 0; i < n; i++) { a[i] = (unsigned char)c; __asm__ volatile("" ::: "memory"); }
    return d;
}
"""
COMPARE = r"""
int memcmp(const void *a, const void *b, size_t n) {
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != y[i]) return x[i] - y[i];
        __asm__ volatile("" ::: "memory");
    }
    return one_name();
}
"""
FLAGS = ("-O2", "-fno-builtin", "-fPIC", "-w")
MAKEFILE = """
CFLAGS = -O2 -fno-builtin -fPIC -w
libx.so: x.c
\t$(CC) $(CFLAGS) -shared -o $@ x.c
libx.a: x.c
\t$(CC) $(CFLAGS) -c -o x.o x.c
\tar rcs $@ x.o
"""


def source(*, before="", in_copy="", compare=True):
    """C of a library."""
    return SOURCE % {"before": before, "in_copy": in_copy} + (COMPARE if compare else "")


def compiled(folder, name, text, *, kind="so"):
    """Compile a library into a folder; its path as text."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    code = folder / f"{name}.c"
    code.write_text(text)
    target = folder / f"{name}.{kind}"
    how = ["-shared"] if kind == "so" else ["-c"]
    subprocess.run(["cc", *FLAGS, *how, "-o", target, code], check=True)
    return str(target)


def git(tree, *words):
    """Run git in a tree; what it printed."""
    who = {
        f"GIT_{whose}_{what}": f"x@{what}"
        for whose in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", "-C", tree, *words],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **who, "GIT_CONFIG_GLOBAL": "/dev/null"},
    )
    return done.stdout.strip()


def commit(tree, tag, text):
    """Commit a version of the library under a tag; its SHA."""
    (tree / "x.c").write_text(text)
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "--allow-empty", "-m", tag)
    git(tree, "tag", tag)
    return git(tree, "rev-parse", "HEAD")


def repository(folder):
    """Make an empty tree with a Makefile; skips where git or a compiler are missing."""
    for tool in ("git", "cc", "make", "objcopy"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / ".gitignore").write_text("*.o\n*.so\n*.a\n")
    return folder
