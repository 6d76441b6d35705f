"""A verifiers environment of the tests, for the Python that has it: one question, or a tool over several turns."""

import verifiers as vf
from datasets import Dataset


def count_letters(word: str) -> int:
    """Count the letters of a word.

    Args:
        word: the word
    """
    return len(word)


def right(completion, answer, **kwargs) -> float:
    return float(answer in str(completion[-1].content))


def broken(**kwargs) -> float:
    raise RuntimeError("the grader is broken")


def load_environment(kind: str = "question", num_rows: int = 10, system_prompt: str = "Count."):
    words = ["abc" * (1 + number) for number in range(num_rows)]
    rows = [{"question": f"How long is {word}?", "answer": str(len(word))} for word in words]
    common = {
        "dataset": Dataset.from_list(rows),
        "system_prompt": system_prompt,
        "rubric": vf.Rubric(funcs=[right]),
    }
    if kind == "tools":
        return vf.ToolEnv(tools=[count_letters], max_turns=4, **common)
    if kind == "broken":
        common["rubric"] = vf.Rubric(funcs=[broken])
    return vf.SingleTurnEnv(**common)
