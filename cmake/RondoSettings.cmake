# Compiler settings that every target of rondo shares.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Programs compile like libraries, so that both can use one precompiled header.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE "-fPIC")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(RONDO_SANITIZE MATCHES "address")
  # Most of the time goes into compiling.
  set(CMAKE_CXX_FLAGS_RELEASE "-O0")
elseif(RONDO_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
elseif(RONDO_COVERAGE)
  # Lines stay what they are in the sources.
  set(CMAKE_CXX_FLAGS_RELEASE "-O0")
elseif(RONDO_IS_TOP_LEVEL)
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
  # g++ 12 sees less at -O1, so it takes members of libtorch's classes for unset ones.
  set(RONDO_CALLER_OPTIMISATION $<$<CONFIG:Release>:-O1>
      $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
  set(RONDO_TEST_OPTIMISATION $<$<CONFIG:Release>:-Og>)
  set(RONDO_TORCH_TEST_OPTIMISATION $<$<CONFIG:Release>:-O0>)
endif()
if(RONDO_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
endif()

# Forty-five files of a target are compiled as one (a unity build): what they include is read once, which is most of the time
# of a file on libtorch. With RONDO_UNITY=OFF, as the preset `dev` has it, a changed file is compiled alone.
if(RONDO_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 45)
endif()

add_library(rondo_settings INTERFACE)
target_compile_features(rondo_settings INTERFACE cxx_std_20)
target_compile_options(rondo_settings INTERFACE -Wall -Wextra -Wpedantic
                       # In a unity build no .cpp is the main file, so g++ takes their own classes for a header's.
                       $<$<AND:$<BOOL:${RONDO_UNITY}>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>
                       $<$<BOOL:${RONDO_WARNINGS_AS_ERRORS}>:-Werror>
                       # g++ looks for garbage after each doubling of what it keeps, from 128 MB on: an eighth of the time of
                       # a file on libtorch, which saves it a tenth of its memory.
                       $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=400>
                       $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)
if(RONDO_SANITIZE)
  # With a sanitizer's checks in between g++ no longer sees that members of libtorch's classes are set.
  target_compile_options(rondo_settings INTERFACE -Wno-maybe-uninitialized)
  add_compile_options(-fsanitize=${RONDO_SANITIZE} -fno-omit-frame-pointer -g1)
  # As libtorch is built: checks in its headers would read what it does not write.
  add_compile_definitions(NDEBUG)
  if(RONDO_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # g++ warns of fences, which the sanitizer does not follow: scripts/sanitize.sh leaves out what relies on them.
    add_compile_options(-Wno-tsan)
  endif()
  add_link_options(-fsanitize=${RONDO_SANITIZE})
  add_compile_definitions(RONDO_REPORTS_AT_EXIT)
endif()

# Sources compile to the same bytes in any folder.
if(RONDO_MAP_PATHS)
  add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=" "-ffile-prefix-map=${CMAKE_BINARY_DIR}/=build/")
endif()

if(RONDO_COVERAGE)
  # Ranks are threads that count at the same time.
  add_compile_options(--coverage -fprofile-update=prefer-atomic)
  add_compile_definitions(RONDO_REPORTS_AT_EXIT)
  add_link_options(--coverage)
endif()

find_program(RONDO_CCACHE ccache)
if(RONDO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND RONDO_IS_TOP_LEVEL)
  # The sloppiness is what ccache's manual asks for with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${RONDO_CCACHE})
endif()
# The launcher for other builds of the same sources (tests/integration/external_test.py).
set(RONDO_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}" CACHE INTERNAL "Prefix of the compiler's command line")
# The first fast linker that is here and that the compiler knows (g++ knows mold from version 12 on).
include(CheckLinkerFlag)
foreach(linker mold lld)
  find_program(RONDO_LINKER_${linker} NAMES ${linker} ld.${linker})
  if(RONDO_LINKER_${linker})
    check_linker_flag(CXX -fuse-ld=${linker} RONDO_COMPILER_KNOWS_${linker})
    if(RONDO_COMPILER_KNOWS_${linker})
      # Segments begin on pages of their own: else mold 1.10 may let RELRO begin with .tbss in the gap behind the code, where
      # nothing is mapped. Whether it does depends on sizes alone, and such a program does not start ("cannot apply additional
      # memory protection after relocation").
      add_link_options(-fuse-ld=${linker} -Wl,-z,separate-code)
      break()
    endif()
  endif()
endforeach()
