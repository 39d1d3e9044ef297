# ProcessGroupGloo's header needs Gloo's own headers and a definition that no other file may see.
function(rondo_gloo_engine)
  if(NOT RONDO_HAVE_GLOO)
    set_source_files_properties("${engine_folder}/factory_gloo.cpp" PROPERTIES HEADER_FILE_ONLY ON)
    return()
  endif()
  set_source_files_properties("${engine_folder}/no_gloo.cpp" PROPERTIES HEADER_FILE_ONLY ON)
  set(source "${engine_folder}/factory_gloo.cpp")
  set_source_files_properties("${source}" PROPERTIES COMPILE_DEFINITIONS USE_C10D_GLOO SKIP_PRECOMPILE_HEADERS ON)
  # Naming a folder that the compiler searches by default would change the order of its own headers.
  if(NOT GLOO_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    set_source_files_properties("${source}" PROPERTIES INCLUDE_DIRECTORIES "${GLOO_INCLUDE_DIR}")
  endif()
endfunction()

rondo_gloo_engine()
