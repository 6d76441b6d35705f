from __future__ import annotations

import json.decoder

import pytest

from molt_core.api.options import NoOptions
from molt_core.plugins.factory import import_factory, import_object


def test_an_attribute_and_a_dotted_one_are_found():
    assert import_object("json.decoder:JSONDecoder") is json.decoder.JSONDecoder
    assert import_object("json.decoder:JSONDecoder.decode") is json.decoder.JSONDecoder.decode


@pytest.mark.parametrize("path", ["json.decoder", "json:", ":loads", ""])
def test_another_form_is_refused_with_the_wanted_one(path):
    with pytest.raises(ImportError, match="wanted 'module:attribute'"):
        import_object(path)


def test_a_missing_attribute_names_module_and_attribute():
    with pytest.raises(ImportError, match=r"json has no attribute 'loads\.nothing'"):
        import_object("json:loads.nothing")


def test_what_a_module_raises_is_passed_on(site):
    (site / "raises_at_import.py").write_text("raise ZeroDivisionError")
    with pytest.raises(ZeroDivisionError):
        import_object("raises_at_import:thing")


def test_in_a_file_a_class_may_take_options_or_none_and_a_function_is_an_agents_run(tmp_path):
    file = tmp_path / "parts.py"
    file.write_text(
        "def run(task, session):\n    return 1\n"
        "class Plain:\n    made = 'plain'\n"
        "class Default:\n    def __init__(self, size=3):\n        self.made = size\n"
        "class Wants:\n    def __init__(self, options):\n        self.made = type(options).__name__\n"
    )
    made = {
        name: import_factory(f"{file}:{name}")(NoOptions()) for name in ("run", "Plain", "Default", "Wants")
    }

    assert made["run"].run(None, None) == 1
    assert [made[name].made for name in ("Plain", "Default", "Wants")] == ["plain", 3, "NoOptions"]
    assert import_factory("json:loads")("[1]") == [1], "a plugin's factory is taken as it is"
