"""Builds the optional compiled reader of heads where Cython and a C compiler are; all else is in setup.cfg."""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:  # the reader in Python does the same
    extensions = []
else:
    extensions = cythonize([Extension("sticky.edge._plain", ["sticky/edge/_plain.pyx"])], quiet=True)
    for extension in extensions:
        extension.optional = True  # a compiler that is missing or fails stops nothing

setup(ext_modules=extensions)
