# SPDX-License-Identifier: Apache-2.0
# Performance promises as tests of another project. Needs nothing of cgp but the command:
#
#   list(APPEND CMAKE_MODULE_PATH path/to/cgp/cmake)
#   include(CgpProfile)                       # finds cgp: CGP_PROGRAM, else along PATH
#   cgp_contract_test(solver contracts/solver.yaml)
#   cgp_baseline_test(solver NAME solver-small ARGS input.txt COUNT)
#
# A test that could not be decided (no GPU, other hardware, too noisy) is "Skipped" for CTest, never passed; the
# reasons are in its output and in the JUnit file.
include_guard(GLOBAL)
find_program(CGP_PROGRAM cgp DOC "The cgp command")

function(_cgp_need_program what)
  if(NOT CGP_PROGRAM)
    message(FATAL_ERROR "${what} needs the cgp command: set CGP_PROGRAM, or put it into PATH")
  endif()
endfunction()

# cgp_contract_test(<target> <contract.yaml> [NAME <test>] [PROFILE <file>] [STRICT] [TIMEOUT <seconds>])
# In the contract's `command`, ${TARGET} is the target's program. <target> is - for contracts about kernels of
# cgp, and for those that are checked against PROFILE.
function(cgp_contract_test target contract)
  _cgp_need_program(cgp_contract_test)
  cmake_parse_arguments(A "STRICT" "NAME;PROFILE;TIMEOUT" "" ${ARGN})
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cgp_contract_test: what is ${A_UNPARSED_ARGUMENTS}?")
  endif()
  get_filename_component(file ${contract} ABSOLUTE)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "cgp_contract_test: there is no ${contract}")
  endif()
  if(NOT A_NAME)
    get_filename_component(base ${file} NAME_WE)
    set(A_NAME contract.${base})
  endif()
  set(options --junit ${CMAKE_CURRENT_BINARY_DIR}/${A_NAME}.xml)
  if(NOT target STREQUAL "-")
    list(APPEND options --define TARGET=$<TARGET_FILE:${target}>)
  endif()
  if(A_PROFILE)
    get_filename_component(profile ${A_PROFILE} ABSOLUTE)
    list(APPEND options --profile ${profile})
  endif()
  if(A_STRICT)
    list(APPEND options --strict)
  endif()
  if(DEFINED ENV{GITHUB_ACTIONS})
    list(APPEND options --github)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  add_test(NAME ${A_NAME} COMMAND ${CGP_PROGRAM} contract verify ${file} ${options})
  # With STRICT a skipped promise fails: an answer is owed.
  if(A_STRICT)
    set_tests_properties(${A_NAME} PROPERTIES LABELS cgp TIMEOUT ${A_TIMEOUT})
  else()
    set_tests_properties(${A_NAME} PROPERTIES LABELS cgp TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 4)
  endif()
endfunction()

# cgp_baseline_test(<target> NAME <baseline> [ARGS ...] [THRESHOLD 5%] [RUNS n] [COUNT] [TIME_REGEX expression [UNIT ms]]
#                   [FOLDER dir] [TIMEOUT s] [STRICT])
# A program that is slower than the baseline of that name is SUSPECT: another process measured the baseline. The test is
# then skipped; with STRICT it fails. With COUNT instructions are compared too, which needs valgrind and no quiet machine:
# more of them are a REGRESSION, and the test fails. With TIME_REGEX the program prints its time (the first group), as one on a
# GPU does. `cmake --build . --target <NAME>_baseline` measures and keeps one.
# FOLDER (.cgp beside the CMakeLists.txt) holds the baselines; a baseline of another machine decides nothing.
function(cgp_baseline_test target)
  _cgp_need_program(cgp_baseline_test)
  cmake_parse_arguments(A "COUNT;STRICT" "NAME;THRESHOLD;RUNS;TIME_REGEX;UNIT;FOLDER;TIMEOUT" "ARGS" ${ARGN})
  if(A_UNPARSED_ARGUMENTS OR NOT A_NAME)
    message(FATAL_ERROR "cgp_baseline_test(<target> NAME <baseline> ...): ${A_UNPARSED_ARGUMENTS}")
  endif()
  foreach(default THRESHOLD:5% TIMEOUT:600 FOLDER:${CMAKE_CURRENT_SOURCE_DIR}/.cgp)
    string(REGEX MATCH "^([A-Z]+):(.*)$" _ "${default}")
    if(NOT A_${CMAKE_MATCH_1})
      set(A_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  set(options)
  if(A_RUNS)
    list(APPEND options --runs ${A_RUNS})
  endif()
  if(A_COUNT)
    list(APPEND options --count)
  endif()
  if(A_TIME_REGEX)
    list(APPEND options --time-regex ${A_TIME_REGEX})
  endif()
  if(A_UNIT)
    list(APPEND options --unit ${A_UNIT})
  endif()
  add_test(NAME baseline.${A_NAME}
           COMMAND ${CGP_PROGRAM} time ${options} --check-regression --threshold ${A_THRESHOLD} --baseline ${A_NAME}
                   -- $<TARGET_FILE:${target}> ${A_ARGS})
  set_tests_properties(baseline.${A_NAME} PROPERTIES LABELS cgp TIMEOUT ${A_TIMEOUT} ENVIRONMENT "CGP_BASELINES=${A_FOLDER}")
  if(NOT A_STRICT)
    set_tests_properties(baseline.${A_NAME} PROPERTIES SKIP_RETURN_CODE 4)
  endif()
  set(kept ${CMAKE_CURRENT_BINARY_DIR}/${A_NAME}.json)
  add_custom_target(${A_NAME}_baseline
    COMMAND ${CGP_PROGRAM} time ${options} --save ${kept} -- $<TARGET_FILE:${target}> ${A_ARGS}
    COMMAND ${CGP_PROGRAM} baseline save ${A_NAME} ${kept} --folder ${A_FOLDER} --force
    VERBATIM)
endfunction()
