# Finds libtorch, from a zip or from a Python wheel, CPU or CUDA build, without a CUDA toolkit.
#
# Looked for in: the cache or environment variable LIBTORCH (a libtorch folder, a 'torch' package folder, a
# site-packages folder, or a virtual environment), the project's own .venv, the active Python.
# Defines the target Libtorch::Libtorch, with a CUDA build Libtorch::Cuda, and Libtorch_VERSION, Libtorch_DIR_FOUND,
# Libtorch_HAS_CUDA. Libtorch::Libtorch links Libtorch::Cuda unless Libtorch_CUDA_ON_DEMAND is set: then programs start without
# CUDA, and load it (rondo/device/cards.h).
#
# Libtorch_LINK names a symbolic link to be made to the folder of libtorch. Targets then link libtorch by it, so that what they
# are linked to does not depend on where libtorch is.
#
# The CMake package inside a CUDA wheel calls enable_language(CUDA); this module links the libraries directly
# so that a machine with only the wheel can build.
set(_hints)
set(_given "${LIBTORCH}")
if(NOT _given)
  set(_given "$ENV{LIBTORCH}")
endif()
if(_given)
  file(GLOB _hints LIST_DIRECTORIES true "${_given}" "${_given}/torch" "${_given}/libtorch"
       "${_given}/lib/python3*/site-packages/torch")
else()
  file(GLOB _hints LIST_DIRECTORIES true
       "${CMAKE_CURRENT_LIST_DIR}/../.venv/lib/python3*/site-packages/torch")
  if(NOT _hints)
    execute_process(
      COMMAND python3 -c "import importlib.util as u; s=u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE _python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(_hints "${_python_torch}")
  endif()
endif()

unset(Libtorch_DIR_FOUND)
foreach(_dir IN LISTS _hints)
  if(EXISTS "${_dir}/include/torch/csrc/api/include/torch/torch.h" AND EXISTS "${_dir}/lib/libtorch_cpu.so")
    get_filename_component(Libtorch_DIR_FOUND "${_dir}" REALPATH)
    break()
  endif()
endforeach()
if(_given AND NOT Libtorch_DIR_FOUND)
  message(FATAL_ERROR "LIBTORCH=${_given} holds no libtorch (looked for include/torch and lib/libtorch_cpu.so there, "
                      "in its torch/ and libtorch/ folders, and in its site-packages).")
endif()

set(Libtorch_VERSION "")
if(Libtorch_DIR_FOUND)
  set(_version_header "${Libtorch_DIR_FOUND}/include/torch/headeronly/version.h")
  if(NOT EXISTS "${_version_header}")
    set(_version_header "${Libtorch_DIR_FOUND}/include/torch/csrc/api/include/torch/version.h")
  endif()
  file(STRINGS "${_version_header}" _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  foreach(_part MAJOR MINOR PATCH)
    if("${_lines}" MATCHES "TORCH_VERSION_${_part} ([0-9]+)")
      list(APPEND _parts ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN _parts "." Libtorch_VERSION)
  unset(_parts)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Libtorch
  REQUIRED_VARS Libtorch_DIR_FOUND
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "Run 'make setup' (it installs torch into .venv), or set LIBTORCH=/path/to/libtorch.")

if(Libtorch_FOUND AND Libtorch_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "rondo needs libtorch >= 2.11; ${Libtorch_DIR_FOUND} is ${Libtorch_VERSION}.")
endif()

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  set(_lib "${Libtorch_DIR_FOUND}/lib")
  if(Libtorch_LINK)
    get_filename_component(_folder "${Libtorch_LINK}" DIRECTORY)
    file(MAKE_DIRECTORY "${_folder}")
    file(CREATE_LINK "${Libtorch_DIR_FOUND}" "${Libtorch_LINK}" SYMBOLIC)
    set(_lib "${Libtorch_LINK}/lib")
  endif()
  set(Libtorch_HAS_CUDA OFF)
  add_library(Libtorch::Libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(
    Libtorch::Libtorch SYSTEM INTERFACE "${Libtorch_DIR_FOUND}/include"
                                        "${Libtorch_DIR_FOUND}/include/torch/csrc/api/include")
  # Never libtorch.so: it is empty but for what a CUDA wheel's holds of a static libstdc++, whose std::filesystem calls null
  # symbols.
  target_link_libraries(Libtorch::Libtorch INTERFACE "${_lib}/libtorch_cpu.so" "${_lib}/libc10.so")
  if(EXISTS "${_lib}/libtorch_cuda.so")
    set(Libtorch_HAS_CUDA ON)
    target_link_options(Libtorch::Libtorch INTERFACE -Wl,--allow-shlib-undefined)
    add_library(Libtorch::Cuda INTERFACE IMPORTED GLOBAL)
    # libtorch registers its CUDA kernels when libtorch_cuda is loaded, so it must stay linked although no
    # symbol of it is used by name.
    target_link_libraries(Libtorch::Cuda INTERFACE -Wl,--push-state,--no-as-needed "${_lib}/libtorch_cuda.so"
                                                   "${_lib}/libc10_cuda.so" -Wl,--pop-state)
    if(NOT Libtorch_CUDA_ON_DEMAND)
      target_link_libraries(Libtorch::Libtorch INTERFACE Libtorch::Cuda)
    endif()
  endif()
  target_compile_definitions(Libtorch::Libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
endif()
