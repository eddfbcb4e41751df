// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a shader language must be able to say. The lowering of PTX (lower.h) speaks this interface only; wgsl.cpp and
// spirv.cpp implement it. Values are typed: signed integers are operations on u32, f16 and bf16 are bits in a u32.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/shader/shader.h"

namespace cgp::shader {

enum class Type : std::uint8_t { none, boolean, u32, f32, u64 };

/// `id` is the implementation's.
struct Value {
  Type type = Type::none;
  std::uint32_t id = 0;
};
struct Variable {
  Type type = Type::none;
  std::uint32_t id = 0;
};

enum class Unary : std::uint8_t {
  not_,    ///< boolean, u32, u64
  negate,  ///< u32, u64, f32
  abs,     ///< f32
  floor,   ///< f32, as the next five
  ceil,
  trunc,
  round_even,
  sqrt,
  inverse_sqrt,
  exp2,
  log2,
  tanh,
  popcount,       ///< u32
  leading_zeros,  ///< u32; 32 for 0
  reverse,        ///< u32: bits
};

/// Both operands have one type; a shift's amount is u32 and less than the width.
enum class Binary : std::uint8_t {
  add,  ///< u32, u64, f32
  sub,
  mul,
  div,  ///< unsigned or f32
  rem,  ///< unsigned
  div_signed,
  rem_signed,
  high,         ///< u32: upper half of the product
  high_signed,  ///< u32
  and_,         ///< boolean, u32, u64
  or_,
  xor_,
  shl,  ///< u32, u64
  shr,
  shr_signed,
  min,  ///< unsigned; f32: the other operand if one is NaN
  max,
  min_signed,
  max_signed,
};

/// f32: false if an operand is NaN, except ne.
enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge, lt_signed, le_signed, gt_signed, ge_signed };

enum class Convert : std::uint8_t {
  bits,               ///< u32 <-> f32, unchanged
  extend,             ///< u32 -> u64
  extend_signed,      ///< u32 -> u64
  low,                ///< u64 -> u32
  high,               ///< u64 -> u32
  to_float,           ///< u32, u64 -> f32, to nearest even
  to_float_signed,    ///< u32, u64 -> f32
  to_integer,         ///< f32 -> u32, truncated; the value fits
  to_integer_signed,  ///< f32 -> u32
  half_to_float,      ///< bits of f16 in the low half of a u32 -> f32; Layout::float16
  float_to_half,      ///< f32 -> bits of f16 in a u32, to nearest even; Layout::float16
};

enum class Atomic : std::uint8_t {
  add,
  and_,
  or_,
  xor_,
  min,
  max,
  min_signed,
  max_signed,
  exchange,
  compare_exchange
};

enum class Builtin : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  index,  ///< tid.x + ntid.x * (tid.y + ntid.y * tid.z)
};

enum class Memory : std::uint8_t { global, shared, constant, local, params };

/// A place in memory. Offsets are in bytes.
struct Place {
  Memory memory = Memory::global;
  std::uint32_t buffer = 0;  ///< WGSL, global: index of the binding
  Value offset;              ///< u32; SPIR-V, global: the u64 address. Type::none: only `constant`
  std::uint64_t constant = 0;
  bool strong = false;  ///< volatile or relaxed: not to be merged with other accesses
};

/// How one memory is accessed, over the whole kernel.
struct Access {
  bool read = false, written = false;
  bool atomic = false;  ///< an atomic operation, or a store of less than a word
  bool floats = true;   ///< every access is of whole words that registers hold as f32
  bool vectors = true;  ///< every access is of four words
};

/// What the kernel needs, known before anything is written.
struct Layout {
  Shader shader;
  std::vector<Access> buffers;  ///< WGSL: per binding, the first is binding 1
  Access shared;
  std::uint32_t shared_words = 0;
  std::uint32_t exchange_words = 0;  ///< workgroup memory for shuffles, votes and matrices; 0: none
  bool votes = false;                ///< any_thread may be asked for
  bool subgroups = false;
  bool subgroup_directive = true;  ///< WGSL
  std::uint32_t local_words = 0;
  std::vector<std::uint32_t> constants;                 ///< words of the .const variables
  bool float16 = false;                                 ///< SPIR-V: f16 is converted by instructions
  bool native64 = false;                                ///< global addresses are 64-bit numbers
  bool wide_shared = false;                             ///< SPIR-V: ShaderOptions::wide_shared
  bool narrow_shared = false;                           ///< SPIR-V: ShaderOptions::narrow_shared
  std::optional<MatrixLayout> matrix_f16, matrix_bf16;  ///< SPIR-V: as ShaderOptions
};

class Builder {
 public:
  virtual ~Builder() = default;

  virtual Value boolean(bool v) = 0;
  virtual Value word(std::uint32_t v) = 0;
  virtual Value wide(std::uint64_t v) = 0;
  virtual Value real(std::uint32_t bits) = 0;

  virtual Value unary(Unary op, Value a) = 0;
  /// `exact`: not to be fused with another operation, where the language can say so.
  virtual Value binary(Binary op, Value a, Value b, bool exact = false) = 0;
  virtual Value compare(Compare op, Value a, Value b) = 0;
  virtual Value select(Value condition, Value yes, Value no) = 0;
  virtual Value fma(Value a, Value b, Value c) = 0;
  virtual Value convert(Convert op, Value a) = 0;
  virtual Value join(Value low, Value high) = 0;  ///< u64 of two u32
  virtual Value builtin(Builtin b) = 0;

  /// The value under a name, computed here. Values that are used twice must be kept.
  virtual Value keep(Value v, std::string_view name = {}) = 0;
  virtual Variable declare(Type t, std::string_view name) = 0;  ///< at the function's top, zero
  virtual Value get(Variable v) = 0;
  virtual void set(Variable v, Value x) = 0;

  /// A function of u32 and f32, written once by `body`, which returns its result.
  struct Helper {
    std::string_view name;
    std::vector<Type> parameters;
    Type result = Type::u32;
    Value (*body)(Builder& b, const std::vector<Value>& arguments) = nullptr;
  };
  virtual Value call(const Helper& h, const std::vector<Value>& arguments) = 0;

  /// `count` words (or one value of 8 or 16 bits, zero extended) as u32 or f32.
  virtual std::vector<Value> load(const Place& p, int bits, int count) = 0;
  virtual void store(const Place& p, int bits, const std::vector<Value>& v) = 0;     ///< u32 or f32
  virtual Value atomic(const Place& p, Atomic op, Value v, Value compare = {}) = 0;  ///< the old u32
  virtual void barrier() = 0;                                                        ///< workgroup and memory
  virtual void fence() = 0;  ///< of global and workgroup memory

  // Where the options give a subgroup size of 32
  virtual Value shuffle(Value v, Value lane) = 0;  ///< u32 from a lane
  virtual Value ballot(Value condition) = 0;       ///< u32
  /// A * B + C of matrices of 16 x 16 and 16 x MatrixLayout::columns halves (bf16 or f16) over 32 threads: A's registers, and for each
  /// 8 columns those of B and C, as of mma.m16n8k16 in PTX. Where Layout::matrix_f16 or matrix_bf16 is given.
  virtual std::vector<Value> multiply(bool bf16, const std::vector<Value>& a, const std::vector<Value>& b,
                                      const std::vector<Value>& c) = 0;
  // Scratch memory of the workgroup, Layout::exchange_words
  virtual void put(Value index, Value v) = 0;
  virtual Value take(Value index) = 0;
  /// Whether the boolean holds in any thread of the workgroup; the same in all, with barriers.
  virtual Value any_thread(Value condition) = 0;

  virtual void begin_if(Value condition) = 0;
  virtual void begin_else() = 0;
  virtual void end_if() = 0;
  virtual void begin_loop(bool unroll = true) = 0;  ///< false: asks not to
  virtual void leave() = 0;                         ///< break; nothing may follow in its list
  virtual void next() = 0;                          ///< continue; nothing may follow in its list
  virtual void end_loop() = 0;
  virtual void comment(std::string_view text) = 0;
};

}  // namespace cgp::shader
