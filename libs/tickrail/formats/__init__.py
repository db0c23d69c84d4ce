"""Documents of other programs, read into ours. The only user of icalendar."""

import re

_FOLD_IN_CHARACTER = re.compile(rb"(?:\r\n|\r|\n)[ \t](?=[\x80-\xbf])")


def decode_icalendar(raw: bytes) -> str:
    """The text of an iCalendar file, whose lines may be folded between the octets of a character.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    return _FOLD_IN_CHARACTER.sub(b"", raw).decode("utf-8-sig")
