from __future__ import annotations

import json.decoder

import pytest

from molt_core.plugins.factory import import_object


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
