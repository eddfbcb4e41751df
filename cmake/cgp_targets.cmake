# SPDX-License-Identifier: Apache-2.0
# Functions that every library, test and benchmark of the tree is declared with.
set(CGP_WARNINGS -Wall -Wextra -Wpedantic -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports these inside libstdc++ for correct code at -O2 (GCC bugs 105651, 105329, 107852).
  list(APPEND CGP_WARNINGS -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12's stable_sort uses its own deprecated std::get_temporary_buffer.
  list(APPEND CGP_WARNINGS -Wno-deprecated-declarations)
endif()
# Sanitized code runs some ten times slower; its tests are compiled as fast as can be.
if(CGP_SANITIZE)
  set(CGP_TEST_LEVEL -O0)
  set(CGP_HOT_LEVEL -O1)
  set(CGP_TIMEOUT_FACTOR 10)
  set(CGP_SANITIZED 1)
else()
  set(CGP_TEST_LEVEL -Og)
  set(CGP_HOT_LEVEL -O3)  # loops to be vectorised
  set(CGP_TIMEOUT_FACTOR 1)
  set(CGP_SANITIZED 0)
endif()

include(cgp_precompiled)

# Forty tests and examples with all kernels in them: lld and gold link one in a fifth and in half the time of ld.
include(CheckLinkerFlag)
set(CGP_TEST_LINKER)
if(NOT CGP_SANITIZE)
  foreach(linker lld gold)
    check_linker_flag(CXX -fuse-ld=${linker} CGP_HAS_LINKER_${linker})
    if(CGP_HAS_LINKER_${linker} AND NOT CGP_TEST_LINKER)
      set(CGP_TEST_LINKER -fuse-ld=${linker})
    endif()
  endforeach()
endif()

function(cgp_compile_options target)
  # Here::now() and .loc lines name files relative to the repository, wherever it was built (ccache may hand
  # the compiler the path relative to the build folder).
  file(RELATIVE_PATH from_build ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  string(REGEX REPLACE "([^/])$" "\\1/" from_build "${from_build}")
  target_compile_options(${target} PRIVATE ${CGP_WARNINGS} ${CGP_PRECOMPILED_OPTIONS}
                                           -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= -fmacro-prefix-map=${from_build}=)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  if(CGP_SANITIZE)
    # A finding ends the program: a report that a test passes over is none. -O1 keeps every check of -O2.
    target_compile_options(${target} PUBLIC -fsanitize=${CGP_SANITIZE} -fno-sanitize-recover=all
                                            -fno-omit-frame-pointer -g1 -O1)
    target_link_options(${target} PUBLIC -fsanitize=${CGP_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Instrumented code confuses g++'s own range analysis, and TSan warns that it does not model fences.
      target_compile_options(${target} PUBLIC -Wno-error)
    endif()
  endif()
endfunction()

# cgp_folder_files(out_sources out_headers FOLDERS folder... [EXCLUDE file...]): the production files of these folders,
# relative to the current one. Tests (*_test.cpp, *_test.h, *_test_kit.h), benchmarks (*_bench.*) and programs (*_main.cpp)
# stand in the same folders and are left out, as is what EXCLUDE names. A new file is found at the next build.
function(cgp_folder_files out_sources out_headers)
  cmake_parse_arguments(A "" "" "FOLDERS;EXCLUDE" ${ARGN})
  set(sources)
  set(headers)
  foreach(folder IN LISTS A_FOLDERS)
    file(GLOB found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${folder}/*.cpp ${folder}/*.h)
    list(TRANSFORM found REPLACE "^\\./" "")
    list(FILTER found EXCLUDE REGEX "(_test|_test_kit|_bench|_main|_fuzz)\\.(cpp|h)$")
    if(A_EXCLUDE)
      list(REMOVE_ITEM found ${A_EXCLUDE})
    endif()
    set(some ${found})
    list(FILTER some INCLUDE REGEX "\\.cpp$")
    list(APPEND sources ${some})
    list(FILTER found INCLUDE REGEX "\\.h$")
    list(APPEND headers ${found})
  endforeach()
  set(${out_sources} ${sources} PARENT_SCOPE)
  set(${out_headers} ${headers} PARENT_SCOPE)
endfunction()

# cgp_library(name FOLDERS folder... [EXCLUDE file...] LINKS ...) declares cgp_<name>, alias cgp::<name>, of all production
# files of the folders. Headers that stand alone (not *_impl.h) are public: each is also compiled alone by the
# all_verify_interface_header_sets target.
function(cgp_library name)
  cmake_parse_arguments(A "" "" "SOURCES;HEADERS;FOLDERS;EXCLUDE;LINKS" ${ARGN})
  if(A_FOLDERS)
    cgp_folder_files(sources headers FOLDERS ${A_FOLDERS} EXCLUDE ${A_EXCLUDE})
    list(FILTER headers EXCLUDE REGEX "_impl\\.h$")
    list(APPEND A_SOURCES ${sources})
    list(APPEND A_HEADERS ${headers})
  endif()
  add_library(cgp_${name} STATIC ${A_SOURCES})
  add_library(cgp::${name} ALIAS cgp_${name})
  target_sources(cgp_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${A_HEADERS})
  cgp_compile_options(cgp_${name})
  target_compile_features(cgp_${name} PUBLIC cxx_std_20)
  target_link_libraries(cgp_${name} PUBLIC ${A_LINKS})
endfunction()

# cgp_test(name SOURCES ... LINKS ... [NIGHTLY] [TIMEOUT seconds] [COST seconds] [HEADERS list]) declares one GoogleTest binary, run
# whole by CTest.
function(cgp_test name)
  cmake_parse_arguments(A "NIGHTLY" "TIMEOUT;COST;HEADERS" "SOURCES;LINKS" ${ARGN})
  if(NOT CGP_BUILD_TESTS)
    return()
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 600)
  endif()
  math(EXPR A_TIMEOUT "${A_TIMEOUT} * ${CGP_TIMEOUT_FACTOR}")
  add_executable(${name} ${A_SOURCES})
  cgp_compile_options(${name})
  # What takes time is in the libraries: -Og compiles in half the time of -O2, but sees too little to warn of this.
  target_compile_options(${name} PRIVATE ${CGP_TEST_LEVEL} $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_libraries(${name} PRIVATE ${A_LINKS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(NOT A_HEADERS)
    set(A_HEADERS TESTS)
  endif()
  cgp_precompiled(${name} ${A_HEADERS})
  target_link_options(${name} PRIVATE ${CGP_TEST_LINKER})
  if(NOT A_NIGHTLY OR CGP_NIGHTLY)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    # What ptxas said is kept for the build tree: see cgp/testing/assemble.h. Files of a test (testing::TempDir()) lie in a
    # folder of its own: another build, or another user's files in /tmp, are not in its way.
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/test_files/${name})
    set(environment CGP_ASSEMBLIES=${PROJECT_BINARY_DIR}/assemblies TEST_TMPDIR=${PROJECT_BINARY_DIR}/test_files/${name})
    if(CGP_SANITIZE MATCHES "address")  # the NVIDIA driver maps memory where AddressSanitizer guards its shadow
      list(APPEND environment ASAN_OPTIONS=protect_shadow_gap=0)
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} ENVIRONMENT "${environment}")
    if(A_COST)  # CTest starts what takes longest first, which keeps all cores busy to the end
      set_tests_properties(${name} PROPERTIES COST ${A_COST})
    endif()
  endif()
endfunction()

# cgp_bench(name SOURCES ... LINKS ...) declares a benchmark binary; never run by CTest.
# Built when asked for, and with everything by the nightly preset.
function(cgp_bench name)
  cmake_parse_arguments(A "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  if(NOT CGP_NIGHTLY)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  cgp_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${A_LINKS})
  target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
endfunction()

# cgp_embed_cubins(target): the program or shared library carries the machine code of the shipped kernels, where
# CGP_EMBED_CUBINS names architectures and there is ptxas; else nothing. The target must be declared after cgp/kernels.
function(cgp_embed_cubins target)
  if(TARGET cgp_cubin_pack)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:cgp_cubin_pack>)
  endif()
endfunction()

# cgp_unity(target... [ALONE source...]): their sources are compiled a dozen at a time, which spares the headers (JSON,
# options) that each of them reads, and the containers that each of them instantiates: less than half of the time. Names in
# unnamed namespaces must differ within such a target; ALONE are sources of this folder that stay for themselves, as do
# those with options of their own.
function(cgp_unity)
  cmake_parse_arguments(A "" "" "ALONE" ${ARGN})
  if(CGP_UNITY)
    foreach(target IN LISTS A_UNPARSED_ARGUMENTS)
      if(TARGET ${target})
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
        # of a type of an unnamed namespace in what g++ takes for a header
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
      endif()
    endforeach()
    set_source_files_properties(${A_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()
