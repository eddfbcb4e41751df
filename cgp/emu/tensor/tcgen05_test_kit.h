// SPDX-License-Identifier: Apache-2.0
#pragma once
// For the tests of tcgen05: element types, operand images in shared memory by the tables of the ISA, and a
// kernel that puts them there, runs a piece of PTX and dumps Tensor Memory.
#include <functional>
#include <set>

#include "cgp/emu/tensor/tensor_test_kit.h"
#include "cgp/testing/assemble.h"

namespace cgp::emu::test {

/// Every program of these tests is real syntax: ptxas accepts it (where there is a ptxas).
inline void expect_assembles(const std::string& ptx, std::string_view arch = "sm_100a") {
  if (cgp::find_ptxas().empty()) return;
  const auto a = cgp::testing::assemble(ptx, arch);
  EXPECT_TRUE(a.ok) << a.log;
}

/// The same for the first program of each `key` (the forms that a sweep repeats).
inline void expect_assembles_once(const std::string& key, const std::string& ptx,
                                  std::string_view arch = "sm_100a") {
  static std::set<std::string> seen;
  if (seen.insert(key).second) expect_assembles(ptx, arch);
}

struct ElementType {
  const char* name;
  int bits;  ///< of the number
  int k;     ///< elements of 32 bytes of K
  std::function<std::uint32_t(double)> encode;
};

/// Bits of a small float with `e` exponent and `m` mantissa bits for a value that it has exactly.
inline std::uint32_t small_float(double v, int e, int m) {
  const int bias = (1 << (e - 1)) - 1;
  const std::uint32_t sign = v < 0 ? 1u << (e + m) : 0;
  v = v < 0 ? -v : v;
  for (std::uint32_t u = 0; u < 1u << (e + m); ++u) {
    const int x = int(u >> m), f = int(u & ((1u << m) - 1));
    const double value = x ? std::ldexp(1.0 + std::ldexp(f, -m), x - bias) : std::ldexp(f, 1 - bias - m);
    if (value == v) return u | sign;
  }
  ADD_FAILURE() << v << " has no exact code";
  return 0;
}

/// An operand of `rows` rows and k elements as bytes of shared memory, and the descriptor for it at address
/// zero (without the version bits 46-48).
struct OperandImage {
  std::vector<std::uint8_t> bytes;
  std::uint64_t descriptor = 0;
};
using Bits = std::vector<std::uint32_t>;  // [row][k]

/// Layout of sm_100, figures of 9.7.16.4.1: 0 none, 1, 2, 3 for 32, 64, 128 bytes. `bits` per element in
/// memory; 6- and 4-bit elements of the 8-bit kinds (`padded`) come in slots of 16 elements and 16 bytes.
inline OperandImage k_major_image(const Bits& m, int rows, int k, int bits, int swizzle,
                                  bool padded = false) {
  OperandImage image;
  const int width = 16 << swizzle, groups = (rows + 7) / 8;
  const std::uint64_t modes[] = {0, 6, 4, 2};
  image.bytes.resize(std::size_t(groups * 8 * (swizzle ? width : 32)), 0);
  const int slot = padded ? 16 : 128 / bits;  // elements of 16 bytes
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < k; ++i) {
      const int chunk = i / slot, bit = i % slot * bits;
      int at;
      if (swizzle == 0) {
        at = r / 8 * 128 + chunk * groups * 128 + r % 8 * 16;
      } else {
        // 32-byte swizzle: two chunks change places every four rows; 64: every two; 128: every row.
        const int f = swizzle == 3 ? r % 8 : swizzle == 2 ? r % 8 / 2 : r % 8 / 4;
        at = r / 8 * 8 * width + r % 8 * width + (chunk ^ f) * 16;
      }
      for (int b = 0; b < bits; ++b)
        if (m[std::size_t(r * k + i)] >> b & 1)
          image.bytes[std::size_t(at + (bit + b) / 8)] |= std::uint8_t(1u << (bit + b) % 8);
    }
  image.descriptor = modes[swizzle] << 61 | (swizzle ? std::uint64_t(8 * width / 16) : 128 / 16) << 32 |
                     (swizzle ? 1ull : std::uint64_t(groups * 128 / 16)) << 16;
  return image;
}

/// The same operand with M or N contiguous. Swizzle 4 is the 128-byte swizzle in pieces of 32 bytes.
inline OperandImage mn_major_image(const Bits& m, int rows, int k, int bits, int swizzle) {
  OperandImage image;
  const int bytes = bits / 8, width = swizzle == 4 ? 128 : 16 << swizzle, per = width / bytes;
  const int boxes = (rows + per - 1) / per, deep = swizzle == 4 ? 4 : 8, box = k * width;
  image.bytes.resize(std::size_t(boxes * box), 0);
  const std::uint64_t modes[] = {0, 6, 4, 2, 1};
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < k; ++i) {
      const int byte = r % per * bytes, chunk = byte / 16, line = i * width / 128 % 8;
      int at = r / per * box + i * width;
      if (swizzle == 0 || swizzle == 3)
        at += (chunk ^ (swizzle ? line : 0)) * 16;
      else if (swizzle == 4)
        at += ((chunk / 2 ^ i % 4) * 2 + chunk % 2) * 16;
      else
        at += (chunk ^ (swizzle == 2 ? i % 8 / 2 : i % 8 / 4)) * 16;
      std::memcpy(&image.bytes[std::size_t(at + byte % 16)], &m[std::size_t(r * k + i)], std::size_t(bytes));
    }
  // Leading: the next `per` rows of M or N (no swizzle: the next eight of k); stride: the next group of k.
  if (swizzle)
    image.descriptor =
        modes[swizzle] << 61 | std::uint64_t(deep * width / 16) << 32 | std::uint64_t(box / 16) << 16;
  else
    image.descriptor = std::uint64_t(box / 16) << 32 | std::uint64_t(128 / 16) << 16;
  return image;
}

/// A kernel of 128 threads per CTA: copies `bytes` per CTA from `pin` to shared memory `buf`, allocates
/// `columns`, fills Tensor Memory from `pd`, runs `body` in thread 0 of the (leading) CTA, waits for the
/// commit that the kernel adds, and dumps Tensor Memory [lane][column] back to `pd`.
/// In `body`: %t Tensor Memory address, %s address of buf, %p true, registers %r<16>, %rd<8>, parameters.
struct TensorKernel {
  int group = 1, columns = 32, bytes = 1024;
  std::string parameters;  ///< ", .param .u64 da, ..."
  std::string body;
  std::string version = "8.6";
  bool commit = true;

  std::string text() const {
    using text::cat;
    const std::string g = cat(".cta_group::", group);
    const std::string sync =
        group == 2 ? " barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n" : " bar.sync 0;\n";
    std::string s = cat(
        ".version ", version, "\n.target sm_100a\n.address_size 64\n",
        ".visible .entry k(.param .u64 pin, .param .u64 pd", parameters, ")",
        group == 2 ? " .reqnctapercluster 2, 1, 1" : "", " {\n",
        " .reg .u64 %i, %o, %x; .reg .b32 %t, %tw, %v; .reg .u32 %s, %b, %th, %n, %c, %w, %rank; .reg .pred "
        "%p, %q, "
        "%z;\n"
        " .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .b32 %d<32>; .reg .b16 %h;\n"
        " .shared .align 1024 .b8 buf[",
        bytes, "]; .shared .align 8 .b64 bar; .shared .align 4 .b32 slot;\n",
        " mov.u32 %th, %tid.x; mov.u32 %s, buf; mov.u32 %b, bar; ",
        group == 2 ? "mov.u32 %rank, %cluster_ctarank;" : "mov.u32 %rank, 0;", " shr.u32 %w, %th, 5;\n",
        " ld.param.u64 %i, [pin]; mul.wide.u32 %x, %rank, ", bytes,
        "; add.u64 %i, %i, %x;\n mov.u32 %n, %th;\n",
        "COPY: mad.wide.u32 %x, %n, 4, %i; ld.global.u32 %v, [%x]; mad.lo.u32 %c, %n, 4, %s; st.shared.u32 "
        "[%c], "
        "%v;\n add.u32 %n, %n, 128; setp.lt.u32 %p, %n, ",
        bytes / 4, "; @%p bra COPY;\n",
        " setp.ne.u32 %p, %th, 0; @%p bra INIT;\n mbarrier.init.shared::cta.b64 [%b], 1; "
        "fence.mbarrier_init.release.cluster;\nINIT:\n",
        " setp.ne.u32 %p, %w, 0; @%p bra ALLOC;\n tcgen05.alloc", g, ".sync.aligned.shared::cta.b32 [slot], ",
        columns, ";\n tcgen05.relinquish_alloc_permit", g,
        ".sync.aligned;\nALLOC:\n fence.proxy.async.shared::cta; tcgen05.fence::before_thread_sync;\n", sync,
        " tcgen05.fence::after_thread_sync;\n ld.shared.u32 %t, [slot]; shl.b32 %tw, %w, 21; add.u32 %tw, "
        "%tw, "
        "%t;\n",
        " ld.param.u64 %o, [pd]; mad.lo.u32 %n, %rank, 128, %th; mul.wide.u32 %x, %n, ", columns * 4,
        "; add.u64 %o, %o, %x;\n");
    for (int c = 0; c < columns; c += 32) {
      for (int i = 0; i < 32; i += 4)
        s += cat(" ld.global.v4.u32 {%d", i, ",%d", i + 1, ",%d", i + 2, ",%d", i + 3, "}, [%o+", (c + i) * 4,
                 "];\n");
      s += cat(" add.u32 %v, %tw, ", c, "; tcgen05.st.sync.aligned.32x32b.x32.b32 [%v], ", regs("%d", 32),
               ";\n");
    }
    s += cat(
        " tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync;\n", sync,
        " tcgen05.fence::after_thread_sync;\n setp.ne.u32 %q, %th, 0; setp.ne.u32 %z, %rank, 0; or.pred %q, "
        "%q, %z; setp.eq.u32 %p, %th, %th;\n @%q bra DONE;\n",
        body, "\n");
    if (commit)
      s += cat(" mov.b16 %h, ", group == 2 ? 3 : 1, ";\n tcgen05.commit", g,
               ".mbarrier::arrive::one.shared::cluster", group == 2 ? ".multicast::cluster" : "", ".b64 [%b]",
               group == 2 ? ", %h" : "", ";\n");
    s += "DONE:\n";
    if (commit) s += "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q, [%b], 0; @!%q bra WAIT;\n";
    s += " bar.warp.sync 0xffffffff; tcgen05.fence::after_thread_sync;\n";
    for (int c = 0; c < columns; c += 32) {
      s += cat(" add.u32 %v, %tw, ", c, "; tcgen05.ld.sync.aligned.32x32b.x32.b32 ", regs("%d", 32),
               ", [%v];\n tcgen05.wait::ld.sync.aligned;\n");
      for (int i = 0; i < 32; i += 4)
        s += cat(" st.global.v4.u32 [%o+", (c + i) * 4, "], {%d", i, ",%d", i + 1, ",%d", i + 2, ",%d", i + 3,
                 "};\n");
    }
    s += cat(" tcgen05.fence::before_thread_sync;\n", sync,
             " setp.ne.u32 %p, %w, 0; @%p bra END;\n tcgen05.dealloc", g, ".sync.aligned.b32 %t, ", columns,
             ";\nEND: ret;\n}\n");
    return s;
  }
};

/// A TensorKernel's run: input image and Tensor Memory of every CTA, one after the other.
struct TensorRun {
  Result result;
  std::vector<std::uint32_t> tensor;  ///< [cta][lane][column]
};
inline TensorRun run_tensor(const TensorKernel& k, const std::vector<std::uint8_t>& input,
                            const std::vector<std::uint32_t>& tensor,
                            const std::function<void(Params&)>& more, Options options = {}) {
  const std::string ptx = k.text();
  Machine machine("sm_100a");
  auto program = Program::load(ptx);
  EXPECT_EQ(program->entry("k").unsupported, "");
  const auto instance = machine.load(program);
  const auto upload = [&](const auto& v) {
    const std::uint64_t a = machine.alloc(v.size() * sizeof v[0], "buffer");
    machine.write(a, std::as_bytes(std::span(v)));
    return a;
  };
  const std::uint64_t out = upload(tensor);
  Params p;
  p.add(upload(input)).add(out);
  if (more) more(p);
  Launch l;
  l.entry = "k";
  l.grid = {unsigned(k.group), 1, 1};
  l.block = {128, 1, 1};
  l.cluster = l.grid;
  l.params = p.span();
  options.workers = 1;
  TensorRun r;
  r.result = machine.launch(instance, l, options);
  r.tensor.resize(tensor.size());
  machine.read(out, std::as_writable_bytes(std::span(r.tensor)));
  return r;
}

}  // namespace cgp::emu::test
