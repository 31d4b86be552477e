"""Builds the optional compiled reader of heads where Cython and a C compiler are; all else is in setup.cfg."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:  # the reader in Python does the same
    extensions = []
else:
    extensions = cythonize([Extension("sticky.edge._plain", ["sticky/edge/_plain.pyx"], optional=True)], quiet=True)

setup(ext_modules=extensions)
