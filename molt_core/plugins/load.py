"""From a candidate to its spec: the only place where the driver imports plugin code.

Called for chosen plugins only. Everything that can be wrong with one becomes an error that
names slot, name, distribution, version, entry-point value and the reason, so that it is clear
whose fault it is and what to install, upgrade or report.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator
from pathlib import Path

from molt_core.api.findings import Finding, Source, error
from molt_core.api.spec import SLOTS, Spec
from molt_core.errors import ConfigError
from molt_core.plugins.factory import import_object
from molt_core.plugins.names import CORE, is_valid, normalized
from molt_core.plugins.scan import Candidate


def load_spec(candidate: Candidate) -> Spec:
    """Import the spec of a chosen plugin and check that this core can drive it.

    Raises:
        ConfigError: one finding; unmet requirements are reported before anything is imported.
    """
    for finding in _unmet_requirements(candidate):
        raise ConfigError([finding])
    try:
        found = import_object(candidate.value)
    # isolation point: a plugin's module may raise anything, or call sys.exit
    except (Exception, SystemExit) as reason:
        raise ConfigError([_import_failed(candidate, reason)]) from reason
    for finding in _problems(candidate, found):
        raise ConfigError([finding])
    assert isinstance(found, Spec)
    return found


def _unmet_requirements(candidate: Candidate) -> Iterator[Finding]:
    from molt_core.plugins.requirements import unmet

    for needed, installed in unmet(candidate.dist):
        instead = f"installed is {installed}" if installed else f"{needed.name} is not installed"
        reason = f"it needs {needed.name}{needed.specifier}, {instead}"
        yield _broken("M108", candidate, reason, fix=f"pip install '{needed.name}{needed.specifier}'")


def _import_failed(candidate: Candidate, reason: BaseException) -> Finding:
    said = "".join(traceback.format_exception_only(reason)).strip().splitlines()[-1]
    package = candidate.value.partition(":")[0].partition(".")[0]
    if isinstance(reason, ModuleNotFoundError) and reason.name == package:
        fix = f"its files are gone: pip install --force-reinstall {candidate.dist}"
        return _broken("M104", candidate, f"importing its spec raised {said}", fix=fix)
    return _broken("M104", candidate, f"importing its spec raised {said}", *_place(reason))


def _place(reason: BaseException) -> Iterator[Source]:
    """The last line outside the import machinery, which is the plugin's or its dependency's."""
    machinery = (str(Path(__file__).parent), str(Path(importlib.__file__).parent), "<frozen")
    for frame in reversed(traceback.extract_tb(reason.__traceback__)):
        if not frame.filename.startswith(machinery):
            yield Source(f"raised by `{frame.line}`", f"{frame.filename}:{frame.lineno}")
            return


def _problems(candidate: Candidate, found: object) -> Iterator[Finding]:
    kind = SLOTS[candidate.slot]
    if not isinstance(found, kind):
        got = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        yield _broken("M105", candidate, f"{candidate.value} is {got}, wanted an instance of {kind.__name__}")
        return
    if normalized(found.name) != normalized(candidate.name) or not is_valid(found.name):
        yield _broken("M106", candidate, f"its spec says that its name is {found.name!r}")
    spoken = kind.api_versions
    if found.api not in spoken:
        numbers = f"{spoken[0]}" if len(spoken) == 1 else f"{spoken[0]} to {spoken[-1]}"
        reason = f"it was written for API {found.api} of slot {candidate.slot}, this molt-core has {numbers}"
        outdated = CORE if found.api > spoken[-1] else candidate.dist
        yield _broken("M107", candidate, reason, fix=f"pip install --upgrade {outdated}")


def _broken(code: str, candidate: Candidate, reason: str, *because: Source, fix: str = "") -> Finding:
    flag = SLOTS[candidate.slot].flag
    point = Source(
        f"entry point {candidate.name} = {candidate.value}", f"slot {candidate.slot}, {candidate.owner}"
    )
    fix = fix or f"repair or remove {candidate.dist}, or choose another {flag}"
    message = f"{flag} {candidate.name!r} of {candidate.owner} can't be used: {reason}"
    return error(code, message, point, *because, fix=fix)
