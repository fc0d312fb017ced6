"""What every command needs of the machine and of Python: files, errors, messages, devices."""
