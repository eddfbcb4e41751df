// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_planner.h"

#include <map>

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

std::size_t GemmPlanner::remembered() const {
  const std::lock_guard lock(mutex_);
  return choices_.size();
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
    if (!device.is_emulator()) table.merge(load_gemm_table(info, &problem));
    if (!problem.empty()) runtime::log(text::cat("measured winners of gemm: ", problem));
    planner = std::make_unique<GemmPlanner>(info, std::move(table));
  }
  return *planner;
}

}  // namespace cgp::kernels
