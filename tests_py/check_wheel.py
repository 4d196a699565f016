# SPDX-License-Identifier: BSD-3-Clause
"""Check the wheel that is installed for this interpreter; exit 77 (skipped) where there is none.

The other tests run against the build tree. This one asks what only a wheel can get wrong: whether
it carries its library and the licences, finds torch's, names its entry point, and loads after
`import torch`.
"""

import importlib.metadata
import subprocess
import sys

CHECKS = """
import pathlib, torch
assert torch.ones(3, device="loom").sum().item() == 3
import torch_loom
assert "site-packages" in torch_loom.__file__, torch_loom.__file__
assert (pathlib.Path(torch_loom._C.__file__).parent / "lib").is_dir()
print("torch-loom", torch_loom.__version__, "works from", torch_loom.__path__[0])
"""

if __name__ == "__main__":
    try:
        files = importlib.metadata.distribution("torch-loom").files or []
    except importlib.metadata.PackageNotFoundError:
        print("torch-loom is not installed: `make install` installs it")
        sys.exit(77)
    licences = [file for file in files if file.name == "COPYRIGHT" and "xbyak" in file.parts]
    if not licences:
        sys.exit("the wheel lacks the licence of the assembler that is compiled into its library")
    sys.exit(subprocess.run([sys.executable, "-I", "-c", CHECKS], check=False).returncode)
