// SPDX-License-Identifier: Apache-2.0
// PTX to machine code by the driver's compiler, with its log.
#include <bit>
#include <filesystem>
#include <functional>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/cuda/handles.h"

namespace cgp::cuda {
namespace {
using text::cat;

// The option arrays of one compilation. Values are integers or pointers in void* slots; the driver writes the
// wall time as a float into its slot, and the used lengths into the size slots.
class JitOptions {
 public:
  JitOptions() {
    add(JitOption::wall_time, 0);
    add(JitOption::info_log_buffer, std::bit_cast<std::uintptr_t>(info_.data()));
    add(JitOption::info_log_buffer_bytes, info_.size());
    add(JitOption::error_log_buffer, std::bit_cast<std::uintptr_t>(error_.data()));
    add(JitOption::error_log_buffer_bytes, error_.size());
    add(JitOption::log_verbose, 1);
    add(JitOption::generate_line_info, 1);
  }
  unsigned count() const { return unsigned(options_.size()); }
  JitOption* options() { return options_.data(); }
  void** values() { return values_.data(); }
  double milliseconds() const {
    return double(std::bit_cast<float>(std::uint32_t(std::bit_cast<std::uintptr_t>(values_[0]))));
  }
  std::string info() const { return info_.data(); }
  std::string errors() const { return error_.data(); }

 private:
  void add(JitOption o, std::uintptr_t v) {
    options_.push_back(o);
    values_.push_back(std::bit_cast<void*>(v));
  }
  std::vector<char> info_ = std::vector<char>(16384), error_ = std::vector<char>(16384);
  std::vector<JitOption> options_;
  std::vector<void*> values_;
};

[[noreturn]] void compile_failed(const Api& api, CUresult r, const char* call, const JitOptions& jit,
                                 const std::string& ptx, std::string_view name) {
  const std::string path = dump_failed(ptx, name);
  std::string why =
      cat("compiling ", name, jit.errors().empty() ? " (the compiler said nothing)" : ":\n", jit.errors());
  while (!why.empty() && (why.back() == '\n' || why.back() == ' ')) why.pop_back();
  why += path.empty() ? "\n(the PTX could not be written to a file)" : cat("\nthe PTX is in ", path);
  api.fail(r, call, why);
}

}  // namespace

std::string dump_failed(std::string_view text, std::string_view name) {
  std::string file = "cgp-failed-";
  for (char c : name.substr(0, 80))
    file += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ? c : '_';
  file += cat("-", text::hex(std::hash<std::string_view>()(text)).substr(2), ".ptx");
  try {
    const std::string path = (std::filesystem::temp_directory_path() / file).string();
    write_file(path, text);
    return path;
  } catch (const std::exception&) {  // no place to write: the message says so
    return {};
  }
}

Compiled compile_ptx(const ApiPtr& api, const std::string& ptx, std::string_view name) {
  JitOptions jit;
  CUlinkState state = nullptr;
  api->call<&Api::cuLinkCreate>(jit.count(), jit.options(), jit.values(), &state);
  struct Destroy {
    const Api& api;
    CUlinkState state;
    ~Destroy() { api.cuLinkDestroy(state); }
  } destroy{*api, state};
  const std::string label(name);
  CUresult r = api->cuLinkAddData(state, JitInput::ptx, const_cast<char*>(ptx.c_str()), ptx.size() + 1,
                                  label.c_str(), 0, nullptr, nullptr);
  if (r != kSuccess) compile_failed(*api, r, "cuLinkAddData", jit, ptx, name);
  void* cubin = nullptr;
  std::size_t bytes = 0;
  r = api->cuLinkComplete(state, &cubin, &bytes);
  if (r != kSuccess) compile_failed(*api, r, "cuLinkComplete", jit, ptx, name);
  return {std::string(static_cast<const char*>(cubin), bytes), jit.info(), jit.milliseconds()};
}

Module load_cubin(const ApiPtr& api, const std::string& cubin, std::string_view name) {
  CUmodule m = nullptr;
  api->check(api->cuModuleLoadData(&m, cubin.data()), "cuModuleLoadData", cat("machine code of ", name));
  return {api, m};
}

Module load_ptx(const ApiPtr& api, const std::string& ptx, std::string_view name, Compiled& out) {
  JitOptions jit;
  CUmodule m = nullptr;
  const CUresult r = api->cuModuleLoadDataEx(&m, ptx.c_str(), jit.count(), jit.options(), jit.values());
  if (r != kSuccess) compile_failed(*api, r, "cuModuleLoadDataEx", jit, ptx, name);
  out.log = jit.info();
  out.milliseconds = jit.milliseconds();
  return {api, m};
}

}  // namespace cgp::cuda
