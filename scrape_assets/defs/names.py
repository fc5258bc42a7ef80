"""Names as Dagster allows them: letters of ASCII, digits and `_`."""

from __future__ import annotations

import hashlib
import re


def of(text: str) -> str:
    """A name that says the text, and is another one for another text.

    >>> of("not_empty"), of("my-shop"), of("größe")
    ('not_empty', 'my_shop_1b5cad', 'gr__e_7ca131')
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return plain if plain == text else f"{plain}_{hashlib.blake2b(text.encode(), digest_size=3).hexdigest()}"
