"""What plugin authors import. Stable and versioned: one API number per slot, in `spec`."""
