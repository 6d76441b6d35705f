"""Is this run possible? Facts and rules to findings, and the frozen plan. No torch, no processes."""
