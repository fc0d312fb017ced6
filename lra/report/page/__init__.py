"""The page of a report, and the tables of numbers beside it."""
