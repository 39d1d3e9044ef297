# Finds the HiGHS library for linear and mixed-integer programs and defines the target Highs::Highs.
#
# Looked for in this order: -DHIGHS_DIR=, the Python package highsbox in the project's .venv, the system. Only its C API is
# used, so a library that was built with another C++ ABI will do.
file(GLOB _highs_wheels LIST_DIRECTORIES true
     "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/highsbox/highs_dist")
find_path(HIGHS_INCLUDE_DIR interfaces/highs_c_api.h HINTS ${HIGHS_DIR} ${_highs_wheels}
          PATH_SUFFIXES include/highs include)
find_library(HIGHS_LIBRARY highs HINTS ${HIGHS_DIR} ${_highs_wheels} PATH_SUFFIXES lib lib64)
mark_as_advanced(HIGHS_INCLUDE_DIR HIGHS_LIBRARY)
unset(_highs_wheels)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Highs
  REQUIRED_VARS HIGHS_LIBRARY HIGHS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "'make setup' installs it into .venv (Python package highsbox), or set HIGHS_DIR=/path/to/highs.")

if(Highs_FOUND AND NOT TARGET Highs::Highs)
  get_filename_component(_highs_generated "${HIGHS_INCLUDE_DIR}" DIRECTORY)
  add_library(Highs::Highs UNKNOWN IMPORTED GLOBAL)
  set_target_properties(Highs::Highs PROPERTIES IMPORTED_LOCATION "${HIGHS_LIBRARY}"
                                                INTERFACE_INCLUDE_DIRECTORIES "${HIGHS_INCLUDE_DIR};${_highs_generated}"
                                                INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${HIGHS_INCLUDE_DIR};${_highs_generated}")
endif()
