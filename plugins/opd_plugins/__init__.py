"""The built-in extended features, one folder each; opd finds them by entry point."""
