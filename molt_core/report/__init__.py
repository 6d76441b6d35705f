"""What a run leaves behind and shows: run folder, metrics, ledger, console. Decides nothing."""
