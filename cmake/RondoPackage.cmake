# The target `rondo_package`: what binary packages hold (scripts/package.py), in package/ of the build folder. All layers are in
# three shared libraries, so that they are there once and not in every program, and for projects that link rondo as well:
#
#   librondo_core.so     layers without libtorch, and the options of those on it
#   librondo_plan.so     the planner, which alone loads the solver
#   librondo.so          layers on libtorch
#
# Objects and archives are those of the build; nothing is compiled for it.
set(RONDO_PACKAGE_BINARY_DIR "${CMAKE_BINARY_DIR}/package")
add_custom_target(rondo_package)

# rondo_package_library(NAME LAYERS... LINK libraries...)
function(rondo_package_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LAYERS;LINK")
  set(target ${name}_shared)
  file(WRITE "${CMAKE_BINARY_DIR}/generated/${target}.cpp" "// All of it is in archives.\n")
  add_library(${target} SHARED EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/generated/${target}.cpp")
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} UNITY_BUILD OFF
                        LIBRARY_OUTPUT_DIRECTORY "${RONDO_PACKAGE_BINARY_DIR}/${RONDO_PRIVATE_LIBRARIES}"
                        INSTALL_RPATH "$ORIGIN;$ORIGIN/libtorch/lib;$ORIGIN/../../../torch/lib")
  set(archives "")
  foreach(layer IN LISTS arg_LAYERS)
    get_target_property(type rondo_${layer} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND archives "$<TARGET_FILE:rondo_${layer}>")
      add_dependencies(${target} rondo_${layer})
      set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "$<TARGET_FILE:rondo_${layer}>")
    endif()
  endforeach()
  # Each archive by itself: CMake quotes a path that has a space, and no part of an option.
  target_link_libraries(${target} PRIVATE -Wl,--whole-archive ${archives} -Wl,--no-whole-archive ${arg_LINK} Threads::Threads
                                          ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -Wl,--no-undefined -Wl,--build-id=none)
  add_dependencies(rondo_package ${target})
endfunction()

set(common_libraries spdlog::spdlog Xxhash::Xxhash)
set(core_layers ${RONDO_CORE_LAYERS})
list(REMOVE_ITEM core_layers plan)
list(TRANSFORM RONDO_OPTIONS_LAYERS APPEND _options OUTPUT_VARIABLE options_layers)
rondo_package_library(rondo_core LAYERS ${core_layers} ${options_layers} LINK ${common_libraries})
rondo_package_library(rondo_plan LAYERS plan LINK rondo_core_shared $<TARGET_NAME_IF_EXISTS:Highs::Highs> ${common_libraries})
set(image_libraries "")
foreach(library JPEG PNG)
  if(RONDO_HAVE_${library})
    list(APPEND image_libraries ${library}::${library})
  endif()
endforeach()
rondo_package_library(rondo LAYERS ${RONDO_TORCH_LAYERS}
                      LINK rondo_plan_shared rondo_core_shared Libtorch::Libtorch ${image_libraries} ${common_libraries})

# Targets of a kind that are defined below a folder.
function(rondo_targets_below directory type result)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  set(found "")
  foreach(target IN LISTS targets)
    get_target_property(its_type ${target} TYPE)
    get_target_property(for_development ${target} RONDO_FOR_DEVELOPMENT)
    if(its_type STREQUAL "${type}" AND NOT for_development)
      list(APPEND found ${target})
    endif()
  endforeach()
  get_property(subdirectories DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(subdirectory IN LISTS subdirectories)
    rondo_targets_below("${subdirectory}" ${type} below)
    list(APPEND found ${below})
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Every program, as NAME.packaged. `rondo` has its layers inside, for a quick start; what it is not given is libstdc++, whose
# static library needs a newer glibc than all else.
rondo_targets_below("${PROJECT_SOURCE_DIR}/apps" EXECUTABLE programs)
rondo_targets_below("${PROJECT_SOURCE_DIR}/apps" STATIC_LIBRARY app_libraries)
list(TRANSFORM app_libraries REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE app_archives)
foreach(program IN LISTS programs)
  set(target ${program}_of_package)
  add_executable(${target} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${program}>)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${program} SUFFIX .packaged LINKER_LANGUAGE CXX
                        RUNTIME_OUTPUT_DIRECTORY "${RONDO_PACKAGE_BINARY_DIR}/${CMAKE_INSTALL_BINDIR}")
  target_link_options(${target} PRIVATE -Wl,--as-needed -Wl,--build-id=none)
  get_target_property(linked ${program} LINK_LIBRARIES)
  if(program STREQUAL "rondo")
    target_link_libraries(${target} PRIVATE ${linked})
  else()
    # Libraries that a program does not use directly may define some of the standard library's templates, for which alone it
    # would load them.
    set(libraries rondo_core_shared)
    if("Libtorch::Libtorch" IN_LIST linked)
      set(libraries rondo_shared rondo_plan_shared rondo_core_shared Libtorch::Libtorch)
    elseif("rondo_plan" IN_LIST linked OR "rondo_planning" IN_LIST linked)
      list(PREPEND libraries rondo_plan_shared)
    endif()
    target_link_libraries(${target} PRIVATE -Wl,--start-group ${app_archives} -Wl,--end-group ${libraries} ${common_libraries}
                                            Threads::Threads ${CMAKE_DL_LIBS})
    add_dependencies(${target} ${app_libraries})
  endif()
  add_dependencies(rondo_package ${target})
endforeach()

# Settings of this build for find_package(rondo) in a package.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" libtorch_minor "${Libtorch_VERSION}")
file(WRITE "${RONDO_PACKAGE_BINARY_DIR}/rondoContent.cmake" "set(_rondo_libtorch_minor ${libtorch_minor})\n\
set(_rondo_core_layers ${RONDO_CORE_LAYERS})\nset(_rondo_torch_layers ${RONDO_TORCH_LAYERS})\n")
