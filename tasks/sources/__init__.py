"""Where data that is not generated comes from: archives, tables, downloads, releases, exports."""

__all__ = ["archives", "copies", "downloads", "exports", "parquet", "releases", "tables"]
