"""What an operator sees: log fields and their redaction."""
