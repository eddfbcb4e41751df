// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/row_exchange.h"

#include "cgp/dsl/pipeline/cluster.h"

namespace cgp::kernels::row {

using namespace dsl;

RowExchange::RowExchange(Kernel& k, const RowTuning& t, const Fold* fold) : k_(k), t_(t), fold_(fold) {
  if (!fold) return;
  size_ = fold->size();
  warps_ = std::max(1, t.lanes / 32);
  const int sets = t.persistent() ? 2 : 1;
  if (warps_ > 1) slots_ = k.smem(sets * warps_ * size_ * 4, 16);
  if (t.cluster == 1) return;
  const int peer_sets = t.persistent() ? int(this->peer_sets()) : 1;
  peer_slots_ = k.smem(peer_sets * t.cluster * size_ * 4, 16);
  barriers_ = k.smem(peer_sets * 8, 8);
  auto cta = k.cta();
  cta.one_thread([&](Thread&) {
    for (int s = 0; s < peer_sets; ++s)
      record::mbarrier_init(k, {k.smem_addr(barriers_), s * 8}, Val<u32>(1), Here::now());
    record::fence_mbarrier_init(k, Here::now());
  });
  cluster_sync(cta);  // also: the peers run, so their shared memory may be written
}

Stat RowExchange::operator()(const Stat& mine, const std::optional<Val<u32>>& turn,
                             const std::function<void()>& all_here) const {
  if (t_.cluster > 1) {
    send(mine, turn, all_here);
    return receive(turn);
  }
  auto w = k_.warp();
  const auto of_warp = fold_->lanes(w, mine, std::min(t_.lanes, 32));
  if (warps_ > 1) return in_block(w, of_warp, turn, all_here);
  if (t_.stages) k_.sync();
  all_here();
  return of_warp;
}

Ptr<shared, f32> RowExchange::set(int offset, int size, std::uint32_t sets,
                                  const std::optional<Val<u32>>& turn) const {
  const Ptr<shared, f32> first(k_.smem_addr(offset));
  return turn ? first.at((*turn & (sets - 1)) * std::uint32_t(size)) : first;
}

Val<u32> RowExchange::barrier(const std::optional<Val<u32>>& turn) const {
  const Val<u32> first = k_.smem_addr(barriers_);
  return turn ? first + (*turn & (peer_sets() - 1)) * 8 : first;
}

Stat RowExchange::in_block(Warp& w, const Stat& of_warp, const std::optional<Val<u32>>& turn,
                           const std::function<void()>& all_here) const {
  if (warps_ == 1) {
    k_.sync();
    all_here();
    return of_warp;
  }
  const auto slots = set(slots_, warps_ * size_, 2, turn);
  const auto lane = w.lane();
  k_.if_(lane == 0, [&] {
    const auto mine = slots.at(k_.warp_index() * std::uint32_t(size_));
    for (int i = 0; i < size_; ++i) mine.st(i, of_warp[std::size_t(i)]);
  });
  k_.sync();
  all_here();
  int width = 2;
  while (width < warps_) width *= 2;
  const auto nothing = fold_->nothing();
  const auto slot = lane & std::uint32_t(width - 1);
  Stat part;
  for (int i = 0; i < size_; ++i)
    part.push_back(slots.ld_if(slot < std::uint32_t(warps_), slot * std::uint32_t(size_) + std::uint32_t(i),
                               Val<f32>(nothing[std::size_t(i)]))[0]);
  return fold_->warps(w, part, width);
}

// Every block sends its statistics to all, itself included; the barrier counts the bytes that arrive. A set
// of slots is written again two rows later: by then every block has sent the row between, and so has read
// this one. Where rows lag a block sends the next row before it reads this one, and it takes four.
void RowExchange::send(const Stat& mine, const std::optional<Val<u32>>& turn,
                       const std::function<void()>& all_here) const {
  auto w = k_.warp();
  const auto of_block = in_block(w, fold_->lanes(w, mine, std::min(t_.lanes, 32)), turn, all_here);
  const auto slots = set(peer_slots_, t_.cluster * size_, peer_sets(), turn);
  const Val<u32> bar = barrier(turn);
  auto cta = k_.cta();
  cta.one_thread([&](Thread&) {
    record::mbarrier_arrive_expect_tx(k_, {bar, 0}, Val<u32>(t_.cluster * size_ * 4), Here::now());
  });
  k_.if_(k_.warp_index() == 0, [&] {
    const auto lane = w.lane();
    k_.if_(lane < std::uint32_t(t_.cluster), [&] {
      const PeerBarrier peer{Val<u32>(record::mapa(k_, bar, lane, Here::now()))};
      const auto to = mapa(slots.at(k_.cluster_ctarank() * std::uint32_t(size_)), lane);
      for (int i = 0; i < size_; ++i) st_async(to.at(i), of_block[std::size_t(i)], peer);
    });
  });
}

Stat RowExchange::receive(const std::optional<Val<u32>>& turn) const {
  const auto slots = set(peer_slots_, t_.cluster * size_, peer_sets(), turn);
  const Val<u32> parity = turn ? *turn >> (peer_sets() == 4 ? 2 : 1) : Val<u32>(0);
  record::mbarrier_wait(k_, {barrier(turn), 0}, parity, true, Here::now());
  std::vector<Stat> parts;
  for (int r = 0; r < t_.cluster; ++r) {
    Stat s;
    for (int i = 0; i < size_; ++i) s.push_back(slots.ld(r * size_ + i));
    parts.push_back(std::move(s));
  }
  return fold_->merge(parts);
}

}  // namespace cgp::kernels::row
