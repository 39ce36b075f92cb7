"""The command `hopplus`: one file a command, each a few lines over the library.

Only the standard library, tyro and rich may be imported at the top of these files, so that `hopplus --help` answers at
once; everything else is imported where it is used.
"""
