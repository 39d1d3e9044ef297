# `cmake --install`: headers, libraries, programs, share/rondo, and the package that find_package(rondo) reads.
#
# Two export sets, so that a program that uses only the torch-free layers needs no libtorch on its machine:
# find_package(rondo COMPONENTS core) defines rondo::core, find_package(rondo) also rondo::rondo.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(RONDO_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/rondo")

function(rondo_export_layers export_set)
  foreach(target IN LISTS ARGN)
    string(REGEX REPLACE "^rondo_" "" exported_name ${target})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${exported_name})
  endforeach()
  install(TARGETS ${ARGN} EXPORT ${export_set} ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT ${export_set} NAMESPACE rondo:: DESTINATION "${RONDO_PACKAGE_DIR}")
endfunction()

list(TRANSFORM RONDO_CORE_LAYERS PREPEND rondo_ OUTPUT_VARIABLE core_targets)
list(TRANSFORM RONDO_TORCH_LAYERS PREPEND rondo_ OUTPUT_VARIABLE torch_targets)
foreach(layer IN LISTS RONDO_OPTIONS_LAYERS)
  list(APPEND torch_targets rondo_${layer}_options)
endforeach()
rondo_export_layers(rondoCoreTargets ${core_targets} rondo_core)
rondo_export_layers(rondoTorchTargets ${torch_targets} rondo_rondo)

set(installed_headers "${CMAKE_CURRENT_BINARY_DIR}/installed_headers")
install(CODE "file(REMOVE_RECURSE \"${installed_headers}\")
              execute_process(COMMAND python3 \"${PROJECT_SOURCE_DIR}/scripts/install_headers.py\"
                                      \"${PROJECT_SOURCE_DIR}\" \"${installed_headers}\" COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY "${installed_headers}/rondo" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" MESSAGE_NEVER)
install(CODE "set(SOURCE \"${PROJECT_SOURCE_DIR}\")\nset(DESTINATION \"${CMAKE_INSTALL_DATADIR}/rondo\")")
install(SCRIPT cmake/InstallDocuments.cmake)

# Which libtorch the programs load (RondoRunPath.cmake).
install(CODE "set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${RONDO_PRIVATE_LIBRARIES}/libtorch\")
              get_filename_component(folder \"\${link}\" DIRECTORY)
              file(MAKE_DIRECTORY \"\${folder}\")
              file(CREATE_LINK \"${Libtorch_DIR_FOUND}\" \"\${link}\" SYMBOLIC)")

# A solver inside the project's .venv comes along, with its licence: programs that need no libtorch need no .venv either.
if(Highs_FOUND AND RONDO_HIGHS_IN_PROJECT EQUAL 0)
  install(FILES "${HIGHS_LIBRARY}" DESTINATION "${RONDO_PRIVATE_LIBRARIES}")
  get_filename_component(highs_folder "${HIGHS_LIBRARY}" DIRECTORY)
  file(GLOB highs_licence "${highs_folder}/../share/doc/HIGHS/LICENSE*")
  install(FILES ${highs_licence} DESTINATION "${CMAKE_INSTALL_DATADIR}/rondo/licences" RENAME HiGHS.txt)
endif()

configure_package_config_file(cmake/rondoConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/rondoConfig.cmake"
                              INSTALL_DESTINATION "${RONDO_PACKAGE_DIR}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/rondoConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/rondoConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/rondoConfigVersion.cmake"
              cmake/FindLibtorch.cmake cmake/RondoModel.cmake cmake/FindXxhash.cmake
        DESTINATION "${RONDO_PACKAGE_DIR}")

# Every program under apps/ but those for development, wherever its CMakeLists.txt puts it.
function(rondo_install_programs directory)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(for_development ${target} RONDO_FOR_DEVELOPMENT)
    if(type STREQUAL "EXECUTABLE" AND NOT for_development)
      install(TARGETS ${target} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    endif()
  endforeach()
  get_property(subdirectories DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(subdirectory IN LISTS subdirectories)
    rondo_install_programs("${subdirectory}")
  endforeach()
endfunction()
if(RONDO_BUILD_APPS)
  rondo_install_programs("${PROJECT_SOURCE_DIR}/apps")
  # Completion scripts and manual pages are made from the help of the built programs.
  install(CODE "execute_process(COMMAND python3 \"${PROJECT_SOURCE_DIR}/scripts/install_shell_files.py\" \"${CMAKE_BINARY_DIR}/bin/rondo\"
                                        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\" COMMAND_ERROR_IS_FATAL ANY)")
endif()
