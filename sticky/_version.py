"""The version, in one place: setup.cfg and the `version` command read it here."""

__version__ = "0.1.0"
