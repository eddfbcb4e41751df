// SPDX-License-Identifier: Apache-2.0
// embedding_backward: the gradient of a table, deterministic.
//   lists    each block owns 480 rows of the table and reads all indices twice, a slice of them for each warp: the
//            warps count their own rows by slice, and indices of rows before (so that no block waits for
//            another); from the counts follows where each warp writes down who named its rows, in ascending
//            order. Cost: vocab / 480 * rows indices, from the caches.
//   sums     2^shift threads a row of the table walk its list, four rows of dout in flight, and write the
//            row, zeros or not: dweight is written once and dout read once. Onto what is there: rows with a
//            list.
//   sync     none between blocks; counters are integers in shared memory
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/embedding/embedding.h"
#include "cgp/kernels/embedding/embedding_impl.h"
#include "cgp/kernels/row/elements.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using embedding_impl::kThreads;
using row::Floats;

// A thread a row; the counters of all warps and their scan fit into 32 KB of shared memory.
constexpr int kOwned = 480, kWarps = kOwned / 32, kAhead = 8, kUnroll = 4;

struct ListConfig {
  bool wide = false;        ///< indices are s64
  bool error_flag = false;  ///< indices out of range are counted
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.flag("index_s64", c.wide);
    v.flag("checked", c.error_flag);
  }
};
struct SumConfig {
  DType type{};
  int elements = 1;         ///< of an access
  bool accumulate = false;  ///< added to what dweight holds
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type);
    v.number("elements", "vec", c.elements, 1);
    v.flag("accumulate", c.accumulate);
  }
};

struct Named {
  Val<u64> row;
  Val<pred> valid, bad;
};

// starts[v] = indices of rows below v; order: positions, by (row, position).
template <template <class> class V>
struct ListArgs {
  V<In<b8>> indices;
  V<Out<u32>> starts, order, error_flag;
  V<u64> n, vocab;
  V<s64> padding;
};
void list_rows(Kernel& k, ListConfig b, ListArgs<DeviceArg> p) {
  k.block(kOwned);
  auto w = k.warp();
  const auto lane = k.laneid(), warp = k.warp_index();
  const auto low = to<u64>(k.ctaid_x()) * std::uint64_t(kOwned);
  const auto counts = k.shared<u32>(kWarps * kOwned);  // of a warp's slice, by row
  const auto counters = counts.at(warp * std::uint32_t(kOwned));
  const auto warp_totals = k.shared<u32>(2 * kWarps);
  const auto skipped = bits<u64>(p.padding);
  const auto add = [](Val<u32> x, Val<u32> y) { return x + y; };
  const auto slice = (p.n + std::uint64_t(kWarps - 1)) / std::uint64_t(kWarps);
  const auto from = dsl::min(slice * to<u64>(warp), p.n), end = dsl::min(from + slice, p.n);
  const auto place = [&](const Val<u64>& base, int j) {
    return base + to<u64>(lane + std::uint32_t(32 * j));
  };
  const auto named = [&](const Val<u64>& base) {
    std::vector<Named> all;
    for (int j = 0; j < kAhead; ++j) {
      const auto i = place(base, j);
      const Val<pred> inside = i < end;
      const auto row = embedding_impl::load_index(b.wide, p.indices, i, inside);
      const Val<pred> known = row < p.vocab;  // not so where nothing was read
      all.push_back({row, known & (row != skipped), inside & !known});
    }
    return all;
  };
  for (int r = 0; r < kOwned; r += 32) counters.st(lane + std::uint32_t(r), Val<u32>(0));
  w.sync();
  const auto steps = range(from, end, Val<u64>(32 * kAhead));
  const auto seen = k.loop(
      steps, std::pair{Val<u32>(0), Val<u32>(0)}, [&](const Val<u64>& base, std::pair<Val<u32>, Val<u32>> c) {
        std::vector<Val<u32>> smaller{c.first}, bad{c.second};
        for (const auto& x : named(base)) {
          const auto own = x.row - low;
          k.if_(x.valid & (own < std::uint64_t(kOwned)),
                [&] { red<relaxed, cta, op::add>(counters, to<u32>(own), Val<u32>(1)); });
          smaller.push_back(smaller.back() + to<u32>(x.valid & (x.row < low)));
          bad.push_back(bad.back() | to<u32>(x.bad));
        }
        return std::pair{smaller.back(), bad.back()};
      });
  if (b.error_flag)
    k.if_((low == 0) & (seen.second != 0), [&] { red<relaxed, gpu, op::max>(p.error_flag, 0, Val<u32>(1)); });
  const auto smaller = reduce(w, seen.first, add);
  k.sync();
  // Thread t warp_totals up row t over the warps; the rows' sums are scanned over the block.
  std::vector<Val<u32>> through;
  for (std::uint32_t i = 0; i < kWarps; ++i) {
    const auto c = counts.ld(k.tid() + i * std::uint32_t(kOwned));
    through.push_back(i ? through.back() + c : c);
  }
  const auto scanned = inclusive_scan(w, through.back(), add);
  k.if_(lane == 31,
        [&] { warp_totals.st(warp, scanned), warp_totals.st(warp + std::uint32_t(kWarps), smaller); });
  k.sync();
  const auto known = lane < std::uint32_t(kWarps);
  const auto of_warp = warp_totals.ld_if(known & (lane < warp), lane, Val<u32>(0))[0];
  const auto of_smaller = warp_totals.ld_if(known, lane + std::uint32_t(kWarps), Val<u32>(0))[0];
  const auto start = reduce(w, of_warp + of_smaller, add) + scanned - through.back();
  const auto row = low + to<u64>(k.tid());
  p.starts.st_if(row <= p.vocab, row, start);
  for (std::uint32_t i = 0; i < kWarps; ++i)
    counts.st(k.tid() + i * std::uint32_t(kOwned), i ? start + through[i - 1] : start);
  k.sync();
  k.loop(steps, [&](const Val<u64>& base) {
    int j = 0;
    for (const auto& x : named(base)) {
      const auto own = x.row - low;
      const Val<pred> hit = x.valid & (own < std::uint64_t(kOwned));
      const auto i = to<u32>(place(base, j++));
      k.if_(vote<any>(w, hit), [&] {
        const auto key = select(hit, to<u32>(own), Val<u32>(0xffffffffu));
        const auto same = match_any(w, key);
        const auto rank = popc(same & k.lanemask_lt());
        const auto at = counters.ld_if(hit, key, Val<u32>(0))[0];
        w.sync();
        p.order.st_if(hit, at + rank, i);
        counters.st_if(hit & (rank == 0), key, at + popc(same));
        w.sync();
      });
    }
  });
}

// Weights: Out<b8>, or InOut<b8> where warp_totals are added to what is there.
template <class Weights>
struct GradientArgs {
  template <template <class> class V>
  struct Of {
    V<In<b8>> dout;
    V<In<u32>> starts, order;
    V<Weights> dweight;
    V<u64> vocab;
    V<u64> dout_pitch, dweight_pitch;  ///< in elements
    V<u64> accesses;                   ///< of a row
    V<u32> shift;                      ///< logarithm of the lanes that share a row
  };
};

template <class Weights>
void embedding_gradient(Kernel& k, SumConfig b, typename GradientArgs<Weights>::template Of<DeviceArg> p) {
  k.block(int(kThreads));
  const row::Format f{b.type, b.elements};
  const auto size = std::uint64_t(cgp::bytes(b.type));
  const auto thread = to<u64>(k.ctaid_x()) * std::uint64_t(kThreads) + to<u64>(k.tid());
  const auto lanes = Val<u64>(1) << p.shift;
  const auto row = thread >> p.shift, part = thread & (lanes - 1);
  const Val<pred> inside = row < p.vocab;
  const auto from = p.starts.template ld_if<1>(inside, row, Val<u32>(0))[0];
  const auto to_end = p.starts.template ld_if<1>(inside, row + 1, Val<u32>(0))[0];
  const Out<b8> dweight = p.dweight;
  const auto target = dweight.at(row * (p.dweight_pitch * size));
  const Val<pred> written = b.accumulate ? inside & (from < to_end) : inside;
  k.loop(range(part, select(written, p.accesses, Val<u64>(0)), lanes), [&](const Val<u64>& c) {
    const auto column = p.dout.at(c * std::uint64_t(f.bytes()));
    const Floats first = b.accumulate ? row::floats(f, row::load(f, target, c, written))
                                      : Floats(std::size_t(b.elements), Val<f32>(0.f));
    const auto total =
        k.loop(range(from, to_end, Val<u32>(kUnroll)), first, [&](const Val<u32>& i, Floats sum) {
          std::vector<Val<u32>> who;
          std::vector<row::Access> got;
          for (std::uint32_t j = 0; j < kUnroll; ++j)
            who.push_back(p.order.template ld_if<1>(to_end - i > j, i + j, Val<u32>(0))[0]);
          for (std::uint32_t j = 0; j < kUnroll; ++j)
            got.push_back(
                row::load<nc>(f, column.at(to<u64>(who[j]) * (p.dout_pitch * size)), 0, to_end - i > j));
          std::vector<Floats> chain{sum};
          for (const auto& a : got) {
            const auto x = row::floats(f, a);
            Floats next;
            for (std::size_t e = 0; e < x.size(); ++e) next.push_back(chain.back()[e] + x[e]);
            chain.push_back(next);
          }
          return chain.back();
        });
    row::store(f, target, c, written, row::pack(f, total));
  });
}

Variant make(const ListConfig& c) { return config_variant("embedding_lists", c, 75, list_rows); }
Variant make(const SumConfig& c) {
  const int min_sm = c.type == DType::bf16 ? 80 : 75;
  return c.accumulate ? config_variant("embedding_backward", c, min_sm, embedding_gradient<InOut<b8>>)
                      : config_variant("embedding_backward", c, min_sm, embedding_gradient<Out<b8>>);
}

struct Problem {
  EmbeddingBackward e;
  ListConfig lists;
  SumConfig gradient;
};

Problem checked(EmbeddingBackward e) {
  const row::Checker check{"embedding_backward"};
  embedding_impl::check_sizes(check, e.rows, e.vocab, e.cols);
  check.present("dout", e.dout, row::kFloats, false);
  check.present("dweight", e.dweight, {e.dout.dtype}, true);
  embedding_impl::check_indices(check, e.indices, e.error_flag, e.rows);
  e.dout_layout = embedding_impl::check_rows(check, "dout", e.dout, e.rows, e.cols, e.dout_layout);
  e.dweight_layout =
      embedding_impl::check_rows(check, "dweight", e.dweight, e.vocab, e.cols, e.dweight_layout);
  if (e.rows >= 0xffffffffull || e.vocab >= 0xffffffffull)
    check.fail("rows, vocab", "must be below 2^32 - 1", text::cat("rows = ", e.rows, ", vocab = ", e.vocab));
  if (e.padding_idx < -1 || e.padding_idx >= std::int64_t(e.vocab))
    check.fail("padding_idx", "must be a row of the table, or -1 for none",
               text::cat("padding_idx = ", e.padding_idx, ", vocab = ", e.vocab));
  check.present("workspace", e.workspace, {DType::u32}, true);
  check.vector("workspace", e.workspace, embedding_workspace(e.rows, e.vocab));
  const int n = 16 / cgp::bytes(e.dout.dtype);
  const bool wide =
      row::fits(e.dout, e.cols, e.dout_layout, n) && row::fits(e.dweight, e.cols, e.dweight_layout, n);
  return {e, {e.indices.dtype == DType::s64, e.error_flag.given}, {e.dout.dtype, wide ? n : 1, e.accumulate}};
}

}  // namespace

std::uint64_t embedding_workspace(std::uint64_t rows, std::uint64_t vocab) { return vocab + 1 + rows; }

void embedding_backward(runtime::Stream& s, const EmbeddingBackward& given) {
  const auto [e, lists, gradient] = checked(given);
  if (e.vocab == 0 || e.cols == 0) return;
  const auto starts = e.workspace, order = e.workspace.from(e.vocab + 1);
  // The entry behind the last row is somebody's, too.
  launch::launch_kernel(s, load(s.device(), make(lists)), runtime::grid_for(e.vocab + 1, kOwned),
                        ListArgs<launch::HostArg>{.indices = e.indices.arg(),
                                                  .starts = starts.arg(),
                                                  .order = order.arg(),
                                                  .error_flag = e.error_flag.arg(),
                                                  .n = e.rows,
                                                  .vocab = e.vocab,
                                                  .padding = e.padding_idx});
  const std::uint64_t accesses = e.cols / std::uint64_t(gradient.elements);
  const auto shift = embedding_impl::lanes_shift(accesses);
  launch::launch_kernel(s, load(s.device(), make(gradient)), runtime::grid_for(e.vocab, kThreads >> shift),
                        GradientArgs<Out<b8>>::Of<launch::HostArg>{.dout = e.dout.arg(),
                                                                   .starts = starts.arg(),
                                                                   .order = order.arg(),
                                                                   .dweight = e.dweight.arg(),
                                                                   .vocab = e.vocab,
                                                                   .dout_pitch = e.dout_layout.pitch,
                                                                   .dweight_pitch = e.dweight_layout.pitch,
                                                                   .accesses = accesses,
                                                                   .shift = shift});
}

std::vector<Variant> embedding_backward_variants(const EmbeddingBackward& e) {
  const auto p = checked(e);
  return {make(p.lists), make(p.gradient)};
}

}  // namespace cgp::kernels
