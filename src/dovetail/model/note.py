"""A sentence about a result for its reader, with a code by which programs know what it is about."""

from __future__ import annotations

__all__ = ["Note"]


class Note(str):
    """The text of a note; ``code`` is one word for its subject, whatever the text.

    ``unknown``: nothing is known of some way to run jobs. ``not_as_named``: the policy could not do what its
    name promises. ``expected``: times are a history's. ``model``: a history's device models were taken.
    ``best_effort``: promises rest on expected times. ``recorded``: what a log lacks, or has in an odd form.
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

    @staticmethod
    def code_of(text: str) -> str:
        """The code of a note, or of a plain text."""
        return text.code if isinstance(text, Note) else "note"

    def __reduce__(self) -> tuple[type[Note], tuple[str, str]]:
        """Results go between processes."""
        return Note, (str(self), self.code)
