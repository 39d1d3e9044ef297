"""A recipe of Spack that builds rondo from the checkout it lies in. Libraries other than libtorch and HiGHS are those of the system, which
scripts/install_packages.sh installs:

    spack repo add packaging/spack
    spack install rondo libtorch=/path/of/libtorch
"""
import pathlib
import re
import subprocess

from spack.package import *

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
VERSION = re.search(r'#define RONDO_VERSION "(.+)"', (CHECKOUT / "rondo/base/version.h").read_text())[1]
COMMIT = subprocess.run(["git", "-C", str(CHECKOUT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


class Rondo(CMakePackage):
    """Distributed training for libtorch, in C++."""

    git = CHECKOUT.as_uri()
    license("Apache-2.0")
    version(VERSION, commit=COMMIT)

    variant("libtorch", default="none", values=lambda path: True, description="Folder of libtorch, or a virtual environment with torch")
    variant("highs", default="none", values=lambda path: True, description="Folder of the HiGHS library")
    variant("programs", default=True, description="The program rondo and its subcommands")

    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    generator("ninja")
    conflicts("libtorch=none", msg="no libtorch is named: spack install rondo libtorch=/path")
    conflicts("platform=darwin", msg="rondo runs on Linux")
    conflicts("platform=windows", msg="rondo runs on Linux")

    def cmake_args(self):
        values = self.spec.variants
        arguments = [
            self.define("LIBTORCH", values["libtorch"].value),
            self.define("RONDO_COMMIT", COMMIT),
            self.define_from_variant("RONDO_BUILD_APPS", "programs"),
            self.define("RONDO_BUILD_TESTS", False),
            self.define("RONDO_BUILD_EXAMPLES", False),
            self.define("RONDO_BUILD_PYTHON", "OFF"),
            self.define("RONDO_MAP_PATHS", True),
        ]
        if values["highs"].value != "none":
            arguments.append(self.define("HIGHS_DIR", values["highs"].value))
        return arguments
