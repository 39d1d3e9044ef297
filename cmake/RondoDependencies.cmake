# Every outside library, found once. What is missing is named with the command that gets it.
function(rondo_require name debian_package)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "rondo needs ${name}, which was not found. On Debian or Ubuntu: "
                        "apt-get install ${debian_package}  (or run 'make setup')")
  endif()
endfunction()

find_package(Threads REQUIRED)
find_package(spdlog QUIET)
rondo_require(spdlog libspdlog-dev)
find_package(nlohmann_json QUIET)
rondo_require(nlohmann_json nlohmann-json3-dev)
# Its headers alone: Debian's CMake package links a shared library, which an installed rondo would need, too.
find_path(RONDO_TOML_INCLUDE_DIR toml++/toml.h)
set(tomlplusplus_FOUND ${RONDO_TOML_INCLUDE_DIR})
rondo_require(tomlplusplus libtomlplusplus-dev)
find_package(CLI11 QUIET)
if(RONDO_BUILD_APPS)
  rondo_require(CLI11 libcli11-dev)
endif()

find_package(Xxhash QUIET)
rondo_require(Xxhash libxxhash-dev)
find_package(ZeroMQ QUIET)
rondo_require(ZeroMQ libzmq3-dev)

find_package(Libtorch REQUIRED)

# The solver of the planner, which without it answers by heuristics.
find_package(Highs QUIET)
# Inside the project, as in .venv, it is in no run path: a build has a link to it, and an installation a copy of it.
string(FIND "${HIGHS_LIBRARY}" "${PROJECT_SOURCE_DIR}/" RONDO_HIGHS_IN_PROJECT)
if(Highs_FOUND AND RONDO_HIGHS_IN_PROJECT EQUAL 0 AND RONDO_IS_TOP_LEVEL)
  get_filename_component(_name "${HIGHS_LIBRARY}" NAME)
  file(CREATE_LINK "${HIGHS_LIBRARY}" "${CMAKE_BINARY_DIR}/${RONDO_PRIVATE_LIBRARIES}/${_name}" SYMBOLIC)
  unset(_name)
endif()

# Images: optional. JPEG only by libjpeg-turbo, which can decode a part of an image.
find_package(JPEG QUIET)
find_package(PNG QUIET)
set(RONDO_HAVE_JPEG OFF)
set(RONDO_HAVE_PNG ${PNG_FOUND})
if(JPEG_FOUND)
  include(CheckSymbolExists)
  set(CMAKE_REQUIRED_LIBRARIES JPEG::JPEG)
  check_symbol_exists(jpeg_crop_scanline "stdio.h;jpeglib.h" RONDO_JPEG_IS_TURBO)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(RONDO_JPEG_IS_TURBO)
    set(RONDO_HAVE_JPEG ON)
  endif()
endif()

include(RondoMpi)

find_path(GLOO_INCLUDE_DIR gloo/context.h)
set(RONDO_HAVE_GLOO OFF)
if(RONDO_WITH_GLOO AND GLOO_INCLUDE_DIR)
  set(RONDO_HAVE_GLOO ON)
endif()

# Chart.js, which the HTML report carries inside. Debian's package holds the minified build; -DRONDO_CHART_LIBRARY=FILE
# names another copy of version 3 or 4.
if(RONDO_BUILD_APPS)
  find_file(RONDO_CHART_LIBRARY NAMES chart.min.js Chart.min.js chart.umd.js
            PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
                  /usr/local/lib/node_modules/chart.js/dist)
  set(chart_FOUND ${RONDO_CHART_LIBRARY})
  rondo_require(chart libjs-chart.js)
  file(STRINGS "${RONDO_CHART_LIBRARY}" chart_banner LIMIT_INPUT 400 REGEX "Chart.js v[34]")
  if(NOT chart_banner)
    message(FATAL_ERROR "rondo needs Chart.js version 3 or 4; ${RONDO_CHART_LIBRARY} is not one of them. "
                        "Name another file with -DRONDO_CHART_LIBRARY=FILE.")
  endif()
endif()

if(RONDO_BUILD_TESTS)
  find_package(GTest QUIET)
  rondo_require(GTest libgtest-dev)
endif()
