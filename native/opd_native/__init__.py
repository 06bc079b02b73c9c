"""The C core of opd behind cffi; one wrapper a header, errors from one place."""
