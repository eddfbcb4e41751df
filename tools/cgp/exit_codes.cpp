// SPDX-License-Identifier: Apache-2.0
#include "tools/cgp/exit_codes.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/contract/compare_programs.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/spec/report/report.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using text::cat;

int report(const Error& e, std::string_view kind, int code, bool json, bool color) {
  if (json) {
    const nlohmann::ordered_json j = {
        {"schema", "cgp.error/1"}, {"exit_code", code}, {"error", spec::to_json(e, kind)}};
    write_out(spec::dumped(j, 2) + "\n");
  }
  const char* label = color ? "\x1b[1;31mcgp:\x1b[0m " : "cgp: ";
  std::fputs(cat(label, e.what(), "\n").c_str(), stderr);
  return code;
}

}  // namespace

int guarded(const std::function<int()>& body, bool json, bool color) {
  const auto show = [&](const Error& e, std::string_view kind, int code) {
    return report(e, kind, code, json, color);
  };
  try {
    return body();
  } catch (const Unsupported& e) {
    return show(e, "Unsupported", kUnavailable);
  } catch (const ParseError& e) {
    return show(e, "ParseError", kUsage);
  } catch (const ArgumentError& e) {
    return show(e, "ArgumentError", kUsage);
  } catch (const VerifyError& e) {
    return show(e, "VerifyError", kUsage);
  } catch (const BuildError& e) {
    return show(e, "BuildError", kUsage);
  } catch (const EmuFault& e) {
    return show(e, "EmuFault", kCheckFailed);
  } catch (const DriverError& e) {
    return show(e, "DriverError", kCheckFailed);
  } catch (const profile::ProgramFailure& e) {
    return show(e, "ProgramFailure", kProgramFailed);
  } catch (const Error& e) {
    return show(e, "Error", kUsage);
  } catch (const std::filesystem::filesystem_error& e) {
    return show(
        Error(ErrorText{"the file or folder must be usable",
                        e.path1().empty() ? "the folder for temporary files (TMPDIR)" : e.path1().string(),
                        e.code().message(),
                        {}}),
        "Error", kUsage);
  } catch (const nlohmann::json::exception& e) {
    return show(Error(ErrorText{"a JSON file has the fields that cgp writes into it", {}, e.what(), {}}),
                "ParseError", kUsage);
  } catch (const std::bad_alloc&) {
    return show(Error("the machine's memory must suffice for the buffers"), "OutOfMemory", kUnavailable);
  } catch (const std::exception& e) {
    return show(
        Error(ErrorText{cat("unexpected: ", e.what()), {}, {}, "this is a bug in cgp; please report it"}),
        "Internal", kInternalError);
  }
}

}  // namespace cgp::cli
