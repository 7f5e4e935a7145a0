# dtrain_library(NAME SOURCES a.cpp ... DEPENDS dtrain_base fmt::fmt ...)
#
# One static library per folder, so that a dependency that the house does not allow fails to link
# rather than to be noticed. All are exported; users link dtrain::dtrain.
function(dtrain_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  add_library(dtrain::${name} ALIAS ${name})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # System, so that warnings in headers made by protoc stay protoc's.
  target_include_directories(${name} SYSTEM PUBLIC $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/generated>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:dtrain_settings>)
  set_property(GLOBAL APPEND PROPERTY DTRAIN_LIBRARIES ${name})
endfunction()
