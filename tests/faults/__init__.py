"""Fault injection: a load of real clients, a daemon that is killed again and again, and a model of what clients were promised."""
