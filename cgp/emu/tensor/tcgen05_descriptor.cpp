// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/tensor/tcgen05_descriptor.h"

#include <algorithm>

#include "cgp/base/text.h"

namespace cgp::emu {

using ptx::Mod;
using text::cat;

std::string_view name(MmaKind k) {
  constexpr std::string_view names[] = {"f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"};
  return names[int(k)];
}

namespace {

// Types by their code; pred stands for a code without meaning.
Mod element(MmaKind kind, std::uint32_t code) {
  constexpr Mod f16[] = {Mod::f16, Mod::bf16}, i8[] = {Mod::u8, Mod::s8};
  constexpr Mod f8[] = {Mod::e4m3, Mod::e5m2, Mod::pred, Mod::e2m3, Mod::e3m2, Mod::e2m1};
  switch (kind) {
    case MmaKind::f16:
      return code < 2 ? f16[code] : Mod::pred;
    case MmaKind::tf32:
      return code == 2 ? Mod::tf32 : Mod::pred;
    case MmaKind::f8f6f4:
    case MmaKind::mxf8f6f4:
      return code < 6 ? f8[code] : Mod::pred;
    case MmaKind::i8:
      return code < 2 ? i8[code] : Mod::pred;
    default:
      return code == 1 ? Mod::e2m1 : Mod::pred;
  }
}
std::string_view legal_elements(MmaKind kind) {
  switch (kind) {
    case MmaKind::f16:
      return "0 (f16) and 1 (bf16)";
    case MmaKind::tf32:
      return "2 (tf32)";
    case MmaKind::i8:
      return "0 (u8) and 1 (s8)";
    case MmaKind::f8f6f4:
    case MmaKind::mxf8f6f4:
      return "0 (e4m3), 1 (e5m2), 3 (e2m3), 4 (e3m2) and 5 (e2m1)";
    default:
      return "1 (e2m1)";
  }
}

int elements_of_k(MmaKind kind) {
  switch (kind) {
    case MmaKind::f16:
      return 16;
    case MmaKind::tf32:
      return 8;
    case MmaKind::mxf4:
    case MmaKind::mxf4nvf4:
      return 64;
    default:
      return 32;
  }
}

std::string check_types(std::uint32_t bits, const MmaForm& f, InstructionDescriptor& d) {
  const std::uint32_t code_mask = f.kind == MmaKind::mxf4 || f.kind == MmaKind::mxf4nvf4 ? 3 : 7;
  const std::uint32_t a = bits >> 7 & 7, b = bits >> 10 & code_mask;
  d.a = element(f.kind, a);
  d.b = element(f.kind, b);
  if (d.a == Mod::pred || d.b == Mod::pred)
    return cat("bits ", d.a == Mod::pred ? "7-9 (type of A) are " : "10-12 (type of B) are ",
               d.a == Mod::pred ? a : b, "; .kind::", name(f.kind), " takes ", legal_elements(f.kind));
  if (f.kind == MmaKind::f16 && d.a != d.b) return ".kind::f16 takes A and B of the same type";
  if (is_block_scaled(f.kind)) {
    d.d = Mod::f32;
    return {};
  }
  const std::uint32_t code = bits >> 4 & 3;
  d.d = code == 0 ? Mod::f16 : code == 1 ? Mod::f32 : code == 2 ? Mod::s32 : Mod::pred;
  const bool integer = f.kind == MmaKind::i8;
  const bool half = code == 0 && ((f.kind == MmaKind::f16 && d.a == Mod::f16) || f.kind == MmaKind::f8f6f4);
  if (integer ? code != 2 : code != 1 && !half)
    return cat("bits 4-5 (type of D) are ", code, "; ",
               integer                   ? ".kind::i8 takes 2 (s32)"
               : f.kind == MmaKind::tf32 ? ".kind::tf32 takes 1 (f32)"
               : d.a == Mod::bf16        ? "bf16 takes 1 (f32)"
                                         : "0 (f16) and 1 (f32) are legal");
  return {};
}

std::string check_options(std::uint32_t bits, const MmaForm& f, const InstructionDescriptor& d) {
  const bool integer = f.kind == MmaKind::i8, scaled = is_block_scaled(f.kind);
  const bool fp4 = f.kind == MmaKind::mxf4 || f.kind == MmaKind::mxf4nvf4;
  if (d.sparse != f.sparse)
    return cat("bit 2 (sparsity) is ", d.sparse, ", but the instruction is ", f.sparse ? "" : "not ", ".sp");
  if ((bits >> 3 & 1) && !integer) return "bit 3 (saturate) is for .kind::i8 only";
  if ((d.negate_a || d.negate_b) && integer) return "bits 13 and 14 (negate) are not for .kind::i8";
  if (fp4 && (d.a_mn_major || d.b_mn_major)) return "bits 15 and 16 (MN-major) are not for 4-bit types";
  if (d.a_mn_major && f.a_in_tensor) return "bit 15: A in Tensor Memory is K-major";
  if (bits >> 6 & 1) return "bit 6 is reserved";
  if (!scaled && (bits >> 23 & 1)) return "bit 23 is reserved";
  if (!scaled && (bits >> 29 & 1)) return "bit 29 is reserved";
  if (!scaled && bits >> 30 && !f.weight_stationary) return "bits 30-31 (maximum shift) are for .ws only";
  if (scaled && !fp4 && bits >> 31) return "bit 31 is reserved";
  if (fp4 && bits >> 31) return "bit 31 (K of 96) is for sm_103a, which is not modelled; K is 64";
  return {};
}

std::string check_scales(const MmaForm& f, const InstructionDescriptor& d) {
  if (!is_block_scaled(f.kind)) return {};
  if (!d.ue8m0 && f.kind != MmaKind::mxf4nvf4)
    return "bit 23 is 0 (ue4m3 scales), which is for .kind::mxf4nvf4";
  if (!d.ue8m0 && f.scale_vector == 2)
    return "bit 23 is 0 (ue4m3 scales), which needs .scale_vec::4X or .block16";
  const auto legal = [&](int id) {
    return f.scale_vector == 1 ? true : f.scale_vector == 2 ? id == 0 || id == 2 : id == 0;
  };
  if (!legal(d.sfa_id) || !legal(d.sfb_id))
    return cat(
        "the scale factor ids are ", d.sfa_id, " and ", d.sfb_id, "; ",
        f.scale_vector == 2 ? "with two scales a row they are 0 or 2" : "with four scales a row they are 0");
  return {};
}

std::string check_shape(const MmaForm& f, const InstructionDescriptor& d) {
  const bool scaled = is_block_scaled(f.kind);
  const auto bad_m = [&](std::string_view legal) {
    return cat("bits 24-28: M is ", d.m, "; legal are ", legal, f.weight_stationary ? " with .ws" : "",
               " with .cta_group::", f.group, " and .kind::", name(f.kind));
  };
  const auto bad_n = [&](std::string_view legal) {
    return cat("bits 17-22: N is ", d.n, "; legal are ", legal, " with M = ", d.m,
               " and .cta_group::", f.group);
  };
  if (f.weight_stationary) {
    if (d.m != 32 && d.m != 64 && d.m != 128) return bad_m("32, 64 and 128");
    if (d.n != 64 && d.n != 128 && (d.n != 256 || f.sparse))
      return bad_n(f.sparse ? "64 and 128" : "64, 128 and 256");
    return {};
  }
  if (f.group == 2 ? d.m != 128 && d.m != 256 : d.m != 128 && (d.m != 64 || scaled))
    return bad_m(f.group == 2 ? "128 and 256" : scaled ? "128" : "64 and 128");
  const int step = f.group == 2 ? 16 : 8;
  const bool i8_gap = f.kind == MmaKind::i8 && f.group == 1 && d.n > 32 && d.n % 16;
  if (d.n < step || d.n > 256 || d.n % step || i8_gap)
    return bad_n(f.group == 2            ? "16, 32, ... 256"
                 : f.kind == MmaKind::i8 ? "8, 16, 24, 32, 48, ... 256"
                                         : "8, 16, ... 256");
  return {};
}

}  // namespace

std::string decode_instruction_descriptor(std::uint32_t bits, const MmaForm& f, InstructionDescriptor& d) {
  d = {};
  d.sparse_id = int(bits & 3);
  d.sparse = bits >> 2 & 1;
  d.saturate = bits >> 3 & 1;
  d.negate_a = bits >> 13 & 1;
  d.negate_b = bits >> 14 & 1;
  d.a_mn_major = bits >> 15 & 1;
  d.b_mn_major = bits >> 16 & 1;
  d.n = int(bits >> 17 & 0x3f) * 8;
  d.m = int(bits >> 24 & 0x1f) * 16;
  d.k = elements_of_k(f.kind) * (f.sparse ? 2 : 1);
  if (f.weight_stationary && bits >> 30) d.max_shift = 4 << (bits >> 30);
  if (is_block_scaled(f.kind)) {
    d.sfb_id = int(bits >> 4 & 3);
    d.sfa_id = int(bits >> 29 & 3);
    d.ue8m0 = bits >> 23 & 1;
    d.saturate = false;
  }
  std::string why = check_types(bits, f, d);
  if (why.empty()) why = check_options(bits, f, d);
  if (why.empty()) why = check_shape(f, d);
  if (why.empty()) why = check_scales(f, d);
  return why;
}

std::string ColumnMask::decode(std::uint64_t bits, const InstructionDescriptor& d, ColumnMask& m) {
  m = {};
  m.bits_ = bits;
  m.shift_ = int(bits >> 56 & 63);
  m.columns_ = d.n / (128 / d.m);
  if (bits >> 36 & 7) return "bits 36-38 are reserved";
  if (bits >> 62) return "bits 62-63 are reserved";
  if (const int most = d.m == 32 ? 16 : 32; m.shift_ > most)
    return cat("the column shift (bits 56-61) is ", m.shift_, "; with M = ", d.m, " it is at most ", most);
  if (m.shift_ > d.max_shift)
    return cat("the column shift (bits 56-61) is ", m.shift_,
               ", the instruction descriptor (bits 30-31) announces at most ", d.max_shift);
  return {};
}

bool ColumnMask::zero(int n) const {
  if (!(bits_ >> 39 & 1)) return false;
  const int part = n / columns_;
  const bool zeros_first = bits_ >> (32 + part) & 1;
  const int zeros = int(bits_ >> 40 & 255) + 1, used = int(bits_ >> 48 & 255) + 1;
  // The start count skips columns of the first span, at most all but one.
  const int start = std::min(int(bits_ >> (8 * part) & 255), (zeros_first ? zeros : used) - 1);
  const int at = (n % columns_ + start) % (zeros + used);
  return zeros_first ? at < zeros : at >= used;
}

std::string MatrixDescriptor::wrong_constant(std::uint64_t bits) {
  const auto version = bits >> 46 & 7;
  if (version == 1) return {};
  return cat("bits 46-48 are ", version, "; sm_100 needs the constant 1 there (wgmma's descriptor has 0)");
}

std::string MatrixDescriptor::decode(std::uint64_t bits, MatrixDescriptor& d) {
  d = {};
  d.start = std::uint32_t(bits & 0x3fff) << 4;
  d.leading = std::uint32_t(bits >> 16 & 0x3fff) << 4;
  d.stride = std::uint32_t(bits >> 32 & 0x3fff) << 4;
  if (const auto base = bits >> 49 & 7; base != 0)
    return cat(
        "the base offset (bits 49-51) is ", base,
        "; patterns that do not start at their natural boundary are not modelled: align swizzled tiles to "
        "1024, 512 or 256 bytes");
  if (bits >> 52 & 1) return "bit 52 (absolute leading address) is for sm_103a, which is not modelled";
  switch (const auto mode = int(bits >> 61)) {
    case 0:
      break;
    case 1:
      d.atom32 = true;
      break;
    case 2:
      d.swizzle_bits = 3;
      break;
    case 4:
      d.swizzle_bits = 2;
      break;
    case 6:
      d.swizzle_bits = 1;
      break;
    default:
      return cat("the layout (bits 61-63) is ", mode,
                 "; legal are 0 (none), 1 (128 bytes in pieces of 32), 2 (128), 4 (64) and 6 (32 bytes)");
  }
  return {};
}

}  // namespace cgp::emu
