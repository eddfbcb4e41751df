// SPDX-License-Identifier: Apache-2.0
#pragma once
// The corpus: every instruction form of the table that computes something, each as a small piece of PTX with
// hard inputs. A Case is one form; it runs once per thread of `cases` threads in blocks of 128. A warp, a
// warpgroup or a block works together where the instruction does.
#include <cstdint>
#include <string>
#include <vector>

#include "cgp/ptx/forms.h"

namespace cgp::numerics {

inline constexpr std::uint32_t kBlock = 128;

/// How the values of an input are chosen (inputs.cpp).
enum class Draw : std::uint8_t {
  scalar,  ///< hard pairs and triples of the type, then random ones of eight styles
  small,   ///< factors and addends whose result lies next to the smallest normal number
  all16,   ///< every 16-bit pattern; in 32 bits a second one above it
  bit,     ///< 0 or 1
  tensor,  ///< operands of a matrix instruction: one style per warp
  group,   ///< the same, one style per two blocks
  block,   ///< bytes of a whole block's shared operand, read at %i<k>_p, as `group`
  lane,    ///< small numbers around 0..31
  clamp,   ///< the c operand of shfl
  mask     ///< registers of a sparse matrix's metadata
};

struct Input {
  Draw draw = Draw::scalar;
  ptx::Mod type = ptx::Mod::b32;
  int role = 0;   ///< 0, 1, 2 for a, b, c: operands of one role have the same values in all forms
  int bits = 32;  ///< of the register: 8, 16, 32, 64
  int count = 1;  ///< registers
  friend auto operator<=>(const Input&, const Input&) = default;
};
struct Output {
  ptx::Mod type = ptx::Mod::b32;
  int bits = 32, count = 1;
};
/// Bytes of one thread's cell: registers of 16 and 32 bits take 4 bytes.
inline std::uint32_t cell_bytes(int bits, int count) { return std::uint32_t((bits == 64 ? 8 : 4) * count); }

/// `body` reads %i<k>_<n> (register n of input k), writes %o<k>_<n>, and may use %gid, %th, %lane and
/// registers that it declares itself. `$` in it stands for a number that is unique in the module.
struct Case {
  std::string key;  ///< the instruction with its constants: "lop3.b32 150"
  std::string family;
  std::string body;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::uint32_t cases = 4096;
  bool approximate = false;
  ptx::Op op = ptx::Op::kCount;
};

struct Corpus {
  std::vector<Case> cases;
  std::vector<std::string> not_measured;  ///< forms of other architectures
};

/// One instruction of the table with all its modifiers chosen.
struct Instance {
  const ptx::Form* form = nullptr;
  ptx::Mods mods;
  std::string text;  ///< opcode and modifiers
};
/// All combinations of a form's modifiers.
std::vector<Instance> instances(const ptx::Form& form);
bool runs_on_hopper(const Instance& i);

void add_scalar_cases(Corpus& c);
void add_warp_cases(Corpus& c);
void add_atomic_cases(Corpus& c);
void add_matrix_cases(Corpus& c);
void add_wgmma_cases(Corpus& c);
/// All of them, or only those of one family (empty: all).
Corpus build_corpus(const std::string& family);
std::vector<std::string> family_names();

/// The values of one input for `cases` threads, in cells (inputs.cpp). The same everywhere.
std::vector<std::uint32_t> values(const Input& input, std::uint32_t cases);
/// Bytes of shared memory that a block has for the operands of wgmma.
inline constexpr std::uint32_t kBlockA = 8192, kBlockB = 32768;

}  // namespace cgp::numerics
