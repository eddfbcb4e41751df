# SPDX-License-Identifier: Apache-2.0
# CGP_PRECOMPILED: the headers that most sources of a layer read are parsed once, which spares each of some six hundred
# compilations about a second. A source includes what it needs all the same: the presets without this (nightly, the second
# compiler and the sanitizers) find what is missing.
#
# g++ takes precompiled headers only for the same target options and for code as (in)dependent of its address; one
# holder serves libraries, one programs. -O1, -Og, -O2 and -O3 may share a holder, -O0 (which says so in a macro) may not.
set(CGP_PRECOMPILED_ON OFF)
set(CGP_PRECOMPILED_OPTIONS)
if(CGP_PRECOMPILED AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CGP_SANITIZE)
  set(CGP_PRECOMPILED_ON ON)
  # g++ collects garbage from 128 MB on, which costs a twentieth of the time; no source needs a gigabyte.
  set(CGP_PRECOMPILED_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()
# g++ 12 forgets with them which lines are the standard library's own and reports a false alarm of its flow analysis there.
set(CGP_PRECOMPILED_WARNINGS -Wno-stringop-overread)
set(CGP_HEADERS_LIBRARY <algorithm> <array> <bit> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex>
    <optional> <set> <span> <string> <string_view> <tuple> <unordered_map> <utility> <vector> [["cgp/base/error.h"]]
    [["cgp/base/text.h"]] [["cgp/ptx/module.h"]])
# Above the core: what the tools read most, and what takes longest to parse.
set(CGP_HEADERS_TOOLS ${CGP_HEADERS_LIBRARY} <array> <chrono> <filesystem> <fmt/core.h> <nlohmann/json.hpp> [["cgp/base/file.h"]])
set(CGP_HEADERS_KERNELS ${CGP_HEADERS_LIBRARY} [["cgp/dsl/kernel.h"]] [["cgp/kernels/common/variant.h"]])
# Tests stand in the global namespace, where a name of a header they do not include could meet their own: no more than all
# tests of a kind include.
set(CGP_HEADERS_TESTS <gtest/gtest.h> <functional> <optional> <span> [["cgp/base/error.h"]] [["cgp/base/text.h"]])
set(CGP_HEADERS_TOOL_TESTS ${CGP_HEADERS_TESTS} <gmock/gmock.h> <filesystem> <fmt/core.h> <nlohmann/json.hpp> [["cgp/base/file.h"]])
set(CGP_HEADERS_DSL_TESTS ${CGP_HEADERS_TESTS} [["cgp/dsl/kernel.h"]])
set(CGP_HEADERS_KERNEL_TESTS ${CGP_HEADERS_TESTS} [["cgp/testing/kernel_test.h"]])

# cgp_precompiled(<target> <LIBRARY|TOOLS|KERNELS|TESTS|TOOL_TESTS|DSL_TESTS|KERNEL_TESTS> [OWN]): the target reads that list
# parsed. OWN: with the target's own options (another -O0, other floating point), parsed for it alone.
function(cgp_precompiled target list)
  if(NOT CGP_PRECOMPILED_ON OR NOT TARGET ${target})
    return()
  endif()
  target_compile_options(${target} PRIVATE ${CGP_PRECOMPILED_WARNINGS})
  if(ARGN STREQUAL "OWN")
    target_precompile_headers(${target} PRIVATE ${CGP_HEADERS_${list}})
    return()
  endif()
  string(TOLOWER cgp_headers_${list} holder)
  if(NOT TARGET ${holder})
    set(source ${PROJECT_BINARY_DIR}/${holder}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
    if(list MATCHES "TESTS$")
      add_executable(${holder} EXCLUDE_FROM_ALL ${source})
      target_link_libraries(${holder} PRIVATE GTest::gtest)
    else()
      add_library(${holder} OBJECT EXCLUDE_FROM_ALL ${source})
    endif()
    cgp_compile_options(${holder})
    find_package(Threads REQUIRED)
    target_link_libraries(${holder} PRIVATE Threads::Threads)
    target_precompile_headers(${holder} PRIVATE ${CGP_HEADERS_${list}})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE" AND NOT list MATCHES "TESTS$")  # a program reads what was parsed for libraries
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${holder})
endfunction()
