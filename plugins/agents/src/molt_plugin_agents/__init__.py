"""Agents that are programs of their own: any command line harness, unmodified."""
