"""One model at a time: loading changes global state of torch and transformers.

While `from_pretrained` runs, transformers replaces `PreTrainedModel.tie_weights` and torch's default
dtype for the whole process and puts back what it found. Two threads that do so at once leave the
replacement behind, and every model that is loaded later has an output layer of noise. Executor `local`
starts engines and trainer on threads of one process, so whoever builds a model there holds this lock.
"""

from __future__ import annotations

import threading

MODEL_LOADING = threading.Lock()
