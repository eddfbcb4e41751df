// SPDX-License-Identifier: Apache-2.0
// softmax for long rows on sm_90: blocks stay and visit row after row, while bulk copies fetch the next ones.
//   who      `lanes` threads of a block (and `cluster` blocks) share a row
//   memory   a ring of `stages` row parts in shared memory, filled by bulk copies; a thread reads its part of
//            it, keeps the exponentials in f32 registers, and stores 16 bytes an access
//   sync     a full barrier a stage; one exchange of (max, sum) pairs between the warps (and blocks) of a
//   row,
//            after which the stage may be filled again: nothing else waits for memory
//   needs    sm_90; 16-byte aligned rows
#include "cgp/dsl/cluster.h"
#include "cgp/kernels/softmax/softmax_parts.h"

namespace cgp::kernels::softmax_parts {
namespace {

using namespace dsl;

template <class T>
class Rows {
 public:
  using W = Words<T, true>;
  static constexpr int n = W::per_access;

  Rows(Kernel& k, const SoftmaxTuning& t, In<T> x, Out<T> y, Val<u64> rows, Val<u32> cols, Val<u64> x_pitch,
       Val<u64> y_pitch)
      : k_(k),
        t_(t),
        x_(x),
        y_(y),
        x_pitch_(x_pitch),
        y_pitch_(y_pitch),
        rows_(rows),
        first_access_(t.cluster > 1 ? k.cluster_ctarank() * std::uint32_t(part()) : Val<u32>(0)),
        accesses_(select(cols / W::elements > first_access_,
                         min(cols / W::elements - first_access_, Val<u32>(part())), Val<u32>(0))),
        data_(k.shared<b32>(t.stages * part() * n, 128)),
        slots_(k.shared<f32>(2 * t.stages * warps())) {
    auto cta = k.cta();
    for (int s = 0; s < t.stages; ++s) full_.push_back(mbarrier<ByBytes>(k).init(cta, 1));
  }

  void run() {
    auto cta = k_.cta();
    const auto rank = to<u64>(t_.cluster > 1 ? k_.clusterid_x() : k_.ctaid_x()),
               groups = to<u64>(t_.cluster > 1 ? k_.nclusterid_x() : k_.nctaid_x());
    const auto turn = groups * std::uint64_t(t_.stages);
    cta.one_thread([&](Thread& t) {
      for (int s = 0; s < t_.stages; ++s) {
        const auto row = rank + groups * std::uint64_t(s);
        k_.if_(row < rows_, [&] { fill(t, row, s); });
      }
    });
    // Two rows that follow each other use different slots, so one exchange a row is enough.
    k_.loop(range(rank, rows_, turn), Val<u32>(0), [&](Val<u64> row0, Val<u32> parity) {
      for (int s = 0; s < t_.stages; ++s) {
        const auto row = row0 + groups * std::uint64_t(s);
        if (s)
          k_.if_(row < rows_, [&] { one(row, row + turn, s, parity); });
        else
          one(row, row + turn, s, parity);
      }
      return parity ^ 1;
    });
    if (t_.cluster > 1) cluster_sync(cta);
  }

 private:
  int part() const { return t_.lanes * t_.loads; }  // accesses of one block
  int warps() const { return t_.lanes / 32 * t_.cluster; }
  template <class P>
  P part_of(const P& row) const {  // where this block's part begins
    return t_.cluster > 1 ? row.at(to<u64>(first_access_) * std::uint64_t(n)) : row;
  }
  Ptr<shared, b32> stage(int s) const { return data_.at(s * part() * n); }

  void fill(Thread& t, const Val<u64>& row, int s) {
    const auto bytes = accesses_ * 16;
    full_[std::size_t(s)].arrive_expect(t, bytes);
    k_.if_(bytes != 0, [&] {
      bulk_load(t, stage(s), part_of(x_.at(row * x_pitch_).template as<b32>()), bytes, full_[std::size_t(s)]);
    });
  }

  void one(const Val<u64>& row, const Val<u64>& next, int s, const Val<u32>& parity) {
    auto cta = k_.cta();
    auto warp = k_.warp();
    const auto left = select(accesses_ > k_.tid(), accesses_ - k_.tid(), Val<u32>(0));
    const auto inside = [&](int j) { return left > std::uint32_t(j * t_.lanes); };
    const auto mine = stage(s).at(k_.tid() * n);

    full_[std::size_t(s)].wait(parity);
    std::vector<Val<b32>> words;
    for (int j = 0; j < t_.loads; ++j) {
      const auto got = mine.template ld_if<n>(inside(j), j * t_.lanes, W::minus_infinity());
      for (int i = 0; i < n; ++i) words.push_back(got[i]);
    }
    // Relative to this thread's own maximum: the exponentials need not wait for the row's.
    const auto m = largest<T, true>(words);
    std::vector<Val<f32>> terms;
    const auto sum = sum_of_exp<T, true>(words, reference(m), &terms);
    const auto stat = exchange(cta, warp, combine_lanes(warp, {m, sum}, 32), s);

    // Every warp has read this stage before it came to the exchange.
    cta.one_thread([&](Thread& t) { k_.if_(next < rows_, [&] { fill(t, next, s); }); });

    const auto scale = exp_minus(m, stat.max) * rcp<rn>(stat.sum);
    const auto to = part_of(y_.at(row * y_pitch_).template as<b32>()).at(k_.tid() * std::uint32_t(n));
    std::size_t at = 0;
    for (int j = 0; j < t_.loads; ++j) {
      std::vector<Value> out;
      for (int i = 0; i < n; ++i) {
        std::vector<Val<f32>> f;
        for (int e = 0; e < W::per_word; ++e) f.push_back(terms[at++] * scale);
        out.push_back(W::word(f));
      }
      to.template st_if<n>(inside(j), j * t_.lanes, W::Access::from(out));
    }
  }

  Stat exchange(Cta& cta, Warp& w, const Stat& mine, int s) {
    const auto slots = slots_.at(2 * s * warps());
    const auto lane = w.lane();
    if (t_.cluster == 1) {
      k_.if_(lane == 0, [&] { put(slots, k_.warp_index(), mine); });
      k_.sync();
    } else {
      const auto slot = k_.cluster_ctarank() * std::uint32_t(t_.lanes / 32) + k_.warp_index();
      k_.if_(lane < std::uint32_t(t_.cluster), [&] { put(mapa(slots, lane), slot, mine); });
      cluster_sync(cta);
    }
    return combine_slots(w, slots, warps());
  }

  Kernel& k_;
  SoftmaxTuning t_;
  In<T> x_;
  Out<T> y_;
  Val<u64> x_pitch_, y_pitch_, rows_;
  Val<u32> first_access_;
  Val<u32> accesses_;
  Ptr<shared, b32> data_;
  Ptr<shared, f32> slots_;
  std::vector<Mbarrier<ByBytes>> full_;
};

template <class T>
void softmax_ring(Kernel& k, SoftmaxTuning t, In<T> x, Out<T> y, Val<u64> rows, Val<u32> cols,
                  Val<u64> x_pitch, Val<u64> y_pitch) {
  k.block(t.lanes);
  if (t.cluster > 1) k.cluster(t.cluster);
  k.min_blocks(t.resident);
  Rows<T>(k, t, x, y, rows, cols, x_pitch, y_pitch).run();
}

}  // namespace
}  // namespace cgp::kernels::softmax_parts

namespace cgp::kernels {

Variant softmax_ring_variant(DType t, std::string name, const SoftmaxTuning& tune) {
  using namespace softmax_parts;
  if (t == DType::f32) return variant(std::move(name), 90, softmax_ring<dsl::f32>, tune);
  if (t == DType::f16) return variant(std::move(name), 90, softmax_ring<dsl::f16>, tune);
  return variant(std::move(name), 90, softmax_ring<dsl::bf16>, tune);
}

}  // namespace cgp::kernels
