// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measured winners: which variant of gemm was fastest for a problem on a device. One line a problem, in the
// file that ships (gemm_table_h200.def) as in the one that `cgp tune gemm` keeps for the user's device:
//
//   # comment
//   bf16/nt/4096x4096x4096 gemm_bf16_nt_sm90_persistent_128x256x64_s4_cluster2x1_group8 189.5
//
// A problem (gemm_key), the config of a variant (gemm_config.h), the microseconds that it took. A line whose
// config no version knows, or no kernel has, is left out: the problem counts as not measured.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {

/// What a table knows a problem by: "bf16/nt/4096x4096x4096", with a batch "bf16/nt/64x512x512x512" (the
/// batch first). The names of the rows of cgp_kernel_bench and cgp bench, without "gemm/". Types of B and C
/// that are not the usual ones follow that of A: "bf16_bf16_f32", "e4m3_e5m2_bf16"; then ":fast" or ":strict"
/// and "@tensor", "@channel" or "@block": "f32:fast/nt/64x64x64". An epilogue is not part of a key.
std::string gemm_key(const GemmProblem& p);
/// The problem that a key names, dense; ArgumentError saying what is wrong with it.
GemmProblem parse_gemm_key(std::string_view key);

struct GemmMeasured {
  GemmConfig config;
  double microseconds = 0;
};

class GemmTable {
 public:
  /// `from` names the source in errors. ArgumentError with the line that is not one.
  static GemmTable parse(std::string_view text, std::string_view from);
  /// The table that ships for a device, by its name; without one an empty table.
  static const GemmTable& shipped(const runtime::DeviceInfo& d);

  std::string text() const;  ///< what parse() reads, in the order of keys
  bool empty() const { return rows_.empty(); }
  std::size_t size() const { return rows_.size(); }
  const GemmMeasured* find(const GemmProblem& p) const;
  /// The same; of a plain f16 or bf16 product without a row that of the other type, in its own type: both
  /// take the same time.
  std::optional<GemmMeasured> find_like(const GemmProblem& p) const;
  void set(std::string key, GemmMeasured measured) { rows_[std::move(key)] = std::move(measured); }
  /// Takes over the other's rows; its word counts where both have one.
  void merge(const GemmTable& other);
  const std::map<std::string, GemmMeasured, std::less<>>& rows() const { return rows_; }

 private:
  std::map<std::string, GemmMeasured, std::less<>> rows_;
};

/// All choices that are worth a measurement, as select_gemm weighs them, and the plain variants of older
/// architectures that run here too. The first is select_gemm's own.
std::vector<GemmChoice> gemm_candidates(const GemmProblem& p, const GemmAddresses& at,
                                        const runtime::DeviceInfo& d);
/// The table's winner (find_like) where the variant still runs the problem; else select_gemm's. Pure.
GemmChoice select_gemm(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                       const GemmTable& table);

/// What select_gemm takes on an architecture over a sweep of types, layouts and sizes, and what the shipped
/// tables name: the variants that programs embed machine code of. Epilogues and factors are not among them.
std::vector<Variant> gemm_selected_variants(std::string_view arch);

/// What a cost model costs: over the problems of `measured`, how much slower its choice was than the fastest.
struct GemmRegret {
  std::string key, chosen, fastest;
  double chosen_us = 0, fastest_us = 0;
  double regret() const { return fastest_us > 0 ? chosen_us / fastest_us - 1 : 0; }
};
/// `times` are microseconds by key and variant. Problems whose choice was not measured are left out.
std::vector<GemmRegret> gemm_regret(const std::map<std::string, std::map<std::string, double>>& times,
                                    const runtime::DeviceInfo& d);

/// Whether a problem's operands lie without gaps: tables speak of no others.
bool is_dense(const GemmProblem& dense);

/// Where measured winners are kept: $XDG_CACHE_HOME (else ~/.cache)/cgp/gemm_<device>_<driver>_<version>.txt
std::string gemm_table_path(const runtime::DeviceInfo& d);
/// The user's table for the device, empty without one. A file that is not a table is left out, and `problem`
/// says so.
GemmTable load_gemm_table(const runtime::DeviceInfo& d, std::string* problem = nullptr);
/// Adds rows to the user's file and returns what it has then; of a problem that it has already the old row stays unless
/// `replace`. Writers of all processes take turns (a lock on FILE.lock, which ends with its process), and the file is replaced at
/// once (rename), so that readers see the old table or the new one. A file that is not a table is replaced. Unsupported without a
/// folder; Error where it cannot be written, or where another process keeps the lock for two seconds.
GemmTable update_gemm_table(const GemmTable& rows, const runtime::DeviceInfo& d, bool replace);

}  // namespace cgp::kernels
