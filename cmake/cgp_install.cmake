# SPDX-License-Identifier: Apache-2.0
# cmake --install <build> --prefix <folder> [--component cli|c|cpp]: the command; libcgp.so with cgp.h; the C++ libraries with
# their headers. find_package(cgp) then has the targets cgp::dsl, cgp::emu, cgp::runtime, cgp::launch, cgp::kernels and
# cgp::c, and pkg-config the modules cgp (C), cgp-launch and cgp-kernels (C++).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CGP_CPP_LIBRARIES base cuda vulkan wgpu ptx shader emu dsl quant runtime launch kernels)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/cgp)

foreach(library IN LISTS CGP_CPP_LIBRARIES)
  set_target_properties(cgp_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS cgp_${library} EXPORT cgp ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
  install(DIRECTORY cgp/${library} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cgp COMPONENT cpp
          FILES_MATCHING PATTERN "*.def" PATTERN testdata EXCLUDE PATTERN golden EXCLUDE)
endforeach()
set_target_properties(cgp_c PROPERTIES EXPORT_NAME c)
install(TARGETS cgp_c EXPORT cgp LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT c
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT c)
if(CGP_BUILD_TOOLS)
  # The command looks for its injection library beside itself.
  install(TARGETS cgp cgp_inject cgp_heap cgp_sample RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli
          LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
endif()

install(EXPORT cgp NAMESPACE cgp:: FILE cgpTargets.cmake DESTINATION ${package} COMPONENT cpp)
configure_package_config_file(cmake/cgpConfig.cmake.in ${PROJECT_BINARY_DIR}/package/cgpConfig.cmake
                              INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/cgpConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/cgpConfig.cmake ${PROJECT_BINARY_DIR}/package/cgpConfigVersion.cmake
              cmake/CgpProfile.cmake DESTINATION ${package} COMPONENT cpp)

# cgp_pkg_config(name component description libraries requires): the folders are found from the file's own place, so that
# the installed tree can be moved.
function(cgp_pkg_config name component description libraries requires)
  file(RELATIVE_PATH root /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" root "${root}")
  set(cflags "-I\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  if(component STREQUAL "cpp")
    string(APPEND cflags " -std=c++20 -pthread")
  endif()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/package/${name}.pc @ONLY CONTENT
"prefix=\${pcfiledir}/@root@
Name: @name@
Description: @description@
Version: @PROJECT_VERSION@
Requires: @requires@
Cflags: @cflags@
Libs: -L\${prefix}/@CMAKE_INSTALL_LIBDIR@ @libraries@
")
  install(FILES ${PROJECT_BINARY_DIR}/package/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${component})
endfunction()
cgp_pkg_config(cgp c "GPU kernels behind a C interface" "-lcgp" "")
cgp_pkg_config(cgp-launch cpp "GPU kernels as C++ functions, on a GPU or an emulator"
  "-lcgp_launch -lcgp_dsl -lcgp_runtime -lcgp_emu -lcgp_shader -lcgp_ptx -lcgp_vulkan -lcgp_wgpu -lcgp_cuda -lcgp_base -ldl -pthread" "")
cgp_pkg_config(cgp-kernels cpp "The kernel library, from C++" "-lcgp_kernels -lcgp_quant" "cgp-launch")
