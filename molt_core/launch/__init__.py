"""From plan to processes. The only folder of the core that may import ray, torch or transformers."""
