"""The programs opd and opctl; the only place that prints or exits."""
