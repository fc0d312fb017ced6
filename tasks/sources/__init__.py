"""Where data that is not generated comes from: archives, downloads, releases, exports."""
