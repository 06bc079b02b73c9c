"""The subcommands of opctl, one a file: SUMMARY, EXAMPLE, add_arguments and run."""
