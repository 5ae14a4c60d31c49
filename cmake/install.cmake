include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/assay-config.cmake.in ${PROJECT_BINARY_DIR}/assay-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/assay-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/assay-config.cmake ${PROJECT_BINARY_DIR}/assay-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay)
install(EXPORT assay_targets FILE assay-targets.cmake NAMESPACE assay:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay)
