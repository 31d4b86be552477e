"""Glowworms: a small multiplayer game whose rooms live in one process's memory."""
