# Installation: the program, the headers, the libraries, and what find_package(dtrain) reads.
#
#   cmake --install build/release --prefix ~/dtrain       needs no root
#
# Users link dtrain::dtrain, which stands for all the libraries that dtrain_library() has made.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY DTRAIN_LIBRARIES)
add_library(dtrain_everything INTERFACE)
add_library(dtrain::dtrain ALIAS dtrain_everything)
target_link_libraries(dtrain_everything INTERFACE ${libraries})
set_target_properties(dtrain_everything PROPERTIES EXPORT_NAME dtrain)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/dtrain)
set(include_folder ${CMAKE_INSTALL_INCLUDEDIR}/dtrain)

# The program stays out of the export: its name is taken by the library that stands for all.
install(TARGETS dtrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${libraries} dtrain_everything EXPORT dtrainTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/dtrain)
install(EXPORT dtrainTargets NAMESPACE dtrain:: DESTINATION ${package_folder})

# Headers keep their spelling "dtrain/core/base/error.h". The .proto files come too, so that a
# program's own messages can import them.
foreach(part core models data parallel launcher)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${part} DESTINATION ${include_folder}
          FILES_MATCHING PATTERN "*.h" PATTERN "*.proto")
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/generated/dtrain/ DESTINATION ${include_folder}
        FILES_MATCHING PATTERN "*.pb.h")

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dtrainConfig.cmake.in
  ${PROJECT_BINARY_DIR}/dtrainConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dtrainConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dtrainConfig.cmake ${PROJECT_BINARY_DIR}/dtrainConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindDNNL.cmake
        DESTINATION ${package_folder})

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/dtrain)
