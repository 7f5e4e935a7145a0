# Options of the build, and the compiler settings that every target shares.

option(DTRAIN_BUILD_TESTS "Build tests, benchmarks and (with Clang) fuzzers" ${PROJECT_IS_TOP_LEVEL})
option(DTRAIN_WERROR "Treat warnings as errors" OFF)
set(DTRAIN_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
set(DTRAIN_WITH_GLOO AUTO CACHE STRING "Gloo, the peer of the all-reduce benchmark: ON, OFF or AUTO")
set_property(CACHE DTRAIN_WITH_GLOO PROPERTY STRINGS ON OFF AUTO)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Type of build" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(DTRAIN_CCACHE ccache)
if(DTRAIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DTRAIN_CCACHE})
endif()

add_library(dtrain_settings INTERFACE)
# Note [No contraction]: GCC contracts scalar a*b+c to FMA by default, so a vector body and its
# scalar tail would round differently. Every sum and product rounds where the source says so.
target_compile_options(dtrain_settings INTERFACE
  -ffp-contract=off -Wall -Wextra $<$<BOOL:${DTRAIN_WERROR}>:-Werror>)
if(DTRAIN_SANITIZE)
  target_compile_options(dtrain_settings INTERFACE
    -fsanitize=${DTRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  target_link_options(dtrain_settings INTERFACE -fsanitize=${DTRAIN_SANITIZE})
endif()

# Headers are included as "dtrain/core/base/error.h", in this tree and after installation alike.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR}/include/dtrain SYMBOLIC)
