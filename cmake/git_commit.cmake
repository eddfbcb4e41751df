# SPDX-License-Identifier: Apache-2.0
# cmake -DSOURCE=... -DOUTPUT=... -P git_commit.cmake: writes a header with the commit that is checked out, "-dirty" when
# tracked files differ from it, "unknown" outside of a repository. Unchanged content leaves the file's time alone.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=7 --exclude=* --dirty
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit unknown)
endif()
file(WRITE ${OUTPUT}.new "#pragma once\n#define CGP_BUILT_COMMIT \"${commit}\"\n")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUTPUT}.new ${OUTPUT})
