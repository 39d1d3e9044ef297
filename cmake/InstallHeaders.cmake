# Run by `cmake --install`: the public headers, which rondo/core.hpp and rondo/rondo.hpp list by including them, and the
# headers that those include in turn, each marked as internal. Nothing else of rondo/ is installed.
#
# Wants SOURCE (the project's folder), DESTINATION (include, from the prefix) and SCRATCH (a folder for marked copies).
cmake_policy(VERSION 3.22)
# file(INSTALL) puts DESTDIR before it.
set(prefix "${CMAKE_INSTALL_PREFIX}/${DESTINATION}")
set(mark "// Internal to rondo: installed because a public header includes it. It may change in any version.\n")

function(included_headers header result)
  file(STRINGS "${SOURCE}/${header}" lines REGEX "^#include \"rondo/")
  list(TRANSFORM lines REPLACE "^#include \"([^\"]+)\".*" "\\1")
  set(${result} "${lines}" PARENT_SCOPE)
endfunction()

set(lists rondo/core.hpp rondo/rondo.hpp)
set(public)
foreach(list IN LISTS lists)
  included_headers(${list} headers)
  list(APPEND public ${headers})
endforeach()

set(wanted ${lists} ${public})
set(installed)
while(wanted)
  list(POP_FRONT wanted header)
  if(header IN_LIST installed)
    continue()
  endif()
  list(APPEND installed ${header})
  get_filename_component(folder "${header}" DIRECTORY)
  set(file "${SOURCE}/${header}")
  if(NOT header IN_LIST public AND NOT header IN_LIST lists)
    file(READ "${file}" text)
    set(file "${SCRATCH}/${header}")
    file(WRITE "${file}" "${mark}${text}")
  endif()
  file(INSTALL "${file}" DESTINATION "${prefix}/${folder}" TYPE FILE MESSAGE_LAZY)
  included_headers(${header} more)
  list(APPEND wanted ${more})
endwhile()
