# manta_install(): what `cmake --install` puts where. The package files find
# the prefix from their own place, so an installed tree may be moved.
include(CMakePackageConfigHelpers)

macro(manta_install)
  if(TARGET manta)
    install(TARGETS manta EXPORT mantaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT mantaTargets NAMESPACE manta:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/manta)
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
            FILES_MATCHING PATTERN "*.h")
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/manta/data)
    install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

    file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
    configure_file(${CMAKE_SOURCE_DIR}/cmake/manta.pc.in ${CMAKE_BINARY_DIR}/manta.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/manta.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

    configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/mantaConfig.cmake.in
      ${CMAKE_BINARY_DIR}/mantaConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/manta)
    # Before 1.0 a minor version may change an interface.
    write_basic_package_version_file(${CMAKE_BINARY_DIR}/mantaConfigVersion.cmake
      COMPATIBILITY SameMinorVersion)
    install(FILES ${CMAKE_BINARY_DIR}/mantaConfig.cmake ${CMAKE_BINARY_DIR}/mantaConfigVersion.cmake
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/manta)
  endif()
  if(TARGET manta_node)
    install(TARGETS manta_node RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/manta)
  endif()
  if(TARGET manta_cli)
    install(TARGETS manta_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/*.1)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endmacro()
