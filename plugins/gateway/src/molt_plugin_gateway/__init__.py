"""Records what the policy samples while an agent talks to it: OpenAI and Anthropic endpoints, or direct calls."""
