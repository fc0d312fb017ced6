"""What models, tasks and the harness all need; it imports nothing else of the suite."""
