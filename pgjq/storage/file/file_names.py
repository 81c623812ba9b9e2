"""Encode arbitrary text as a safe file name, which cannot leave its directory."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

LONGEST = 120


def file_name(text: str, suffix: str) -> str:
    """Encode a name: letters, digits, `-` and `_` stay, the rest is percent-encoded.

    Dots are encoded, too, so that the result is never `..`, a hidden file or a name with another suffix. A name that
    is too long is cut, and its hash added.
    """
    name = quote(text, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 65]}-{sha256(text.encode(errors='surrogatepass')).hexdigest()}"
    return name + suffix
