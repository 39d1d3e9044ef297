"""A recipe of Conan 2 that builds rondo from the checkout it lies in. Libraries other than libtorch and HiGHS are those of the system, which
scripts/install_packages.sh installs:

    conan create packaging/conan -s compiler.cppstd=20 -o "rondo/*:libtorch=/path/of/libtorch"
"""
import pathlib
import re
import shutil
import subprocess

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import update_conandata


class Rondo(ConanFile):
    name = "rondo"
    description = "Distributed training for libtorch, in C++"
    license = "Apache-2.0"
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"libtorch": ["ANY"], "highs": ["ANY"]}
    default_options = {"libtorch": "", "highs": ""}

    @property
    def _checkout(self):
        return pathlib.Path(self.recipe_folder).parents[1]

    def set_version(self):
        self.version = re.search(r'#define RONDO_VERSION "(.+)"', (self._checkout / "rondo/base/version.h").read_text())[1]

    def _git(self, *words):
        return subprocess.run(["git", "-C", str(self._checkout), *words], capture_output=True, text=True, check=True).stdout

    def export(self):
        update_conandata(self, {"commit": self._git("rev-parse", "HEAD").strip()})

    def export_sources(self):
        for name in self._git("ls-files").splitlines():
            target = pathlib.Path(self.export_sources_folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._checkout / name, target)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("rondo runs on Linux")
        if not self.options.libtorch:
            raise ConanInvalidConfiguration('no libtorch is named: -o "rondo/*:libtorch=/path"')

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["LIBTORCH"] = str(self.options.libtorch)
        toolchain.cache_variables["RONDO_COMMIT"] = self.conan_data["commit"]
        toolchain.cache_variables["RONDO_BUILD_TESTS"] = False
        toolchain.cache_variables["RONDO_BUILD_EXAMPLES"] = False
        toolchain.cache_variables["RONDO_BUILD_PYTHON"] = "OFF"
        toolchain.cache_variables["RONDO_MAP_PATHS"] = True
        if self.options.highs:
            toolchain.cache_variables["HIGHS_DIR"] = str(self.options.highs)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The package has its own files of CMake.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/rondo"]
