"""Distributions and how sure one can be of what they say."""
