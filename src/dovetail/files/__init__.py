"""Reading and writing files: bounded, whole or not at all, every fault one sentence.

    sentences   how a value, a path and an unknown word are shown
    reading     bytes, blocks, lines and text, plain or compressed
    writing     a file in the place of another, a new file, a folder
    fields      the entries of TOML files, each field with its check
    tables      traces with a header line
    specs       ``NAME?option=value&…``

This room stands on the ground: nothing here knows a job or a cluster.
"""
