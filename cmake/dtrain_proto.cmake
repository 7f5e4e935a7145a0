# dtrain_proto(VARIABLE core/config/train.proto ...)
#
# Generates C++ from .proto files (named from the root of the source tree, as they are in their
# import lines after "dtrain/") and stores the list of generated sources in VARIABLE:
#
#   dtrain_proto(generated core/config/options.proto core/config/train.proto)
#   dtrain_library(dtrain_config SOURCES config.cpp ${generated} DEPENDS protobuf::libprotobuf)
#
# Headers are then included as "dtrain/core/config/train.pb.h" by whoever links the library.
function(dtrain_proto variable)
  set(include ${CMAKE_BINARY_DIR}/include)
  set(output ${CMAKE_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${output})
  set(sources)
  foreach(proto ${ARGN})
    string(REGEX REPLACE "\\.proto$" ".pb" stem ${output}/dtrain/${proto})
    # All are listed as dependencies, because any may import another.
    list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE inputs)
    add_custom_command(
      OUTPUT ${stem}.cc ${stem}.h
      COMMAND protobuf::protoc -I ${include} --cpp_out=${output} ${include}/dtrain/${proto}
      DEPENDS ${inputs} protobuf::protoc
      COMMENT "protoc ${proto}"
      VERBATIM)
    # Warnings in generated code are protoc's, not ours.
    set_source_files_properties(${stem}.cc PROPERTIES COMPILE_OPTIONS -w)
    list(APPEND sources ${stem}.cc ${stem}.h)
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()
