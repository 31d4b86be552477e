"""Tests of Sticky, in folders as the code is. An example that takes long is no failure: machines are busy with other things, too."""

from hypothesis import HealthCheck, settings

settings.register_profile("sticky", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sticky")
