"""Public fakes for plugin authors and for our own tests: scripted, deterministic, in milliseconds.

They stand in at our own protocols only; nothing here imitates vLLM, Ray or torch.
"""

from molt_core.testing.clock import run_virtual
from molt_core.testing.fake_gateway import FakeGateway
from molt_core.testing.fakes import FakeEngine, FakePolicy, FakeSampler, fake_tasks

__all__ = ["FakeEngine", "FakeGateway", "FakePolicy", "FakeSampler", "fake_tasks", "run_virtual"]
