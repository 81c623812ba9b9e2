"""Names of files for names that people chose: any text, on any file system, without a way out of the directory."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

LONGEST = 120


def file_name(text: str, suffix: str) -> str:
    """Encode a name: letters, digits, `-` and `_` stand for themselves, the rest is percent-encoded.

    A dot is encoded, too, so neither `..` nor a hidden file nor another suffix can come of it. What would be too long
    is cut and told apart by its hash.
    """
    name = quote(text, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 65]}-{sha256(text.encode(errors='surrogatepass')).hexdigest()}"
    return name + suffix
