"""Hourly Parquet segments: written by a child, asked in SQL by another."""
