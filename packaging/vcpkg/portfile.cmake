# An overlay port of vcpkg that builds rondo from the checkout it lies in. Libraries other than libtorch and HiGHS are those of
# the system, which scripts/install_packages.sh installs:
#
#     LIBTORCH=/path/of/libtorch vcpkg install rondo --overlay-ports=packaging/vcpkg
if(NOT DEFINED ENV{LIBTORCH})
  message(FATAL_ERROR "no libtorch is named: LIBTORCH=/path vcpkg install rondo")
endif()
# The library is built as a release, which also serves programs that are built for debugging.
set(VCPKG_BUILD_TYPE release)
# Programs find each other in their own folder, and libraries in ../lib by their own run paths.
set(VCPKG_POLICY_ALLOW_EXES_IN_BIN enabled)
set(VCPKG_POLICY_DLLS_IN_STATIC_LIBRARY enabled)
set(VCPKG_FIXUP_ELF_RPATH OFF)
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../.." ABSOLUTE)
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES programs RONDO_BUILD_APPS)
execute_process(COMMAND git -C "${SOURCE_PATH}" rev-parse HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${features}
          "-DLIBTORCH=$ENV{LIBTORCH}"
          "-DHIGHS_DIR=$ENV{HIGHS_DIR}"
          "-DRONDO_COMMIT=${commit}"
          -DRONDO_BUILD_TESTS=OFF
          -DRONDO_BUILD_EXAMPLES=OFF
          -DRONDO_BUILD_PYTHON=OFF
          -DRONDO_MAP_PATHS=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/rondo)
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE" "${SOURCE_PATH}/NOTICE")
