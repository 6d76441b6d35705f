"""The command `molt`: one file per command, each with `main(argv) -> exit code`."""
