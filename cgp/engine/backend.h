// SPDX-License-Identifier: Apache-2.0
#pragma once
// What runs a Program: the processor (cpu/), a GPU or the emulator (device/).
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cgp/engine/program/program.h"

namespace cgp::engine {

/// The rows that one sequence has in a step: tokens at consecutive positions.
struct BatchSequence {
  std::int32_t first_row = 0, rows = 0;
  std::int32_t first_position =
      0;  ///< of first_row; keys and values of all positions before it are in the cache
  /// Position p lies in page pages[p / page_tokens], at p % page_tokens. Covers first_position + rows. Pages that hold positions
  /// from first_position on belong to this sequence alone.
  std::span<const std::int32_t> pages;
};

/// One step. Rows of a sequence are one run; the runs follow each other and cover all tokens.
struct Batch {
  std::span<const std::int32_t> tokens;
  std::span<const BatchSequence> sequences;  ///< by first_row
  std::span<const std::int32_t> outputs;     ///< rows whose logits are wanted, ascending; may be empty
};

/// What a step gives for each of Batch::outputs. Either span may be empty: it is then not wanted, and on a GPU not copied.
struct Outputs {
  std::span<float> logits;         ///< [outputs, vocabulary]
  std::span<std::int32_t> greedy;  ///< the token of the greatest logit, of equal ones the least; NaN: -1
};

/// Of keys and values in the cache. e4m3: on devices from sm_90 on; values beyond 448 become 448.
enum class CacheType : std::uint8_t { f32, f16, bf16, e4m3 };
enum class ActivationType : std::uint8_t {
  automatic,  ///< what is fastest within 16 bits of exactness
  f32,
  int16,
  int8
};

struct BackendOptions {
  std::int64_t pages = 0;  ///< of the cache; the scheduler may use all of them
  std::int64_t page_tokens = 32;
  std::int64_t max_rows = 512;      ///< of a step, at most: tokens,
  std::int64_t max_sequences = 64;  ///< sequences,
  std::int64_t max_outputs = 64;    ///< rows that want logits
  CacheType cache = CacheType::f16;
  ActivationType activations = ActivationType::automatic;
  int threads = 0;  ///< 0: all processors
  /// Products, too, give a row the same bits whatever other rows are in the step. Packed weights always do.
  bool batch_invariant = false;
  /// Called while weights are loaded, from the calling thread; may be empty.
  std::function<void(double fraction)> progress = {};
};

/// Bytes, before anything is loaded.
struct MemoryEstimate {
  std::int64_t weights = 0;    ///< beside the mapped file
  std::int64_t cache = 0;      ///< all pages
  std::int64_t workspace = 0;  ///< values of a step
  std::int64_t total() const { return weights + cache + workspace; }
};

/// Time of all steps since the last reset, by Role.
struct RoleTime {
  std::int64_t count = 0;
  double seconds = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Program& program() const = 0;
  virtual const BackendOptions& options() const = 0;
  /// "cpu (8 threads, int16 activations)".
  virtual std::string name() const = 0;
  virtual MemoryEstimate memory() const = 0;
  /// Runs the program on the step's tokens, stores their keys and values, fills `out`. Returns when it is done. Throws
  /// ArgumentError for a batch beyond options(), a token outside the vocabulary, a position beyond program().context and
  /// pages that are not there; nothing is then stored.
  virtual void run(const Batch& batch, const Outputs& out) = 0;
  /// Keys and values of page `from` to page `to`, in all layers.
  virtual void copy_page(std::int32_t from, std::int32_t to) = 0;
  /// Of each Role, kRoles of them. Times are only taken between set_profile(true) and set_profile(false).
  virtual void set_profile(bool on) = 0;
  virtual std::vector<RoleTime> profile() const = 0;
  /// Steps from now on leave out the operations of these roles, and their results are wrong: what a step takes less is what
  /// those take beside the others. Throws Unsupported where set_profile() tells that exactly.
  virtual void leave_out(const std::vector<Role>& roles);
};

/// Throws ArgumentError where `batch` breaks a rule above: for every backend's run().
void check(const Batch& batch, const Outputs& out, const Program& program, const BackendOptions& options);

}  // namespace cgp::engine
