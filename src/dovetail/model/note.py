"""A sentence about a result for its reader, with a code by which programs know what it is about."""

from __future__ import annotations

__all__ = ["Note"]


class Note(str):
    """The text of a note; ``code`` is one word for what it says, whatever the words.

    A plain text among the notes of a result has the code ``note``.

    >>> Note("Nothing is known of mm as gpu: no job is simulated so.", "unknown").code
    'unknown'
    """

    code: str

    def __new__(cls, text: str, code: str = "note") -> Note:
        """A note of that text."""
        note = super().__new__(cls, text)
        note.code = code
        return note

    def __reduce__(self) -> tuple[type[Note], tuple[str, str]]:
        """Results go between processes."""
        return Note, (str(self), self.code)
