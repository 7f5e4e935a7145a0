# dtrain_fuzzer(NAME source.cpp dtrain_config ...)
#
# A libFuzzer program: the source defines LLVMFuzzerTestOneInput, the rest are libraries. Files of a
# folder `seeds` beside the source start the search. Needs Clang and -DDTRAIN_BUILD_FUZZERS=ON (which
# also compiles the libraries with coverage, AddressSanitizer and UndefinedBehaviorSanitizer); does
# nothing otherwise. ctest runs each for DTRAIN_FUZZ_SECONDS:
#
#   cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DDTRAIN_BUILD_FUZZERS=ON
#   ninja -C build/fuzz && ctest --test-dir build/fuzz -L fuzz
option(DTRAIN_BUILD_FUZZERS "Build the libFuzzer programs (Clang only)" OFF)
set(DTRAIN_FUZZ_SECONDS 60 CACHE STRING "How long ctest runs each libFuzzer program")

if(DTRAIN_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "DTRAIN_BUILD_FUZZERS=ON needs Clang: add -DCMAKE_CXX_COMPILER=clang++")
  endif()
  target_compile_options(dtrain_settings INTERFACE
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(dtrain_settings INTERFACE -fsanitize=fuzzer-no-link,address,undefined)
endif()

function(dtrain_fuzzer name source)
  if(NOT DTRAIN_BUILD_FUZZERS)
    return()
  endif()
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARGN} dtrain_settings)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${name}_found)
  file(MAKE_DIRECTORY ${found})
  set(seeds)
  if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/seeds)
    set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/seeds)
  endif()
  math(EXPR timeout "${DTRAIN_FUZZ_SECONDS} + 120")
  # libFuzzer writes what it finds to the first folder, so the seeds come second.
  add_test(NAME ${name} COMMAND ${name} -max_total_time=${DTRAIN_FUZZ_SECONDS} -timeout=10
           -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=${found}- ${found} ${seeds})
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT ${timeout})
endfunction()
