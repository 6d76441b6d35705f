"""The last number in a text, read the way people write numbers. Linear in the length of the text.

Never evaluates anything: `2+2` holds two numbers, not one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

# digits with or without commas between thousands, decimals, or decimals alone; a minus counts as
# a sign only where it can't be an operator
NUMBER: Final = re.compile(
    r"(?:(?<![0-9A-Za-z)\]])-)?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
MINUS_SIGNS: Final = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2011": "-"})


def last_number(text: str) -> Decimal | None:
    """The last number in `text`: `1,234.50` is 1234.5, `-3.` is -3, `10-4` ends in 4. None without one."""
    found = NUMBER.findall(text.translate(MINUS_SIGNS))
    return Decimal(found[-1].replace(",", "")) if found else None
