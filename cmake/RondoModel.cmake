# rondo_model(NAME SOURCES...): the shared module libNAME.so with a model of one's own, for
# `rondo train --model ./libNAME.so:FACTORY`; rondo/models/model_module.h says what the sources hold.
#
# It sees rondo's headers and links libtorch alone: rondo's code is that of the program which loads the module.
function(rondo_model name)
  add_library(${name} MODULE ${ARGN})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_include_directories(${name} PRIVATE "$<TARGET_PROPERTY:rondo::rondo,INTERFACE_INCLUDE_DIRECTORIES>")
  target_link_libraries(${name} PRIVATE Libtorch::Libtorch)
endfunction()
