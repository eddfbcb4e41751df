// SPDX-License-Identifier: Apache-2.0
// SPIR-V 1.5 for Vulkan 1.2: global memory by 64-bit addresses (physical storage buffers), parameters as push
// constants, 64-bit integers.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/shader/lower.h"
#include "cgp/shader/spirv_module.h"

namespace cgp::shader {
namespace {

using namespace spv;

constexpr Word kDevice = 1, kWorkgroup = 2, kSubgroup = 3;
constexpr Word kOrdered = 0x8 | 0x40 | 0x100;  // acquire and release, buffers and workgroup memory
constexpr Word kDontUnroll = 2;

class Spirv final : public Builder {
 public:
  explicit Spirv(const Layout& l) : l_(l) {
    glsl_ = d_.id();
    entry_ = d_.id();
    if (l.shader.block_bytes) {
      const Id words = l.shader.block_by_address ? d_.u64() : array(d_.u32(), l.shader.block_bytes / 4, 4);
      const Id block = d_.type(OpTypeStruct, {words});
      emit(decorations_, OpDecorate, {block, 2});               // Block
      emit(decorations_, OpMemberDecorate, {block, 0, 35, 0});  // Offset 0
      parameters_ = global(PushConstant, block, "parameters");
    }
    if (!l.wide_shared) {
      if (l.shared_words) shared_ = global(Workgroup, array(d_.u32(), l.shared_words, 0), "shared_words");
      if (l.exchange_words) exchange_ = global(Workgroup, array(d_.u32(), l.exchange_words, 0), "exchange");
    }
    if (l.local_words) local_ = global(Private, array(d_.u32(), l.local_words, 0), "local_words");
    if (!l.constants.empty()) {
      const Id type = array(d_.u32(), Word(l.constants.size()), 0);
      Words values;
      for (Word w : l.constants) values.push_back(d_.word(w));
      constants_ = global(Private, type, "constant_words", d_.constant(OpConstantComposite, type, values));
    }
    // 16- and 8-bit types are of memory only.
    half_ = l.shader.needs.storage16 ? d_.type(OpTypeInt, {16, 0}) : 0;
    byte_ = l.shader.needs.storage8 ? d_.type(OpTypeInt, {8, 0}) : 0;
  }

  bool converts_halves() const { return float16_; }
  /// Of workgroup memory.
  Word shared_bytes() const {
    if (l_.wide_shared) return explicit_layout_ ? explicit_bytes() : 0;
    return 4 * (l_.shared_words + l_.exchange_words) + (vote_ ? 4 : 0);
  }
  bool wide_shared() const { return explicit_layout_; }
  bool narrow_shared() const { return views_[0] || views_[1]; }

  Words finish() {
    const auto& s = l_.shader;
    Words head;
    Words capabilities{1, 11, 5347};  // Shader, Int64, PhysicalStorageBufferAddresses
    if (half_) capabilities.push_back(4433);
    if (byte_) capabilities.push_back(4448);
    if (float16_)
      capabilities.insert(capabilities.end(), {9, 4464, 4467});  // Float16, DenormPreserve, RoundingModeRTE
    if (l_.subgroups) capabilities.insert(capabilities.end(), {61, 64, 65});
    std::vector<std::string_view> extensions;
    if (explicit_layout_) {
      capabilities.push_back(4428);                 // WorkgroupMemoryExplicitLayoutKHR
      if (views_[0]) capabilities.push_back(4429);  // 8-bit access
      if (views_[1]) capabilities.push_back(4430);  // 16-bit access
      extensions.emplace_back("SPV_KHR_workgroup_memory_explicit_layout");
    }
    if (matrices_) {
      capabilities.push_back(6022);              // CooperativeMatrixKHR
      if (!float16_) capabilities.push_back(9);  // Float16
      extensions.emplace_back("SPV_KHR_cooperative_matrix");
    }
    if (bf16_) {
      capabilities.insert(capabilities.end(), {5116, 5118});  // BFloat16TypeKHR, BFloat16CooperativeMatrixKHR
      extensions.emplace_back("SPV_KHR_bfloat16");
    }
    for (Word c : capabilities) emit(head, OpCapability, {c});
    for (std::string_view e : extensions) emit(head, OpExtension, text(e));
    Words import{glsl_};
    append(import, text("GLSL.std.450"));
    emit(head, OpExtInstImport, import);
    emit(head, OpMemoryModel, {5348, 1});  // PhysicalStorageBuffer64, GLSL450
    Words entry{5, entry_};                // GLCompute
    append(entry, text(s.entry));
    append(entry, interface_);
    emit(head, OpEntryPoint, entry);
    emit(head, OpExecutionMode, {entry_, 17, s.block[0], s.block[1], s.block[2]});  // LocalSize
    if (float16_)
      for (const Word mode : {4459u, 4462u})
        emit(head, OpExecutionMode, {entry_, mode, 16});  // DenormPreserve, RoundingModeRTE
    Words name{entry_};
    append(name, text(s.entry));
    emit(head, OpName, name);
    const Id none = d_.none();
    const Id signature = d_.type(OpTypeFunction, {none});
    Words main;
    emit(main, OpFunction, {none, entry_, 0, signature});
    emit(main, OpLabel, {d_.id()});
    append(main, variables_);
    append(main, prologue_);
    append(main, body_);
    emit(main, OpReturn, {});
    emit(main, OpFunctionEnd, {});
    Words out{0x07230203, 0x00010500, 0, d_.bound(), 0};
    for (const Words* part : {&head, &names_, &decorations_, &d_.words, &functions_, &main})
      append(out, *part);
    return out;
  }

  Value boolean(bool v) override {
    return {Type::boolean, d_.constant(v ? OpConstantTrue : OpConstantFalse, d_.boolean(), {})};
  }
  Value word(std::uint32_t v) override { return {Type::u32, d_.word(v)}; }
  Value wide(std::uint64_t v) override {
    return {Type::u64, d_.constant(OpConstant, d_.u64(), {Word(v), Word(v >> 32)})};
  }
  Value real(std::uint32_t bits) override { return {Type::f32, d_.constant(OpConstant, d_.f32(), {bits})}; }

  Value unary(Unary op, Value a) override {
    switch (op) {
      case Unary::not_:
        return made(a.type, a.type == Type::boolean ? OpLogicalNot : OpNot, {a.id});
      case Unary::negate:
        return made(a.type, a.type == Type::f32 ? OpFNegate : OpSNegate, {a.id});
      case Unary::abs:
        return glsl(a.type, FAbs, {a.id});
      case Unary::floor:
        return glsl(a.type, Floor, {a.id});
      case Unary::ceil:
        return glsl(a.type, Ceil, {a.id});
      case Unary::trunc:
        return glsl(a.type, Trunc, {a.id});
      case Unary::round_even:
        return glsl(a.type, RoundEven, {a.id});
      case Unary::sqrt:
        return glsl(a.type, Sqrt, {a.id});
      case Unary::inverse_sqrt:
        return glsl(a.type, InverseSqrt, {a.id});
      case Unary::exp2:
        return glsl(a.type, Exp2, {a.id});
      case Unary::log2:
        return glsl(a.type, Log2, {a.id});
      case Unary::tanh:
        return glsl(a.type, Tanh, {a.id});
      case Unary::popcount:
        return made(a.type, OpBitCount, {a.id});
      case Unary::leading_zeros:  // FindUMsb(0) is -1
        return binary(Binary::sub, word(31), glsl(a.type, FindUMsb, {a.id}), false);
      case Unary::reverse:
        return made(a.type, OpBitReverse, {a.id});
    }
    return a;
  }

  Value binary(Binary op, Value a, Value b, bool exact) override {
    const bool real = a.type == Type::f32, truth = a.type == Type::boolean;
    const auto make = [&](Op o) {
      const Value v = made(a.type, o, {a.id, b.id});
      if (real && exact) emit(decorations_, OpDecorate, {v.id, 42});  // NoContraction
      return v;
    };
    const auto high = [&](Op o) {
      const Id pair = d_.type(OpTypeStruct, {d_.u32(), d_.u32()});
      const Id r = d_.id();
      emit(body_, o, {pair, r, a.id, b.id});
      return made(Type::u32, OpCompositeExtract, {r, 1});
    };
    const auto extreme = [&](Compare c, Glsl g) {
      if (a.type == Type::u64) return select(compare(c, a, b), a, b);
      return glsl(a.type, g, {a.id, b.id});
    };
    switch (op) {
      case Binary::add:
        return make(real ? OpFAdd : OpIAdd);
      case Binary::sub:
        return make(real ? OpFSub : OpISub);
      case Binary::mul:
        return make(real ? OpFMul : OpIMul);
      case Binary::div:
        return make(real ? OpFDiv : OpUDiv);
      case Binary::rem:
        return make(OpUMod);
      case Binary::div_signed:
        return make(OpSDiv);
      case Binary::rem_signed:
        return make(OpSRem);
      case Binary::high:
        return high(OpUMulExtended);
      case Binary::high_signed:
        return high(OpSMulExtended);
      case Binary::and_:
        return make(truth ? OpLogicalAnd : OpBitwiseAnd);
      case Binary::or_:
        return make(truth ? OpLogicalOr : OpBitwiseOr);
      case Binary::xor_:
        return make(truth ? OpLogicalNotEqual : OpBitwiseXor);
      case Binary::shl:
        return make(OpShiftLeftLogical);
      case Binary::shr:
        return make(OpShiftRightLogical);
      case Binary::shr_signed:
        return make(OpShiftRightArithmetic);
      case Binary::min:
        return real ? glsl(a.type, NMin, {a.id, b.id}) : extreme(Compare::lt, UMin);
      case Binary::max:
        return real ? glsl(a.type, NMax, {a.id, b.id}) : extreme(Compare::gt, UMax);
      case Binary::min_signed:
        return extreme(Compare::lt_signed, SMin);
      case Binary::max_signed:
        return extreme(Compare::gt_signed, SMax);
    }
    return a;
  }

  Value compare(Compare op, Value a, Value b) override {
    const bool real = a.type == Type::f32;
    const auto make = [&](Op o) { return made(Type::boolean, o, {a.id, b.id}); };
    switch (op) {
      case Compare::eq:
        return make(real ? OpFOrdEqual : a.type == Type::boolean ? OpLogicalEqual : OpIEqual);
      case Compare::ne:
        return make(real ? OpFUnordNotEqual : a.type == Type::boolean ? OpLogicalNotEqual : OpINotEqual);
      case Compare::lt:
        return make(real ? OpFOrdLessThan : OpULessThan);
      case Compare::le:
        return make(real ? OpFOrdLessThanEqual : OpULessThanEqual);
      case Compare::gt:
        return make(real ? OpFOrdGreaterThan : OpUGreaterThan);
      case Compare::ge:
        return make(real ? OpFOrdGreaterThanEqual : OpUGreaterThanEqual);
      case Compare::lt_signed:
        return make(OpSLessThan);
      case Compare::le_signed:
        return make(OpSLessThanEqual);
      case Compare::gt_signed:
        return make(OpSGreaterThan);
      case Compare::ge_signed:
        return make(OpSGreaterThanEqual);
    }
    return a;
  }

  Value select(Value c, Value yes, Value no) override {
    return made(yes.type, OpSelect, {c.id, yes.id, no.id});
  }
  Value fma(Value a, Value b, Value c) override { return glsl(Type::f32, Fma, {a.id, b.id, c.id}); }

  Value convert(Convert op, Value a) override {
    switch (op) {
      case Convert::bits:
        return made(a.type == Type::u32 ? Type::f32 : Type::u32, OpBitcast, {a.id});
      case Convert::extend:
        return made(Type::u64, OpUConvert, {a.id});
      case Convert::extend_signed:
        return made(Type::u64, OpSConvert, {a.id});
      case Convert::low:
        return made(Type::u32, OpUConvert, {a.id});
      case Convert::high:
        return made(Type::u32, OpUConvert, {binary(Binary::shr, a, word(32), false).id});
      case Convert::to_float:
        return made(Type::f32, OpConvertUToF, {a.id});
      case Convert::to_float_signed:
        return made(Type::f32, OpConvertSToF, {a.id});
      case Convert::to_integer:
        return made(Type::u32, OpConvertFToU, {a.id});
      case Convert::to_integer_signed:
        return made(Type::u32, OpConvertFToS, {a.id});
      case Convert::half_to_float: {
        const Id pair = d_.id(), one = d_.id();
        emit(body_, OpBitcast, {d_.vector(float16(), 2), pair, a.id});
        emit(body_, OpCompositeExtract, {float16(), one, pair, 0});
        return made(Type::f32, OpFConvert, {one});
      }
      case Convert::float_to_half: {
        const Id one = d_.id(), pair = d_.id(), zero = d_.constant(OpConstantNull, float16(), {});
        emit(body_, OpFConvert, {float16(), one, a.id});
        emit(body_, OpCompositeConstruct, {d_.vector(float16(), 2), pair, one, zero});
        return made(Type::u32, OpBitcast, {pair});
      }
    }
    return a;
  }
  Value join(Value low, Value high) override {
    const Value up = binary(Binary::shl, convert(Convert::extend, high), word(32), false);
    return binary(Binary::or_, convert(Convert::extend, low), up, false);
  }

  Value builtin(Builtin b) override {
    const auto k = std::size_t(b);
    if (builtins_[k].id) return builtins_[k];
    const Id vector = d_.vector(d_.u32(), 3);
    if (b == Builtin::index) {
      const Id v = input(d_.u32(), 29);  // LocalInvocationIndex
      const Id r = d_.id();
      emit(prologue_, OpLoad, {d_.u32(), r, v});
      return builtins_[k] = {Type::u32, r};
    }
    constexpr Word kBuiltin[] = {27, 26, 24};  // LocalInvocationId, WorkgroupId, NumWorkgroups
    Id& variable = inputs_[k / 3];
    if (!variable) variable = input(vector, kBuiltin[k / 3]);
    const Id whole = d_.id(), r = d_.id();
    emit(prologue_, OpLoad, {vector, whole, variable});
    emit(prologue_, OpCompositeExtract, {d_.u32(), r, whole, Word(k % 3)});
    return builtins_[k] = {Type::u32, r};
  }

  Value keep(Value v, std::string_view) override { return v; }
  Variable declare(Type t, std::string_view n) override {
    const Id type = of(t), v = d_.id();
    emit(variables_, OpVariable,
         {d_.pointer(spv::Function, type), v, spv::Function, d_.constant(OpConstantNull, type, {})});
    named(v, n);
    return {t, v};
  }
  Value get(Variable v) override { return made(v.type, OpLoad, {v.id}); }
  void set(Variable v, Value x) override { emit(body_, OpStore, {v.id, x.id}); }

  Value call(const Helper& h, const std::vector<Value>& arguments) override {
    auto at =
        std::find_if(helpers_.begin(), helpers_.end(), [&](const auto& x) { return x.first == h.name; });
    if (at == helpers_.end()) {
      Words body, variables;
      std::swap(body, body_);
      std::swap(variables, variables_);
      const Id function = d_.id();
      Words signature{of(h.result)};
      for (Type t : h.parameters) signature.push_back(of(t));
      Words head;
      emit(head, OpFunction, {of(h.result), function, 0, d_.type(OpTypeFunction, signature)});
      std::vector<Value> inside;
      for (Type t : h.parameters) {
        inside.push_back({t, d_.id()});
        emit(head, OpFunctionParameter, {of(t), inside.back().id});
      }
      emit(head, OpLabel, {d_.id()});
      const Value result = h.body(*this, inside);
      emit(body_, OpReturnValue, {result.id});
      emit(body_, OpFunctionEnd, {});
      append(functions_, head);
      append(functions_, variables_);
      append(functions_, body_);
      std::swap(body, body_);
      std::swap(variables, variables_);
      named(function, h.name);
      helpers_.emplace_back(h.name, function);
      at = helpers_.end() - 1;
    }
    Words operands{at->second};
    for (const Value& a : arguments) operands.push_back(a.id);
    return made(h.result, OpFunctionCall, operands);
  }

  std::vector<Value> load(const Place& p, int bits, int count) override {
    if (p.memory == Memory::global) return load_global(address(p), bits, count, p.strong);
    if (p.memory == Memory::params) {
      if (l_.shader.block_by_address) {
        const Id at = chain(PushConstant, d_.u64(), parameters_, {d_.word(0)});
        const Value base = made(Type::u64, OpLoad, {at});
        const Value a = binary(Binary::add, base, wide(p.constant / 4 * 4), false);
        if (bits == 32) return load_global(a, 32, count, false);
        return {part(load_global(a, 32, 1, false)[0], word(std::uint32_t(p.constant)), bits)};
      }
      std::vector<Value> out;
      for (int k = 0; k < count; ++k) {
        const Id at = chain(PushConstant, d_.u32(), parameters_,
                            {d_.word(0), d_.word(std::uint32_t(p.constant / 4) + Word(k))});
        out.push_back(made(Type::u32, OpLoad, {at}));
      }
      if (bits < 32) out[0] = part(out[0], word(std::uint32_t(p.constant)), bits);
      return out;
    }
    const Value at = offset(p);
    if (p.memory == Memory::shared && in_one_access(bits, count)) {
      const Id to = view(at, bits, count), r = d_.id();
      if (bits < 32) {
        emit(body_, OpLoad, {element_type(bits, 1), r, to});
        return {made(Type::u32, OpUConvert, {r})};
      }
      std::vector<Value> out;
      emit(body_, OpLoad, {element_type(bits, count), r, to});
      for (int k = 0; k < count; ++k) out.push_back(made(Type::u32, OpCompositeExtract, {r, Word(k)}));
      return out;
    }
    if (bits < 32) return {part(made(Type::u32, OpLoad, {element(p, at, 0)}), at, bits)};
    std::vector<Value> out;
    for (int k = 0; k < count; ++k) out.push_back(made(Type::u32, OpLoad, {element(p, at, Word(k))}));
    return out;
  }

  void store(const Place& p, int bits, const std::vector<Value>& values) override {
    std::vector<Value> v = values;
    for (Value& x : v)
      if (x.type == Type::f32) x = convert(Convert::bits, x);
    if (p.memory == Memory::global) {
      const Value a = address(p);
      if (bits < 32) {
        const Id type = bits == 16 ? half_ : byte_, small = d_.id();
        emit(body_, OpUConvert, {type, small, v[0].id});
        emit(body_, OpStore, {pointer(a, type), small, 2, Word(bits / 8)});
      } else if (p.strong) {
        for (std::size_t k = 0; k < v.size(); ++k)
          emit(body_, OpAtomicStore,
               {pointer(binary(Binary::add, a, wide(4 * k), false), d_.u32()), d_.word(kDevice), d_.word(0),
                v[k].id});
      } else if (v.size() == 1) {
        emit(body_, OpStore, {pointer(a, d_.u32()), v[0].id, 2, 4});
      } else {
        const Id type = d_.vector(d_.u32(), Word(v.size())), whole = d_.id();
        Words parts{type, whole};
        for (const Value& x : v) parts.push_back(x.id);
        emit(body_, OpCompositeConstruct, parts);
        emit(body_, OpStore, {pointer(a, type), whole, 2, Word(4 * v.size())});
      }
      return;
    }
    const Value at = offset(p);
    if (p.memory == Memory::shared && in_one_access(bits, int(v.size()))) {
      const Id whole = d_.id(), type = element_type(bits, int(v.size()));
      Words parts{type, whole};
      for (const Value& x : v) parts.push_back(x.id);
      emit(body_, bits < 32 ? OpUConvert : OpCompositeConstruct, parts);
      emit(body_, OpStore, {view(at, bits, int(v.size())), whole});
      return;
    }
    if (bits == 32) {
      for (std::size_t k = 0; k < v.size(); ++k) emit(body_, OpStore, {element(p, at, Word(k)), v[k].id});
      return;
    }
    const Value shift = shift_of(at, bits);
    const Value mask = unary(Unary::not_, binary(Binary::shl, word((1u << bits) - 1), shift, false));
    const Value put = binary(Binary::shl, v[0], shift, false);
    const Id to = element(p, at, 0);
    if (p.memory == Memory::local) {
      const Value old = binary(Binary::and_, made(Type::u32, OpLoad, {to}), mask, false);
      emit(body_, OpStore, {to, binary(Binary::or_, old, put, false).id});
      return;
    }
    made(Type::u32, OpAtomicAnd, {to, d_.word(kWorkgroup), d_.word(0), mask.id});
    made(Type::u32, OpAtomicOr, {to, d_.word(kWorkgroup), d_.word(0), put.id});
  }

  Value atomic(const Place& p, Atomic op, Value v, Value with) override {
    const bool global = p.memory == Memory::global;
    const Id to = global ? pointer(address(p), d_.u32()) : element(p, offset(p), 0);
    const Id scope = d_.word(global ? kDevice : kWorkgroup), relaxed = d_.word(0);
    if (op == Atomic::compare_exchange)
      return made(Type::u32, OpAtomicCompareExchange, {to, scope, relaxed, relaxed, v.id, with.id});
    constexpr Op kOps[] = {OpAtomicIAdd, OpAtomicAnd,  OpAtomicOr,   OpAtomicXor,     OpAtomicUMin,
                           OpAtomicUMax, OpAtomicSMin, OpAtomicSMax, OpAtomicExchange};
    return made(Type::u32, kOps[std::size_t(op)], {to, scope, relaxed, v.id});
  }

  void barrier() override {
    emit(body_, OpControlBarrier, {d_.word(kWorkgroup), d_.word(kWorkgroup), d_.word(kOrdered)});
  }
  void fence() override { emit(body_, OpMemoryBarrier, {d_.word(kDevice), d_.word(kOrdered)}); }

  Value shuffle(Value v, Value lane) override {
    return made(Type::u32, OpGroupNonUniformShuffle, {d_.word(kSubgroup), v.id, lane.id});
  }
  Value ballot(Value c) override {
    const Id vector = d_.vector(d_.u32(), 4), r = d_.id();
    emit(body_, OpGroupNonUniformBallot, {vector, r, d_.word(kSubgroup), c.id});
    return made(Type::u32, OpCompositeExtract, {r, 0});
  }
  void put(Value index, Value v) override { emit(body_, OpStore, {exchanged(index), v.id}); }
  Value take(Value index) override { return made(Type::u32, OpLoad, {exchanged(index)}); }
  std::vector<Value> multiply(bool bf16, const std::vector<Value>& a, const std::vector<Value>& b,
                              const std::vector<Value>& c) override {
    matrices_ = true;
    bf16_ = bf16_ || bf16;
    const Id half = bf16 ? d_.type(OpTypeFloat, {16, 0}) : d_.type(OpTypeFloat, {16});
    const MatrixLayout& layout = bf16 ? *l_.matrix_bf16 : *l_.matrix_f16;
    const Word columns = Word(layout.columns);
    const Matrix of_a = matrix(half, 16, 16, 0), of_b = matrix(half, 16, columns, 1),
                 of_c = matrix(d_.f32(), 16, columns, 2);
    // Places 2 x 2 of registers (or pairs of them), turned where the device has the other order.
    const auto turned = [](bool turn, Word at) { return turn ? (at & 1) << 1 | at >> 1 : at; };
    const auto put = [&](Id to, Id type, Word at, Id value) {
      emit(body_, OpStore, {chain(spv::Function, type, to, {d_.word(at)}), value});
    };
    const auto halves = [&](const Matrix& m, const std::vector<Value>& words, bool turn) {
      for (Word w = 0; w < words.size(); ++w) {
        const Id pair = d_.id();
        emit(body_, OpBitcast, {d_.vector(half, 2), pair, words[w].id});
        for (Word h = 0; h < 2; ++h) {
          const Id one = d_.id();
          emit(body_, OpCompositeExtract, {half, one, pair, h});
          put(m.variable, half, 2 * turned(turn, w) + h, one);
        }
      }
      const Id whole = d_.id();
      emit(body_, OpLoad, {m.type, whole, m.variable});
      return whole;
    };
    const auto place = [&](Word e) { return columns == 8 ? e : 2 * turned(layout.c_by_rows, e / 2) + e % 2; };
    const Id in_a = halves(of_a, a, layout.a_by_rows), in_b = halves(of_b, b, columns == 16 && layout.b_by_k);
    for (Word e = 0; e < c.size(); ++e) put(of_c.variable, d_.f32(), place(e), c[e].id);
    const Id in_c = d_.id(), result = d_.id();
    emit(body_, OpLoad, {of_c.type, in_c, of_c.variable});
    emit(body_, OpCooperativeMatrixMulAddKHR, {of_c.type, result, in_a, in_b, in_c});
    emit(body_, OpStore, {of_c.variable, result});
    std::vector<Value> out;
    for (Word e = 0; e < c.size(); ++e)
      out.push_back(
          made(Type::f32, OpLoad, {chain(spv::Function, d_.f32(), of_c.variable, {d_.word(place(e))})}));
    return out;
  }
  Value any_thread(Value c) override {
    const auto vote = [&] {
      if (l_.wide_shared) return view(word(4 * (l_.shared_words + l_.exchange_words)), 32, 1);
      if (!vote_) vote_ = global(Workgroup, d_.u32(), "vote");
      return vote_;
    };
    const Id scope = d_.word(kWorkgroup), relaxed = d_.word(0);
    begin_if(compare(Compare::eq, builtin(Builtin::index), word(0)));
    emit(body_, OpAtomicStore, {vote(), scope, relaxed, d_.word(0)});
    end_if();
    barrier();
    begin_if(c);
    made(Type::u32, OpAtomicOr, {vote(), scope, relaxed, d_.word(1)});
    end_if();
    barrier();
    const Value r = made(Type::u32, OpAtomicLoad, {vote(), scope, relaxed});
    barrier();
    return compare(Compare::ne, r, word(0));
  }

  void begin_if(Value c) override {
    Nest n{d_.id(), d_.id(), 0, 0};  // merge, otherwise
    const Id then = d_.id();
    emit(body_, OpSelectionMerge, {n.merge, 0});
    emit(body_, OpBranchConditional, {c.id, then, n.otherwise});
    label(then);
    nests_.push_back(n);
  }
  void begin_else() override {
    Nest& n = nests_.back();
    go(n.merge);
    label(n.otherwise);
    n.otherwise = 0;
  }
  void end_if() override {
    const Nest n = nests_.back();
    nests_.pop_back();
    go(n.merge);
    if (n.otherwise) {
      label(n.otherwise);
      go(n.merge);
    }
    label(n.merge);
  }
  void begin_loop(bool unroll) override {
    Nest n{d_.id(), 0, d_.id(), d_.id()};  // merge, header, continue
    const Id first = d_.id();
    go(n.header);
    label(n.header);
    emit(body_, OpLoopMerge, {n.merge, n.next, unroll ? 0u : kDontUnroll});
    emit(body_, OpBranch, {first});
    label(first);
    nests_.push_back(n);
  }
  void leave() override { go(loop().merge); }
  void next() override { go(loop().next); }
  void end_loop() override {
    const Nest n = nests_.back();
    nests_.pop_back();
    go(n.next);
    label(n.next);
    emit(body_, OpBranch, {n.header});
    label(n.merge);
  }
  void comment(std::string_view) override {}

 private:
  struct Nest {
    Id merge, otherwise, header, next;  ///< header: 0 for a branch
  };

  static void append(Words& to, const Words& from) { to.insert(to.end(), from.begin(), from.end()); }

  Id of(Type t) {
    switch (t) {
      case Type::boolean:
        return d_.boolean();
      case Type::u32:
        return d_.u32();
      case Type::f32:
        return d_.f32();
      default:
        return d_.u64();
    }
  }
  Value made(Type t, Op op, const Words& operands) {
    const Id type = of(t), r = d_.id();
    Words all{type, r};
    append(all, operands);
    emit(body_, op, all);
    return {t, r};
  }
  Value glsl(Type t, Glsl g, const Words& operands) {
    Words all{glsl_, g};
    append(all, operands);
    return made(t, OpExtInst, all);
  }
  // Workgroup memory with a layout: the kernel's words, those of shuffles and a vote, as arrays of elements of 1, 2, 4, 8 and 16
  // bytes that lie over each other.
  bool in_one_access(int bits, int count) const {
    if (bits < 32) return l_.narrow_shared;
    return l_.wide_shared && (count == 2 || count == 4);
  }
  Id element_type(int bits, int count) {
    if (bits < 32) return d_.type(OpTypeInt, {Word(bits), 0});
    return count == 1 ? d_.u32() : d_.vector(d_.u32(), Word(count));
  }
  Word explicit_bytes() const {
    return (4 * (l_.shared_words + l_.exchange_words + (l_.votes ? 1 : 0)) + 15) / 16 * 16;
  }
  /// Elements of 1 << log bytes.
  Id view_of(Word log) {
    if (views_[log]) return views_[log];
    explicit_layout_ = true;
    const Word bytes = explicit_bytes();
    const Id type = log < 2 ? element_type(8 << log, 1) : element_type(32, 1 << (log - 2));
    const Id block = d_.type(OpTypeStruct, {array(type, bytes >> log, 1u << log)});
    emit(decorations_, OpDecorate, {block, 2});               // Block
    emit(decorations_, OpMemberDecorate, {block, 0, 35, 0});  // Offset 0
    constexpr std::string_view kNames[] = {"shared_8", "shared_16", "shared_32", "shared_64", "shared_128"};
    views_[log] = global(Workgroup, block, kNames[log]);
    emit(decorations_, OpDecorate, {views_[log], 20});  // Aliased
    return views_[log];
  }
  Id view(Value at, int bits, int count) {
    const Word log = bits == 8 ? 0 : bits == 16 ? 1 : count == 1 ? 2 : count == 2 ? 3 : 4;
    const Value index = log ? binary(Binary::shr, at, word(log), false) : at;
    return chain(Workgroup, element_type(bits, count), view_of(log), {d_.word(0), index.id});
  }
  Id exchanged(Value index) {
    if (!l_.wide_shared) return chain(Workgroup, d_.u32(), exchange_, {index.id});
    const Value at = l_.shared_words ? binary(Binary::add, index, word(l_.shared_words), false) : index;
    return chain(Workgroup, d_.u32(), view_of(2), {d_.word(0), at.id});
  }

  struct Matrix {
    Id type = 0, variable = 0;
  };
  /// Use: 0 A, 1 B, 2 the accumulator.
  Matrix matrix(Id of, Word rows, Word columns, Word use) {
    const Id type = d_.type(OpTypeCooperativeMatrixKHR,
                            {of, d_.word(kSubgroup), d_.word(rows), d_.word(columns), d_.word(use)});
    for (const Matrix& m : matrix_variables_)
      if (m.type == type) return m;
    const Id v = d_.id();
    emit(variables_, OpVariable, {d_.pointer(spv::Function, type), v, spv::Function});
    return matrix_variables_.emplace_back(Matrix{type, v});
  }

  Id array(Id of, Word n, Word stride) {
    if (!stride) return d_.type(OpTypeArray, {of, d_.word(n)});
    const Id count = d_.word(n), a = d_.id();  // of its own: workgroup memory may not have a layout
    emit(d_.words, OpTypeArray, {a, of, count});
    emit(decorations_, OpDecorate, {a, 6, stride});  // ArrayStride
    return a;
  }
  Id global(Storage s, Id type, std::string_view n, Id initial = 0) {
    const Id p = d_.pointer(s, type), v = d_.id();
    if (initial)
      emit(d_.words, OpVariable, {p, v, s, initial});
    else
      emit(d_.words, OpVariable, {p, v, s});
    interface_.push_back(v);
    named(v, n);
    return v;
  }
  Id input(Id type, Word builtin) {
    const Id v = global(Input, type, "");
    emit(decorations_, OpDecorate, {v, 11, builtin});  // BuiltIn
    return v;
  }
  void named(Id id, std::string_view n) {
    if (n.empty()) return;
    Words all{id};
    append(all, text(n));
    emit(names_, OpName, all);
  }
  Id chain(Storage s, Id type, Id base, const Words& indices) {
    const Id p = d_.pointer(s, type), r = d_.id();
    Words all{p, r, base};
    append(all, indices);
    emit(body_, OpAccessChain, all);
    return r;
  }
  Id pointer(Value address, Id to) {
    const Id type = d_.pointer(PhysicalStorageBuffer, to), r = d_.id();
    emit(body_, OpConvertUToPtr, {type, r, address.id});
    return r;
  }
  Value address(const Place& p) {
    return p.constant ? binary(Binary::add, p.offset, wide(p.constant), false) : p.offset;
  }
  Value offset(const Place& p) {
    if (p.offset.type == Type::none) return word(std::uint32_t(p.constant));
    return p.constant ? binary(Binary::add, p.offset, word(std::uint32_t(p.constant)), false) : p.offset;
  }
  Id element(const Place& p, Value at, Word more) {
    Value index = binary(Binary::shr, at, word(2), false);
    if (more) index = binary(Binary::add, index, word(more), false);
    const bool shared = p.memory == Memory::shared;
    if (shared && l_.wide_shared) return chain(Workgroup, d_.u32(), view_of(2), {d_.word(0), index.id});
    return chain(shared ? Workgroup : Private, d_.u32(),
                 shared                      ? shared_
                 : p.memory == Memory::local ? local_
                                             : constants_,
                 {index.id});
  }
  Value shift_of(Value at, int bits) {
    return binary(Binary::shl, binary(Binary::and_, at, word(bits == 8 ? 3 : 2), false), word(3), false);
  }
  /// 8 or 16 bits of the word at an address.
  Value part(Value w, Value at, int bits) {
    return binary(Binary::and_, binary(Binary::shr, w, shift_of(at, bits), false), word((1u << bits) - 1),
                  false);
  }
  std::vector<Value> load_global(Value a, int bits, int count, bool strong) {
    if (bits < 32) {
      const Id type = bits == 16 ? half_ : byte_, r = d_.id();
      emit(body_, OpLoad, {type, r, pointer(a, type), 2, Word(bits / 8)});
      return {made(Type::u32, OpUConvert, {r})};
    }
    std::vector<Value> out;
    if (strong) {
      for (int k = 0; k < count; ++k)
        out.push_back(made(Type::u32, OpAtomicLoad,
                           {pointer(binary(Binary::add, a, wide(std::uint64_t(4 * k)), false), d_.u32()),
                            d_.word(kDevice), d_.word(0)}));
      return out;
    }
    if (count == 1) return {made(Type::u32, OpLoad, {pointer(a, d_.u32()), 2, 4})};
    const Id type = d_.vector(d_.u32(), Word(count)), r = d_.id();
    emit(body_, OpLoad, {type, r, pointer(a, type), 2, Word(4 * count)});
    for (int k = 0; k < count; ++k) out.push_back(made(Type::u32, OpCompositeExtract, {r, Word(k)}));
    return out;
  }

  Nest& loop() {
    for (auto n = nests_.rbegin(); n != nests_.rend(); ++n)
      if (n->header) return *n;
    return nests_.back();
  }
  /// Ends the block with a branch, if it has not ended.
  void go(Id to) {
    if (!ended_) emit(body_, OpBranch, {to});
    ended_ = true;
  }
  void label(Id l) {
    emit(body_, OpLabel, {l});
    ended_ = false;
  }

  Id float16() {
    float16_ = true;
    return d_.type(OpTypeFloat, {16});
  }

  const Layout& l_;
  Declarations d_;
  bool float16_ = false, matrices_ = false, bf16_ = false, explicit_layout_ = false;
  Id views_[5]{};  // by the logarithm of the element's bytes
  std::vector<Matrix> matrix_variables_;
  Id glsl_ = 0, entry_ = 0, parameters_ = 0, shared_ = 0, exchange_ = 0, local_ = 0, constants_ = 0,
     vote_ = 0, half_ = 0, byte_ = 0;
  Id inputs_[3]{};
  Value builtins_[10]{};
  Words decorations_, names_, variables_, prologue_, body_, functions_, interface_;
  std::vector<std::pair<std::string_view, Id>> helpers_;
  std::vector<Nest> nests_;
  bool ended_ = false;
};

}  // namespace

Shader translate_spirv(const ptx::Module& m, std::string_view entry, const ShaderOptions& o) {
  const Kernel k = prepare(m, entry, o, false);
  Spirv s(k.layout);
  Lowering(k, s).run();
  Shader out = k.layout.shader;
  out.spirv = s.finish();
  out.needs.float16 = s.converts_halves();
  out.needs.wide_shared = s.wide_shared();
  out.needs.narrow_shared = s.narrow_shared();
  out.needs.shared_bytes = s.shared_bytes();
  return out;
}

}  // namespace cgp::shader
