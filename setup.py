"""Builds the optional compiled parts where a C compiler, and for most of them Cython, are; all else is in setup.cfg."""

import os

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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
program = Extension("sticky.containers._spawn", ["sticky/containers/spawn.c"])
extensions.append(program)
for extension in extensions:
    extension.optional = True  # a compiler that is missing or fails stops nothing


class Build(build_ext):
    """One of the parts is no module but a program."""

    def get_ext_filename(self, fullname):
        if fullname.rpartition(".")[2] == program.name.rpartition(".")[2]:  # in place, packages are left out
            return os.path.join(*fullname.split("."))
        return super().get_ext_filename(fullname)

    def build_extension(self, ext):
        if ext.name != program.name:
            super().build_extension(ext)
            return
        folder, name = os.path.split(self.get_ext_fullpath(ext.name))
        objects = self.compiler.compile(ext.sources, output_dir=self.build_temp)
        self.compiler.link_executable(objects, name, output_dir=folder)


setup(ext_modules=extensions, cmdclass={"build_ext": Build})
