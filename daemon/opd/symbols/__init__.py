"""From addresses to names: the kernel, ELF files, the vdso."""
