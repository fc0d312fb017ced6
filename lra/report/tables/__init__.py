"""Functions that make tables, and the forms that a table is written in."""
