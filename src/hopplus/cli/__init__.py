"""The command `hopplus`: one module per command, each a thin layer over the library.

Modules import only the standard library, tyro and rich at the top, so that `hopplus --help` answers at once. All other
imports are inside functions.
"""
