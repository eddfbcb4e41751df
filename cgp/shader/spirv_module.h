// SPDX-License-Identifier: Apache-2.0
#pragma once
// The words of a SPIR-V module, in its sections. https://registry.khronos.org/SPIR-V/specs/unified1/SPIRV.html
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string_view>
#include <vector>

namespace cgp::shader::spv {

using Word = std::uint32_t;
using Id = std::uint32_t;
using Words = std::vector<Word>;

enum Op : Word {
  OpName = 5,
  OpExtension = 10,
  OpExtInstImport = 11,
  OpExtInst = 12,
  OpMemoryModel = 14,
  OpEntryPoint = 15,
  OpExecutionMode = 16,
  OpCapability = 17,
  OpTypeVoid = 19,
  OpTypeBool = 20,
  OpTypeInt = 21,
  OpTypeFloat = 22,
  OpTypeVector = 23,
  OpTypeArray = 28,
  OpTypeStruct = 30,
  OpTypePointer = 32,
  OpTypeFunction = 33,
  OpConstantTrue = 41,
  OpConstantFalse = 42,
  OpConstant = 43,
  OpConstantComposite = 44,
  OpConstantNull = 46,
  OpFunction = 54,
  OpFunctionParameter = 55,
  OpFunctionEnd = 56,
  OpFunctionCall = 57,
  OpVariable = 59,
  OpLoad = 61,
  OpStore = 62,
  OpAccessChain = 65,
  OpDecorate = 71,
  OpMemberDecorate = 72,
  OpCompositeConstruct = 80,
  OpCompositeExtract = 81,
  OpConvertFToU = 109,
  OpConvertFToS = 110,
  OpConvertSToF = 111,
  OpConvertUToF = 112,
  OpUConvert = 113,
  OpSConvert = 114,
  OpFConvert = 115,
  OpConvertUToPtr = 120,
  OpBitcast = 124,
  OpSNegate = 126,
  OpFNegate = 127,
  OpIAdd = 128,
  OpFAdd = 129,
  OpISub = 130,
  OpFSub = 131,
  OpIMul = 132,
  OpFMul = 133,
  OpUDiv = 134,
  OpSDiv = 135,
  OpFDiv = 136,
  OpUMod = 137,
  OpSRem = 138,
  OpUMulExtended = 151,
  OpSMulExtended = 152,
  OpLogicalEqual = 164,
  OpLogicalNotEqual = 165,
  OpLogicalOr = 166,
  OpLogicalAnd = 167,
  OpLogicalNot = 168,
  OpSelect = 169,
  OpIEqual = 170,
  OpINotEqual = 171,
  OpUGreaterThan = 172,
  OpSGreaterThan = 173,
  OpUGreaterThanEqual = 174,
  OpSGreaterThanEqual = 175,
  OpULessThan = 176,
  OpSLessThan = 177,
  OpULessThanEqual = 178,
  OpSLessThanEqual = 179,
  OpFOrdEqual = 180,
  OpFUnordNotEqual = 183,
  OpFOrdLessThan = 184,
  OpFOrdGreaterThan = 186,
  OpFOrdLessThanEqual = 188,
  OpFOrdGreaterThanEqual = 190,
  OpShiftRightLogical = 194,
  OpShiftRightArithmetic = 195,
  OpShiftLeftLogical = 196,
  OpBitwiseOr = 197,
  OpBitwiseXor = 198,
  OpBitwiseAnd = 199,
  OpNot = 200,
  OpBitReverse = 204,
  OpBitCount = 205,
  OpControlBarrier = 224,
  OpMemoryBarrier = 225,
  OpAtomicLoad = 227,
  OpAtomicStore = 228,
  OpAtomicExchange = 229,
  OpAtomicCompareExchange = 230,
  OpAtomicIAdd = 234,
  OpAtomicSMin = 236,
  OpAtomicUMin = 237,
  OpAtomicSMax = 238,
  OpAtomicUMax = 239,
  OpAtomicAnd = 240,
  OpAtomicOr = 241,
  OpAtomicXor = 242,
  OpLoopMerge = 246,
  OpSelectionMerge = 247,
  OpLabel = 248,
  OpBranch = 249,
  OpBranchConditional = 250,
  OpReturn = 253,
  OpReturnValue = 254,
  OpGroupNonUniformBallot = 339,
  OpGroupNonUniformShuffle = 345,
  OpTypeCooperativeMatrixKHR = 4456,
  OpCooperativeMatrixMulAddKHR = 4459,
};

/// GLSL.std.450
enum Glsl : Word {
  RoundEven = 2,
  Trunc = 3,
  FAbs = 4,
  Floor = 8,
  Ceil = 9,
  Tanh = 21,
  Exp2 = 29,
  Log2 = 30,
  Sqrt = 31,
  InverseSqrt = 32,
  UMin = 38,
  SMin = 39,
  UMax = 41,
  SMax = 42,
  Fma = 50,
  FindUMsb = 75,
  NMin = 79,
  NMax = 80,
};

enum Storage : Word {
  Input = 1,
  Workgroup = 4,
  Private = 6,
  Function = 7,
  PushConstant = 9,
  PhysicalStorageBuffer = 5349
};

/// Appends one instruction.
inline void emit(Words& to, Op op, std::initializer_list<Word> operands) {
  to.push_back(Word(operands.size() + 1) << 16 | op);
  to.insert(to.end(), operands);
}
inline void emit(Words& to, Op op, const Words& operands) {
  to.push_back(Word(operands.size() + 1) << 16 | op);
  to.insert(to.end(), operands.begin(), operands.end());
}
/// A string as words: UTF-8, ended by a zero byte.
inline Words text(std::string_view s) {
  Words out(s.size() / 4 + 1);
  for (std::size_t i = 0; i < s.size(); ++i) out[i / 4] |= Word(std::uint8_t(s[i])) << (8 * (i % 4));
  return out;
}

/// Types, constants and global variables, each declared once.
class Declarations {
 public:
  Id id() { return next_++; }
  Id bound() const { return next_; }

  /// The declaration with these operands, its result first among the words (types) or second (constants).
  Id type(Op op, const Words& operands) {
    Words key{op};
    key.insert(key.end(), operands.begin(), operands.end());
    auto [at, added] = known_.try_emplace(std::move(key), 0);
    if (!added) return at->second;
    at->second = id();
    Words all{at->second};
    all.insert(all.end(), operands.begin(), operands.end());
    emit(words, op, all);
    return at->second;
  }
  Id constant(Op op, Id of, const Words& value) {
    Words key{op, of};
    key.insert(key.end(), value.begin(), value.end());
    auto [at, added] = known_.try_emplace(std::move(key), 0);
    if (!added) return at->second;
    at->second = id();
    Words all{of, at->second};
    all.insert(all.end(), value.begin(), value.end());
    emit(words, op, all);
    return at->second;
  }

  Id u32() { return type(OpTypeInt, {32, 0}); }
  Id u64() { return type(OpTypeInt, {64, 0}); }
  Id f32() { return type(OpTypeFloat, {32}); }
  Id boolean() { return type(OpTypeBool, {}); }
  Id none() { return type(OpTypeVoid, {}); }
  Id vector(Id of, Word n) { return type(OpTypeVector, {of, n}); }
  Id pointer(Storage s, Id to) { return type(OpTypePointer, {s, to}); }
  Id word(Word v) { return constant(OpConstant, u32(), {v}); }

  Words words;

 private:
  Id next_ = 1;
  std::map<Words, Id> known_;
};

}  // namespace cgp::shader::spv
