"""A project of several files, as users have them: checked under mypy --strict by the test next door."""
