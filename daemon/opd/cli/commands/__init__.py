"""The subcommands of opctl, one a file: EXAMPLE, add_arguments and run."""
