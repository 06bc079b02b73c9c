"""The sections, a module each: it declares SECTION (see harness/section.py)."""
