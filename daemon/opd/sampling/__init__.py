"""Opens the native sampler, takes windows, knows what they carry."""
