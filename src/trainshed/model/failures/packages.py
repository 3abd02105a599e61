"""Failures of the environment: what is not installed, or does not fit together."""

from __future__ import annotations

from trainshed.model.failures.known_failure import known

__all__ = ["PACKAGE_FAILURES"]

PACKAGE_FAILURES = (
    known(
        "paddle_fluid",
        r"No module named 'paddle\.fluid'",
        "this version of Paddle has no paddle.fluid any more",
        "Use paddle.nn, paddle.optimizer and paddle.distributed.fleet in its place, or an engine with Paddle 2.4.",
    ),
    known(
        "mindspore_transforms",
        r"No module named 'mindspore\.dataset\.(?:vision|transforms)\.(?:c|py)_transforms'|"
        r"cannot import name '(?:c|py)_transforms' from 'mindspore\.dataset",
        "this version of MindSpore has no c_transforms and py_transforms any more",
        "Import mindspore.dataset.vision and mindspore.dataset.transforms themselves, or take an engine with "
        "MindSpore 1.x; mindvision needs MindSpore 1.x as well.",
    ),
    known(
        "missing_module",
        r"(?:ModuleNotFoundError: |Error while finding module specification for .{0,200}?|: )No module named "
        r"'?([\w.]{1,200})'?",
        "the module '{0}' is not installed",
        "Add '{0}' to requirements.txt beside the boot file, or choose an engine that has it.",
    ),
    known(
        "numpy_abi",
        r"A module that was compiled using NumPy 1\.x cannot be run in|numpy\.dtype size changed|"
        r"_ARRAY_API not found|numpy\.core\.multiarray failed to import|numpy\.ufunc size changed",
        "a package was built for another version of NumPy",
        "Add `numpy<2` to requirements.txt, or a newer version of the package that the traceback names.",
    ),
    known(
        "numpy_alias",
        r"module 'numpy' has no attribute '(\w+)'|`np\.(\w+)` was (?:a deprecated alias|removed)",
        "the script uses a name that this NumPy has no more",
        "Use the Python type or the name that the message proposes, or add `numpy<1.24` to requirements.txt.",
    ),
    known(
        "protobuf",
        r"Descriptors cannot (?:not )?be created directly",
        "the installed protobuf is too new for another package",
        "Add `protobuf<=3.20.3` to requirements.txt, or set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python.",
    ),
    known(
        "old_system_library",
        r"version [`']((?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,20})' not found",
        "a program was built for a newer system: it needs {0}",
        "Install it from requirements.txt, so that it is built for this machine, or take an older version.",
    ),
    known(
        "undefined_symbol",
        r"undefined symbol: (\w{1,200})",
        "two libraries do not fit together: the symbol {0} is missing",
        "Install packages that belong to one version of the framework, all from requirements.txt.",
    ),
    known(
        "missing_library",
        r"(lib[\w.+-]{1,100}\.so[\w.]{0,20}): cannot open shared object file",
        "the system library {0} is missing",
        "Take a package that brings it (opencv-python-headless needs no libGL), or ask the administrator.",
    ),
    known(
        "pip_failed",
        r"ERROR: (?:No matching distribution found for|Could not find a version that satisfies the requirement) "
        r"(\S{1,200})",
        "pip found no package {0}",
        "Check its name and version for this Python; without `network: open` a job cannot install while it runs: "
        "put packages into requirements.txt.",
    ),
    known(
        "pip_failed",
        r"ERROR: Failed building wheel for (\S{1,100})|error: subprocess-exited-with-error|"
        r"ERROR: Could not (?:install packages|build wheels)",
        "pip could not install a package",
        "Read pip's own error above; take a version with a wheel for this Python.",
    ),
    known(
        "missing_name",
        r"ImportError: cannot import name '([^']{1,100})' from '([^']{1,200})'",
        "'{0}' is not in the installed version of '{1}'",
        "Check the spelling, or fix the version of '{1}' in requirements.txt to the one the script was written for.",
    ),
)
