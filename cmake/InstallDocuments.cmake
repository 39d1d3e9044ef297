# Run by `cmake --install`: README.md, LICENSE, NOTICE, docs/ and examples/ below share/rondo, and with them, in the same layout, every
# file of the project that an installed document links to. So no link of an installed document is dead.
#
# Wants SOURCE (the project's folder) and DESTINATION (share/rondo, from the prefix).
cmake_policy(VERSION 3.22)
# file(INSTALL) puts DESTDIR before it.
set(prefix "${CMAKE_INSTALL_PREFIX}/${DESTINATION}")

# The project's files that the Markdown file `document` links to, from the project's folder.
function(linked_files document result)
  file(READ "${SOURCE}/${document}" text)
  get_filename_component(folder "${SOURCE}/${document}" DIRECTORY)
  # Brackets and semicolons mean something in CMake's lists.
  string(REPLACE "](" "\n@@" text "${text}")
  string(REGEX REPLACE "[][;]" " " text "${text}")
  string(REGEX MATCHALL "@@[^)# \n]+" links "${text}")
  set(files)
  foreach(link IN LISTS links)
    string(SUBSTRING "${link}" 2 -1 link)
    get_filename_component(target "${link}" ABSOLUTE BASE_DIR "${folder}")
    if(EXISTS "${target}" AND NOT IS_DIRECTORY "${target}")
      file(RELATIVE_PATH target "${SOURCE}" "${target}")
      if(NOT target MATCHES "^\\.\\.")
        list(APPEND files "${target}")
      endif()
    endif()
  endforeach()
  set(${result} "${files}" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE wanted RELATIVE "${SOURCE}" "${SOURCE}/docs/*" "${SOURCE}/examples/*")
list(APPEND wanted LICENSE NOTICE README.md)
set(installed)
while(wanted)
  list(POP_FRONT wanted file)
  if(file IN_LIST installed)
    continue()
  endif()
  list(APPEND installed "${file}")
  get_filename_component(folder "${file}" DIRECTORY)
  file(INSTALL "${SOURCE}/${file}" DESTINATION "${prefix}/${folder}" TYPE FILE MESSAGE_LAZY)
  if(file MATCHES "\\.md$")
    linked_files("${file}" more)
    list(APPEND wanted ${more})
  endif()
endwhile()
