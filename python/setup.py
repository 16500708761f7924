"""pip install ./python: the package with fusewire's headers and, where a compiler and torch are, its operators."""
import pathlib
import shutil

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

import compile_operators

HERE = pathlib.Path(__file__).resolve().parent


class Build(build_py):
    """Adds the headers, and _C.so. What keeps _C.so from being compiled goes into _missing.txt, for messages."""

    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "fusewire"
        shutil.copytree(HERE.parent / "include" / "fusewire", package / "include" / "fusewire", dirs_exist_ok=True)
        why_not = compile_operators.missing()
        if why_not is None:
            compile_operators.build(package / "_C.so", HERE / "build" / "objects")
        else:
            (package / "_missing.txt").write_text(why_not)
            print("fusewire: the operators are not built:", why_not)


class Wheel(bdist_wheel):
    """_C.so has torch's stable ABI and no symbol of Python's: any Python takes it, of this platform."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = compile_operators.missing() is not None

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(version=compile_operators.version(), cmdclass={"build_py": Build, "bdist_wheel": Wheel})
