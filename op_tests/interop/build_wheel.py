"""Builds the wheel of python/ as pip does, without a network, and unpacks it.

Usage: build_wheel.py COPY-OF-PACKAGE FOLDER
"""

import os
import sys
import zipfile

import setuptools.command.bdist_wheel  # noqa: F401  setuptools 84 cannot import it later
import setuptools.build_meta


def main():
    source, folder = (os.path.abspath(path) for path in sys.argv[1:])
    os.chdir(source)
    wheel = setuptools.build_meta.build_wheel(folder)
    with zipfile.ZipFile(os.path.join(folder, wheel)) as packed:
        packed.extractall(folder)
        compiled = [name for name in packed.namelist() if name.endswith((".so", ".pyd"))]
    assert not compiled and wheel.endswith("-none-any.whl"), f"{wheel} holds compiled files: {compiled}"


main()
