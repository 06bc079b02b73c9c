"""Answers from precise samples: ratios and latencies, accesses to memory, branches, raw records."""
