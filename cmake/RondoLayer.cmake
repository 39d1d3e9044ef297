# One static library per folder of rondo/: rondo_layer(NAME [TORCH [CALLER]] [USES layer...] [LINK target...] [OPTIONS file...])
#
# TORCH    the layer is built on libtorch and shares the precompiled header.
# CALLER   see rondo_use_torch.
# USES     the layers it may include; the list is also what tests/layers_test.py checks includes against.
# OPTIONS  see rondo_layer_options; files besides those named *_options.cpp.
set(RONDO_TORCH_LAYERS "" CACHE INTERNAL "")
set(RONDO_CORE_LAYERS "" CACHE INTERNAL "")
set(RONDO_OPTIONS_LAYERS "" CACHE INTERNAL "")

# The precompiled header of all files on libtorch. Not <torch/torch.h>: g++ instantiates a precompiled header's pending
# templates again in every file, which costs 18 s each with the umbrella header and 3 s with this one. clang instantiates
# them once, in the header: scripts/common.sh gives it the umbrella header.
set(RONDO_PRECOMPILED_HEADERS "<torch/types.h>" CACHE STRING "The precompiled header of what is built on libtorch")
mark_as_advanced(RONDO_PRECOMPILED_HEADERS)

# Another one for tests, since a precompiled header is compiled with the same settings as what uses it.
function(rondo_torch_header)
  file(WRITE "${CMAKE_BINARY_DIR}/generated/rondo_torch_header.cpp" "// Carries the precompiled header.\n")
  foreach(header rondo_torch_header rondo_torch_header_of_tests)
    add_library(${header} STATIC EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/generated/rondo_torch_header.cpp")
    target_link_libraries(${header} PRIVATE Libtorch::Libtorch rondo_settings)
    target_precompile_headers(${header} PRIVATE ${RONDO_PRECOMPILED_HEADERS})
  endforeach()
  rondo_compile_as_torch_test(rondo_torch_header_of_tests)
endfunction()

# A program of tests or an example calls the layers and computes little itself. Optimising what libtorch's headers make would be
# most of its compile time; without libtorch only -O2 costs more than it gives.
function(rondo_compile_as_test target)
  target_compile_options(${target} PRIVATE ${RONDO_TEST_OPTIMISATION})
endfunction()

function(rondo_compile_as_torch_test target)
  target_compile_options(${target} PRIVATE ${RONDO_TORCH_TEST_OPTIMISATION})
endfunction()

# rondo_use_torch(TARGET [TEST|CALLER]); TEST: compiled as a test. CALLER: it calls others in a step, and computes nothing in one, so
# less is optimised, which takes a seventh of its compile time.
function(rondo_use_torch target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TEST;CALLER" "" "")
  target_link_libraries(${target} PUBLIC Libtorch::Libtorch)
  if(arg_TEST)
    rondo_compile_as_torch_test(${target})
    target_precompile_headers(${target} REUSE_FROM rondo_torch_header_of_tests)
  else()
    if(arg_CALLER)
      target_compile_options(${target} PRIVATE ${RONDO_CALLER_OPTIMISATION})
    endif()
    target_precompile_headers(${target} REUSE_FROM rondo_torch_header)
  endif()
endfunction()

# A program that loads models from shared modules (rondo/models/model_file.h): it holds and exports all of the layers that a
# module may use.
function(rondo_loads_models target)
  set(archives "")
  foreach(layer base nn models)
    target_link_libraries(${target} PRIVATE rondo_${layer})
    string(APPEND archives ",$<TARGET_FILE:rondo_${layer}>")
  endforeach()
  set(exported "${PROJECT_SOURCE_DIR}/cmake/model_modules.list")
  target_link_options(${target} PRIVATE "LINKER:--whole-archive${archives},--no-whole-archive"
                                        "LINKER:--dynamic-list=${exported}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${exported}")
endfunction()

# rondo_<layer>_options: what a layer on libtorch declares about its options, in a library that sees libtorch's headers but
# links nothing of it, so that `rondo train --help` takes milliseconds.
function(rondo_layer_options name sources uses)
  add_library(rondo_${name}_options STATIC ${sources})
  target_compile_features(rondo_${name}_options PUBLIC cxx_std_20)
  target_include_directories(rondo_${name}_options PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                          $<INSTALL_INTERFACE:include>)
  target_include_directories(rondo_${name}_options SYSTEM PRIVATE
                             $<TARGET_PROPERTY:Libtorch::Libtorch,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(rondo_${name}_options PRIVATE $<BUILD_INTERFACE:rondo_settings>)
  foreach(layer IN LISTS uses)
    if(layer IN_LIST RONDO_CORE_LAYERS)
      target_link_libraries(rondo_${name}_options PUBLIC rondo_${layer})
    elseif(layer IN_LIST RONDO_OPTIONS_LAYERS)
      target_link_libraries(rondo_${name}_options PUBLIC rondo_${layer}_options)
    endif()
  endforeach()
  set(RONDO_OPTIONS_LAYERS ${RONDO_OPTIONS_LAYERS} ${name} CACHE INTERNAL "")
endfunction()

function(rondo_layer name)
  cmake_parse_arguments(ARG "TORCH;CALLER" "" "USES;LINK;OPTIONS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/rondo/${name}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "(_highs|_libjpeg|_libpng)\\.cpp$|/rondo/backend/[a-z]+/module/")
  list(TRANSFORM ARG_USES PREPEND rondo_ OUTPUT_VARIABLE uses)
  if(ARG_TORCH)
    file(GLOB_RECURSE options CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/rondo/${name}/*_options.cpp")
    list(TRANSFORM ARG_OPTIONS PREPEND "${PROJECT_SOURCE_DIR}/rondo/${name}/")
    list(APPEND options ${ARG_OPTIONS})
    if(options)
      list(REMOVE_ITEM sources ${options})
      rondo_layer_options(${name} "${options}" "${ARG_USES}")
      target_link_libraries(rondo_${name}_options PUBLIC ${ARG_LINK})
      list(APPEND uses rondo_${name}_options)
    endif()
  endif()
  if(sources)
    set(scope PUBLIC)
    add_library(rondo_${name} STATIC ${sources})
    target_link_libraries(rondo_${name} PRIVATE $<BUILD_INTERFACE:rondo_settings>)
    if(ARG_CALLER)
      rondo_use_torch(rondo_${name} CALLER)
    elseif(ARG_TORCH)
      rondo_use_torch(rondo_${name})
    endif()
  else()
    set(scope INTERFACE)
    add_library(rondo_${name} INTERFACE)
    if(ARG_TORCH)
      target_link_libraries(rondo_${name} INTERFACE Libtorch::Libtorch)
    endif()
  endif()
  target_compile_features(rondo_${name} ${scope} cxx_std_20)
  target_include_directories(rondo_${name} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                    $<INSTALL_INTERFACE:include>)
  target_link_libraries(rondo_${name} ${scope} ${uses} ${ARG_LINK})
  # The name a foreign project links, whether it installed rondo or added it as a subdirectory.
  add_library(rondo::${name} ALIAS rondo_${name})
  if(ARG_TORCH)
    set(RONDO_TORCH_LAYERS ${RONDO_TORCH_LAYERS} ${name} CACHE INTERNAL "")
  else()
    set(RONDO_CORE_LAYERS ${RONDO_CORE_LAYERS} ${name} CACHE INTERNAL "")
  endif()
endfunction()

# Includes each engine's engine.cmake, which finds its system libraries and adds its module. CMakeLists.txt calls this
# after all layers. Its `engine_folder` is that folder.
macro(rondo_engines)
  file(GLOB engines CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/rondo/backend/*/engine.cmake")
  foreach(engine IN LISTS engines)
    get_filename_component(engine_folder "${engine}" DIRECTORY)
    include("${engine}")
  endforeach()
endmacro()

# The planner's solver. Without it rondo plan answers by heuristics, and says so.
function(rondo_highs)
  if(NOT Highs_FOUND)
    message(STATUS "HiGHS was not found: rondo plan will answer by heuristics, without a certified gap. "
                   "'make setup' installs it, or set HIGHS_DIR=/path/to/highs.")
    target_sources(rondo_plan PRIVATE "${PROJECT_SOURCE_DIR}/rondo/plan/solver/no_highs.cpp")
    return()
  endif()
  target_sources(rondo_plan PRIVATE "${PROJECT_SOURCE_DIR}/rondo/plan/solver/solver_highs.cpp")
  target_link_libraries(rondo_plan PRIVATE $<BUILD_INTERFACE:Highs::Highs>)
endfunction()

# JPEG and PNG files. Without a library data sets of such images are refused by name.
function(rondo_images)
  set(folder "${PROJECT_SOURCE_DIR}/rondo/data/image")
  foreach(library jpeg png)
    string(TOUPPER ${library} name)
    if(RONDO_HAVE_${name})
      target_sources(rondo_data PRIVATE "${folder}/decode_lib${library}.cpp")
      # Their macros are nobody else's.
      set_source_files_properties("${folder}/decode_lib${library}.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      target_link_libraries(rondo_data PRIVATE ${name}::${name})
    else()
      message(STATUS "lib${library} was not found: rondo will read no ${name} files. On Debian or Ubuntu: "
                     "apt-get install lib${library}-dev (or run 'make setup')")
      target_sources(rondo_data PRIVATE "${folder}/no_lib${library}.cpp")
    endif()
  endforeach()
  # Loops over pixels, which the compiler makes wide at this level only.
  set_source_files_properties("${folder}/resample.cpp" PROPERTIES COMPILE_OPTIONS "-O3" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# rondo::core is all of the torch-free layers, rondo::rondo everything.
function(rondo_umbrella_targets)
  list(TRANSFORM RONDO_CORE_LAYERS PREPEND rondo_ OUTPUT_VARIABLE core)
  list(TRANSFORM RONDO_TORCH_LAYERS PREPEND rondo_ OUTPUT_VARIABLE torch)
  add_library(rondo_core INTERFACE)
  target_link_libraries(rondo_core INTERFACE ${core})
  add_library(rondo_rondo INTERFACE)
  target_link_libraries(rondo_rondo INTERFACE rondo_core ${torch})
  add_library(rondo::core ALIAS rondo_core)
  add_library(rondo::rondo ALIAS rondo_rondo)
endfunction()

# Loops over numbers are compiled once per instruction set. No contraction into fused multiply-add: results must not
# depend on the processor.
function(rondo_reduction_kernels)
  set(common -O3 -ffp-contract=off)
  foreach(kernels reduction codec/kernels)
    set(file "${PROJECT_SOURCE_DIR}/rondo/collective/${kernels}")
    set_source_files_properties("${file}_baseline.cpp" PROPERTIES COMPILE_OPTIONS "${common}")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      target_compile_definitions(rondo_collective PRIVATE RONDO_X86_KERNELS)
      set_source_files_properties("${file}_avx2.cpp" PROPERTIES COMPILE_OPTIONS "${common};-mavx2;-mf16c;-mprfchw")
      set_source_files_properties(
        "${file}_avx512.cpp"
        PROPERTIES COMPILE_OPTIONS
                   "${common};-mavx2;-mf16c;-mprfchw;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mprefer-vector-width=512")
    endif()
  endforeach()
endfunction()
