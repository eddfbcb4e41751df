// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_planner.h"

#include <charconv>
#include <cstdlib>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/hash.h"
#include "cgp/base/text.h"
#include "cgp/runtime/log.h"

namespace cgp::kernels {

// All that a choice depends on: sizes, distances, types, and the addresses as far as they are aligned. of
// alpha and beta only whether they do anything.
GemmPlanner::Key GemmPlanner::key(const GemmProblem& p, const GemmAddresses& at) {
  const auto bits = std::uint64_t(p.type) | std::uint64_t(*p.type_b) << 8 | std::uint64_t(*p.type_c) << 16 |
                    std::uint64_t(p.precision) << 24 | std::uint64_t(p.trans_a) << 32 |
                    std::uint64_t(p.trans_b) << 33 | std::uint64_t(p.beta != 0) << 34 |
                    std::uint64_t(p.alpha != 1) << 35 | std::uint64_t(at.padded_ldc) << 36;
  const auto places = at.a % 256 << 32 | at.b % 256 << 16 | at.c % 256;
  return {bits, places, p.m, p.n, p.k, p.batch, p.lda, p.ldb, p.ldc, p.stride_a, p.stride_b, p.stride_c};
}

std::size_t GemmPlanner::Hash::operator()(const Key& k) const {
  Hash128 h;
  h.add({reinterpret_cast<const char*>(k.data()), sizeof k});
  return std::size_t(h.a);
}

std::shared_ptr<const GemmChoice> GemmPlanner::choose(const GemmProblem& q, const GemmAddresses& at) {
  const GemmProblem p = q.dense();
  // The variants of epilogues and factors are made for the problem at hand.
  if (!p.epilogue.empty() || p.scaling != GemmScaling::none)
    return std::make_shared<const GemmChoice>(select_gemm(p, at, device_));
  const Key k = key(p, at);
  const std::lock_guard lock(mutex_);
  auto& choice = choices_[k];
  if (choice) return choice;
  if (choices_.size() > 4096) {  // a program that never repeats itself must not grow
    choices_.clear();
    return choices_[k] = std::make_shared<const GemmChoice>(select_gemm(p, at, device_, table_));
  }
  return choice = std::make_shared<const GemmChoice>(select_gemm(p, at, device_, table_));
}

void GemmPlanner::set_table(GemmTable table) {
  const std::lock_guard lock(mutex_);
  table_ = std::move(table);
  choices_.clear();
}

GemmTable GemmPlanner::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

bool GemmPlanner::may_tune(const GemmProblem& p, const GemmAddresses& at) const {
  if (tuning_.mode != TuneMode::full || device_.kind != runtime::DeviceKind::cuda) return false;
  if (!p.epilogue.empty() || p.scaling != GemmScaling::none) return false;
  const std::lock_guard lock(mutex_);
  return !settled_.contains(key(p, at));
}

void GemmPlanner::settle(const GemmProblem& p, const GemmAddresses& at) {
  const std::lock_guard lock(mutex_);
  if (settled_.size() > 4096) settled_.clear();  // as choices_
  settled_.insert(key(p, at));
}

void GemmPlanner::learn(std::string key, const GemmMeasured& winner) {
  const std::lock_guard lock(mutex_);
  table_.set(std::move(key), winner);
  choices_.clear();
}

std::size_t GemmPlanner::remembered() const {
  const std::lock_guard lock(mutex_);
  return choices_.size();
}

GemmTuning tuning_from_environment() {
  GemmTuning t;
  const auto env = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string_view(v ? v : "");
  };
  if (const auto word = env("CGP_TUNE"); word == "off" || word == "full")
    t.mode = word == "off" ? TuneMode::off : TuneMode::full;
  else if (!word.empty() && word != "cached")
    throw ArgumentError(
        {"CGP_TUNE is off, cached or full", {}, text::cat("it is \"", word, "\""), "see docs/runtime.md"});
  if (const auto word = env("CGP_TUNE_SECONDS"); !word.empty()) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), t.seconds);
    if (error != std::errc() || end != word.data() + word.size() || !(t.seconds > 0))
      throw ArgumentError(
          {"CGP_TUNE_SECONDS is a positive number", {}, text::cat("it is \"", word, "\""), {}});
  }
  return t;
}

GemmPlanner& GemmPlanner::of(const runtime::Device& device) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<GemmPlanner>> planners;
  const auto& info = device.info();
  const std::lock_guard lock(mutex);
  auto& planner = planners[info.spec];
  if (!planner) {
    GemmTable table = GemmTable::shipped(info);
    std::string problem;
    const auto tuning = tuning_from_environment();
    if (!device.is_emulator() && tuning.mode != TuneMode::off) table.merge(load_gemm_table(info, &problem));
    if (!problem.empty()) runtime::log(text::cat("measured winners of gemm: ", problem));
    planner = std::make_unique<GemmPlanner>(info, std::move(table), tuning);
  }
  return *planner;
}

}  // namespace cgp::kernels
