"""Gymnasium for Molt. `spec` is light; `environment` imports gymnasium."""
