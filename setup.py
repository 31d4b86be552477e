"""Builds the optional compiled parts where Cython and a C compiler are; all else is in setup.cfg."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:  # what is in Python does the same
    extensions = []
else:
    parts = {
        "sticky.edge._events": "sticky/edge/_events.pyx",
        "sticky.edge._plain": "sticky/edge/_plain.pyx",
        "sticky.edge._sockets": "sticky/edge/_sockets.pyx",
        "sticky.observe._line": "sticky/observe/_line.pyx",
    }
    extensions = cythonize([Extension(name, [source]) for name, source in parts.items()], quiet=True)
    for extension in extensions:
        extension.optional = True  # a compiler that is missing or fails stops nothing

setup(ext_modules=extensions)
