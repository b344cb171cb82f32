"""Studies: the papers' tables and figures beside what this scheduler does, and studies of our own.

They stand beside the library and use its public face, as any user's script would; the library never imports
them. A study is one module with a ``command`` and one entry point of the group ``dovetail.studies``
(docs/how-to/add-a-study.md):

- `dovetail_lab.claims`: the statements of a paper, and the verdict when its figure meets our interval;
- `dovetail_lab.study`: a study's tables, charts and claims, as text, as a page, as JSON;
- `dovetail_lab.commands.reproduce`: ``dovetail reproduce``, which finds the studies.
"""
