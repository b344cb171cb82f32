"""Heads of public batch scripts through the reader: nothing of them is dropped silently."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from batch_heads import CORPUS, FORMS, Head, heads

from dovetail.errors import InputError
from dovetail.workloads.batch.head import read_directives
from dovetail.workloads.batch.script import BatchScript, read_script

HEADS = heads(CORPUS)
TEMPLATES = ("{", "$", "<", "%A_OUT%")
"""What marks a head that a program fills in before it is submitted."""


def read(head: Head) -> BatchScript:
    return read_script(head.script, "job.sh", environ=head.environ, words=head.words, path="job.sh")


def fate(script: BatchScript) -> str:
    return "refused" if script.refused else "warned" if script.warned else "honoured"


def test_the_corpus_is_as_large_as_the_page_has_it_and_has_no_head_twice() -> None:
    assert len(HEADS) >= 300
    assert len({head.text for head in HEADS}) == len(HEADS)


def test_every_option_of_every_head_is_in_a_list() -> None:
    """Each option of sbatch's language is honoured, warned about or refused, with its line."""
    for head in HEADS:
        script = read(head)
        notes = [*script.honoured, *script.warned, *script.refused]
        noted = {note.line for note in notes}
        try:
            lines = {line.line for line in read_directives(script.text, "job.sh") if line.words}
        except InputError:  # of several components
            assert script.refused
            continue
        if not script.refused:  # else the rest of the words is not read, as in sbatch
            assert lines <= noted, head.text


def test_what_becomes_of_the_heads() -> None:
    """The figures of the page for people from Slurm."""
    scripts = [(head, read(head)) for head in HEADS]
    ready = [one for head, one in scripts if not any(mark in head.text for mark in TEMPLATES)]
    options: Counter[str] = Counter()
    for one in ready:
        options += Counter(honoured=len(one.honoured), warned=len(one.warned), refused=len(one.refused))
    assert Counter(fate(one) for _, one in scripts) == {"honoured": 169, "warned": 174, "refused": 30}
    assert Counter(map(fate, ready)) == {"honoured": 161, "warned": 166, "refused": 18}
    assert options == {"honoured": 2262, "warned": 256, "refused": 22}
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "coming-from-slurm.md").read_text()
    assert "| 161 | 166 | 18 | 256 |" in page


@pytest.mark.parametrize("head", heads(FORMS), ids=lambda head: head.text)
def test_no_form_ends_in_anything_but_a_sentence(head: Head) -> None:
    script = read(head)
    assert script.refused or script.shares is not None
    assert all(note.effect for note in (*script.honoured, *script.warned, *script.refused))
