"""Where data that is not generated comes from: archives, tables, downloads, releases, exports."""
