// SPDX-License-Identifier: Apache-2.0
#include "cgp/selfcheck/claim.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/process.h"
#include "cgp/runtime/info.h"

namespace cgp::selfcheck {

namespace {

struct Scratch {
  std::string path;
  Scratch()
      : path((std::filesystem::temp_directory_path() / text::cat("cgp-self-check-", getpid())).string()) {
    std::filesystem::create_directories(path);
  }
  ~Scratch() {
    std::error_code ec;
    std::filesystem::remove_all(path, ec);
  }
};

void judge(const Claim& claim, Verdict& v) {
  v.why = claim.refute(v.seen);
  if (!v.why.empty()) {
    v.outcome = Outcome::fail;
    return;
  }
  json spoiled = v.seen;
  claim.spoil(spoiled);
  std::string caught;
  try {
    caught = claim.refute(spoiled);
  } catch (const std::exception& e) {
    caught = e.what();
  }
  v.outcome = caught.empty() ? Outcome::hollow : Outcome::pass;
  if (caught.empty()) v.why = "the oracle accepts a spoiled observation too: it cannot fail";
}

}  // namespace

const std::string& scratch() {
  static const Scratch folder;
  return folder.path;
}

bool has_gpu() {
  static const bool there = [] {
    for (const auto& d : runtime::devices())
      if (d.kind == runtime::DeviceKind::cuda) return true;
    return false;
  }();
  return there;
}

json run_self(const std::vector<std::string>& arguments,
              const std::vector<std::pair<std::string, std::string>>& environment) {
  std::vector<std::string> command{"/proc/self/exe"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  measure::ProcessOptions o;
  o.environment = environment;
  o.folder = scratch();
  o.timeout_seconds = 240;
  o.keep_bytes = 8 << 20;
  const auto r = measure::run_process(command, o);
  json parsed = json::parse(r.out, nullptr, false);
  if (parsed.is_discarded()) parsed = nullptr;
  const std::string out = parsed.is_null() ? r.out : std::string();
  return {{"code", r.exit_code},
          {"out", out},
          {"err", r.err},
          {"seconds", r.wall_seconds},
          {"json", std::move(parsed)}};
}

const json& answer(const json& run) {
  if (run.at("json").is_null())
    throw std::runtime_error("no JSON, exit code " + run.at("code").dump() + ": " +
                             run.at("err").get<std::string>() + run.at("out").get<std::string>());
  return run.at("json");
}

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass:
      return "PASS";
    case Outcome::fail:
      return "FAIL";
    case Outcome::hollow:
      return "HOLLOW";
    case Outcome::skip:
      return "SKIP";
  }
  return "";
}

Verdict decide(const Claim& claim) {
  Verdict v;
  v.claim = &claim;
  const auto start = std::chrono::steady_clock::now();
  if (claim.gpu && !has_gpu()) {
    v.why = "needs a GPU";
    return v;
  }
  try {
    v.seen = claim.observe();
    judge(claim, v);
  } catch (const NotHere& e) {
    v.outcome = Outcome::skip, v.why = e.what();
  } catch (const std::exception& e) {
    v.outcome = Outcome::fail, v.why = e.what();
  }
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return v;
}

const std::vector<Claim>& claims() {
  static const std::vector<Claim> all = [] {
    std::vector<Claim> out;
    add_tool_claims(out);
    add_cpu_claims(out);
    add_kernel_claims(out);
    add_gpu_claims(out);
    add_loading_claims(out);
    add_simd_claims(out);
    std::stable_sort(out.begin(), out.end(), [](const Claim& a, const Claim& b) { return a.id < b.id; });
    return out;
  }();
  return all;
}

const std::vector<Undecided>& undecided() {
  static const std::vector<Undecided> all = {
      {"FALS-070", "needs an ARM processor"},
      {"FALS-072", "the tests wasm.* of cgp_profile_test decide it"},
      {"FALS-073", "the tests wasm.* of cgp_profile_test decide it"},
      {"FALS-076", "needs macOS"},
      {"FALS-078", "there is no WebGPU back end"},
      {"FALS-WGPU-001..008", "there is no WebGPU back end"},
  };
  return all;
}

}  // namespace cgp::selfcheck
