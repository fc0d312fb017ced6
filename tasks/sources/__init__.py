"""Where data that is not generated comes from: archives, downloads, releases and exports."""

__all__ = ["archives", "copies", "downloads", "exports", "releases", "tables"]
