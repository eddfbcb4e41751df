# SPDX-License-Identifier: Apache-2.0
# What the command and the libraries under it alone need: header-only or static libraries of the distribution.
foreach(header "CLI/CLI.hpp libcli11-dev" "fmt/core.h libfmt-dev" "nlohmann/json.hpp nlohmann-json3-dev" "yaml-cpp/yaml.h libyaml-cpp-dev")
  string(REPLACE " " ";" header "${header}")
  list(GET header 0 file)
  list(GET header 1 package)
  string(MAKE_C_IDENTIFIER "CGP_HAS_${file}" found)
  find_path(${found} ${file})
  if(NOT ${found})
    list(APPEND missing "${file} (${package})")
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "The cgp command needs headers that are not there: ${missing}. make setup installs them; "
                      "-DCGP_BUILD_TOOLS=OFF builds the libraries alone.")
endif()

# cgp_tool_options(target): options, text and JSON are nothing that -O2 would make faster for a user.
function(cgp_tool_options target)
  target_compile_options(${target} PRIVATE -Og $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  cgp_precompiled(${target} TOOLS)
endfunction()
