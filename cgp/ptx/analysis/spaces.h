// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which state space an address points into, and in which form: a variable's own address (a window offset) or
// a generic address made by cvta. An access whose space contradicts its address is a bug.
#include <string>
#include <vector>

#include "cgp/ptx/analysis/ssa.h"

namespace cgp::ptx {

struct Pointer {
  enum class Kind : std::uint8_t {
    unvisited,
    number,   ///< no address is known to be in it
    window,   ///< an address in the numbering of `space`
    generic,  ///< a generic address that points into `space`
    unknown   ///< may be several of these
  };
  Kind kind = Kind::unvisited;
  Space space = Space::generic;
  friend bool operator==(const Pointer&, const Pointer&) = default;
};

class Pointers {
 public:
  Pointers(const Module& m, const Function& f, const Cfg& c, const Ssa& s);
  Pointer of(ValueId v) const { return is_[v]; }
  Pointer operand(std::uint32_t inst, const Operand& o) const;

 private:
  Pointer written(std::uint32_t i) const;
  Pointer variable(SymbolId s) const;
  const Module& m_;
  const Function& f_;
  const Ssa& s_;
  std::vector<Pointer> is_;
};

struct SpaceMismatch {
  std::uint32_t inst = 0;
  std::string why;
};
std::vector<SpaceMismatch> space_mismatches(const Function& f, const Cfg& c, const Pointers& p);

}  // namespace cgp::ptx
