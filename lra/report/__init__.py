"""Records turned into tables, charts, a page and the blocks of README files.

`data` reads a results folder, `boards` says which results compare, `scores` what they are.
Functions in `tables` make a `Table` of them, and those in `charts` the points of a `Chart`.
What a user sees is made by `screen` and `run_screen` (terminal), `page`, `paper` and `readme`.
"""
