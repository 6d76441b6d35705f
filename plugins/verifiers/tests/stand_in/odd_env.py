"""An environment whose rows say what goes wrong."""

import asyncio
import os
import sys


class Odd:
    def __init__(self, num_rows, eval_rows, group):
        self._rows = [
            {"example_id": n, "prompt": [{"role": "user", "content": str(n)}]} for n in range(num_rows)
        ]
        self.eval_dataset = [{"example_id": 100 + n} for n in range(eval_rows)] or None
        self.requires_group_rollouts = group
        self.num_cancelled = 0

    def get_dataset(self):
        return self._rows

    def get_eval_dataset(self):
        return self.eval_dataset

    async def run_rollout(self, row, client, model, sampling_args):
        print("printed by the environment, which must hurt nobody")
        what = row.get("what")
        if what == "raise":
            raise KeyError("odd")
        if what == "die":
            print("last words", file=sys.stderr, flush=True)
            os._exit(7)
        if what == "wait":
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.num_cancelled += 1
                raise
        output = {"reward": 0.5, "metrics": {"cancelled": self.num_cancelled, "words": "no number"}}
        if what == "fail":
            output |= {
                "reward": 0.0,
                "error": {"error": "ModelError", "error_chain_repr": "ModelError -> refused"},
            }
        if what == "late":
            output |= {"stop_condition": "timeout_reached"}
        if what == "who":
            output["metrics"] = {
                client.base_url: 1,
                client.key: 2,
                model: 3,
                str(len(row)): 4,
                str(sampling_args): 5,
            }
        return output


def load_environment(num_rows=10, eval_rows=0, group=False):
    print("loading")
    return Odd(num_rows, eval_rows, group)
