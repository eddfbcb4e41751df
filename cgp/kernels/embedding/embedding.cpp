// SPDX-License-Identifier: Apache-2.0
// embedding: rows of a table by index.
//   who      2^shift threads a row, up to 256; four accesses of each in flight
//   memory   the table's rows read once, the result written once; 16 bytes an access where everything is
//            aligned, else an element. Bits are moved: one kernel for all types of a size.
#include "cgp/kernels/embedding/embedding.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/embedding/embedding_impl.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kUnroll = 4;
constexpr std::uint32_t kThreads = embedding_impl::kThreads;

struct EmbeddingConfig {
  int bytes = 2;            ///< of an access
  bool wide = false;        ///< indices are s64
  bool error_flag = false;  ///< indices out of range are counted
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.number("access_bytes", "bytes", c.bytes);
    v.flag("index_s64", c.wide);
    v.flag("checked", c.error_flag);
  }
};

// Accesses of type T, N at a time; all ones where there is nothing to read.
template <class T, int N>
void copy_row(Kernel& k, const Ptr<global, const b8>& from, const Out<b8>& to, const Val<pred>& known,
              const Val<u64>& first, const Val<u64>& end, const Val<u64>& lanes) {
  const Val<T> ones(std::uint64_t(~0ull) >> (64 - T::bits));
  k.loop(range(first, end, lanes * std::uint64_t(kUnroll)), [&](const Val<u64>& i) {
    std::vector<RegGroup<T, N>> got;
    for (int j = 0; j < kUnroll; ++j) {
      const auto at = i + lanes * std::uint64_t(j);
      got.push_back(from.as<const T>().template ld_if<N, nc>(known & (at < end), at, ones));
    }
    for (int j = 0; j < kUnroll; ++j) {
      const auto at = i + lanes * std::uint64_t(j);
      to.as<T>().template st_if<N>(at < end, at, got[std::size_t(j)]);
    }
  });
}

template <template <class> class V>
struct EmbeddingArgs {
  V<In<b8>> indices, weight;
  V<Out<b8>> out;
  V<Out<u32>> error_flag;
  V<u64> rows, vocab;
  V<u64> weight_pitch, out_pitch;  ///< in bytes
  V<u64> accesses;                 ///< of a row
  V<u32> shift;                    ///< logarithm of the lanes that share a row
};

void gather_rows(Kernel& k, EmbeddingConfig b, EmbeddingArgs<DeviceArg> p) {
  k.block(int(kThreads));
  const auto thread = to<u64>(k.ctaid_x()) * std::uint64_t(kThreads) + to<u64>(k.tid());
  const auto lanes = Val<u64>(1) << p.shift;
  const auto row = thread >> p.shift, part = thread & (lanes - 1);
  const Val<pred> inside = row < p.rows;
  const auto index = embedding_impl::load_index(b.wide, p.indices, row, inside);
  const Val<pred> known = (index < p.vocab) & inside;
  if (b.error_flag)
    k.if_(inside & !known & (part == 0), [&] { red<relaxed, gpu, op::max>(p.error_flag, 0, Val<u32>(1)); });
  const auto from = p.weight.at(select(known, index, Val<u64>(0)) * p.weight_pitch);
  const auto target = p.out.at(row * p.out_pitch);
  const auto end = select(inside, p.accesses, Val<u64>(0));
  if (b.bytes == 16)
    copy_row<b32, 4>(k, from, target, known, part, end, lanes);
  else if (b.bytes == 4)
    copy_row<b32, 1>(k, from, target, known, part, end, lanes);
  else
    copy_row<b16, 1>(k, from, target, known, part, end, lanes);
}

Variant make(const EmbeddingConfig& c) { return config_variant("embedding", c, 75, gather_rows); }

struct Problem {
  Embedding e;
  EmbeddingConfig build;
};

Problem checked(Embedding e) {
  const row::Checker check{"embedding"};
  embedding_impl::check_sizes(check, e.rows, e.vocab, e.cols);
  check.present("weight", e.weight, row::kFloats, false);
  check.present("out", e.out, {e.weight.dtype}, true);
  embedding_impl::check_indices(check, e.indices, e.error_flag, e.rows);
  e.weight_layout = embedding_impl::check_rows(check, "weight", e.weight, e.vocab, e.cols, e.weight_layout);
  e.out_layout = embedding_impl::check_rows(check, "out", e.out, e.rows, e.cols, e.out_layout);
  const int size = cgp::bytes(e.weight.dtype), n = 16 / size;
  const bool wide =
      row::fits(e.weight, e.cols, e.weight_layout, n) && row::fits(e.out, e.cols, e.out_layout, n);
  return {e, {wide ? 16 : size, e.indices.dtype == DType::s64, e.error_flag.given}};
}

}  // namespace

void embedding(runtime::Stream& s, const Embedding& given) {
  const auto [e, b] = checked(given);
  if (e.rows == 0 || e.cols == 0) return;
  const auto size = std::uint64_t(cgp::bytes(e.weight.dtype));
  const std::uint64_t accesses = e.cols * size / std::uint64_t(b.bytes);
  const auto shift = embedding_impl::lanes_shift((accesses + kUnroll - 1) / kUnroll);
  launch::launch_kernel(s, load(s.device(), make(b)), runtime::grid_for(e.rows, kThreads >> shift),
                        EmbeddingArgs<launch::HostArg>{.indices = e.indices.arg(),
                                                       .weight = e.weight.arg(),
                                                       .out = e.out.arg(),
                                                       .error_flag = e.error_flag.arg(),
                                                       .rows = e.rows,
                                                       .vocab = e.vocab,
                                                       .weight_pitch = e.weight_layout.pitch * size,
                                                       .out_pitch = e.out_layout.pitch * size,
                                                       .accesses = accesses,
                                                       .shift = shift});
}

std::vector<Variant> embedding_variants(const Embedding& e) { return {make(checked(e).build)}; }

}  // namespace cgp::kernels
