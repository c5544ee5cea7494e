"""The command `hanji`, and the C++ library:

    cmake -DCMAKE_PREFIX_PATH=$(python -c 'import hanji; print(hanji.prefix)')
"""

import pathlib

__all__ = ["prefix"]

prefix = pathlib.Path(__file__).resolve().parent
