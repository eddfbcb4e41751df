// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the tcgen05 files share. The tensor unit of a CTA (of a CTA pair with .cta_group::2) executes mma, cp
// and shift in the order of issue; each is asynchronous for its thread. A commit covers the operations that
// its own thread issued before it. PTX ISA 9.7.16.6.
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "cgp/emu/async/async_ops.h"
#include "cgp/emu/race/race_tensor.h"
#include "cgp/emu/tensor/tensor_memory.h"

namespace cgp::emu {

/// The tensor unit of a block, as a party of races (race::unit_agent).
inline constexpr std::uint32_t kTensorUnit = 64;

/// One mma, cp or shift between issue and execution.
struct TensorStep {
  Issuer by;
  virtual ~TensorStep() = default;
  virtual void run() = 0;  ///< reads operands, computes, writes Tensor Memory
};

class TensorPipeline {
 public:
  /// Takes the next place in the order and hands the step to the asynchronous policy.
  void submit(std::unique_ptr<TensorStep> step, race::Agent agent = {});
  /// What `warp`'s `lane` has issued so far: steps below the number; the agent's clock covers them.
  struct Issued {
    std::uint64_t number = 0;
    race::Agent agent;
  };
  Issued issued_by(const Warp& warp, int lane) const;
  void complete_until(std::uint64_t number);

 private:
  std::deque<std::unique_ptr<TensorStep>> queue_;
  std::uint64_t first_ = 0;  ///< number of queue_.front()
  std::unordered_map<std::uint64_t, Issued> last_;
};

/// 1 or 2, from the modifiers.
int cta_group_of(const ptx::Inst& i);
/// Refuses modules whose .target has no tcgen05: it needs an a or f target of sm_100, sm_103 or sm_110.
void need_tensor_target(Decoder& d);
/// The CTAs that an operation of this group size works on, leader (even rank) first; with group 1 the second
/// is nullptr. Fails when there is no live peer.
struct CtaPair {
  Cta* cta[2] = {nullptr, nullptr};
  int count() const { return cta[1] ? 2 : 1; }
};
CtaPair cta_pair(Warp& w, const Op& op, int group);
TensorPipeline& tensor_pipeline(Cta& cta, int group);

/// The address operand of an .aligned instruction: the same in all lanes, or a finding.
std::uint32_t uniform_address(Warp& w, const Op& op, const Address& a, std::string_view what);

/// For the race detector, at issue: the 16-byte pieces of an operand that a step reads in a CTA's shared
/// memory.
class OperandPieces {
 public:
  OperandPieces(const Issuer& by, race::Agent agent, Cta& cta);
  ~OperandPieces();  ///< hands on what was marked
  void mark(std::uint32_t offset) {
    if (offset / 16 < pieces_.size()) pieces_[offset / 16] = true;
  }

 private:
  const Issuer& by_;
  race::Agent agent_;
  Cta& cta_;
  std::vector<bool> pieces_;
};

/// Reads 16-byte pieces of operands in a CTA's shared memory for an asynchronous step; reports pieces
/// outside it or never written, once each.
class SharedOperand {
 public:
  SharedOperand(const Issuer& by, Cta& cta, std::string_view what) : by_(by), cta_(cta), what_(what) {}
  const std::byte* piece(std::uint32_t offset);

 private:
  void report(Check check, std::string_view cls, std::uint32_t offset, std::string problem, std::string hint);
  const Issuer& by_;
  Cta& cta_;
  std::string what_;
  bool out_ = false, unwritten_ = false;
};

/// Completes the tcgen05.ld that the warp has issued.
void land_tensor_loads(Warp& w);

void add_tcgen05_alloc(Table& t);     ///< exec_tcgen05_alloc.cpp: alloc, dealloc, relinquish_alloc_permit
void add_tcgen05_transfer(Table& t);  ///< exec_tcgen05_transfer.cpp: ld, st, wait
void add_tcgen05_mma(Table& t);       ///< exec_tcgen05_mma.cpp
void add_tcgen05_copy(Table& t);      ///< exec_tcgen05_copy.cpp: cp, shift
void add_tcgen05_order(Table& t);     ///< tcgen05.cpp: commit, fence

}  // namespace cgp::emu
