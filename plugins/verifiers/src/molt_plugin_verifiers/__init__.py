"""Environments of the verifiers library for Molt. Only `driver`, which another Python runs, imports verifiers."""
